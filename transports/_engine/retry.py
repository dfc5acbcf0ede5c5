"""How long to wait before another attempt."""

from __future__ import annotations

import random

_FIRST = 0.25
_LONGEST = 10.0


def backoff(attempt: int) -> float:
    """Seconds before attempt ``attempt + 1``: doubling from a quarter to ten seconds, times a random half to whole.

    The random part keeps the many streams that one overloaded server turned away from coming back all at once.
    """
    return min(_FIRST * 2.0 ** (attempt - 1), _LONGEST) * random.uniform(0.5, 1.0)  # noqa: S311  # no secret
