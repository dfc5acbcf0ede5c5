"""How long to wait before another attempt."""

from __future__ import annotations

import random
from datetime import datetime, timezone
from email.utils import parsedate_to_datetime

_FIRST = 0.25
_LONGEST = 10.0
_LONGEST_ASKED = 60.0


def backoff(attempt: int, retry_after: float | None = None) -> float:
    """Seconds before attempt ``attempt + 1``: exponential backoff with jitter.

    0.25 s, doubled each time up to 10 s, multiplied by a random factor from 0.5 to 1, which keeps the many streams that
    one overloaded server turned away from coming back all at once.

    :param retry_after: added, up to 60 s of it.
    """
    jitter = random.uniform(0.5, 1.0)  # noqa: S311  # no secret
    return min(retry_after or 0.0, _LONGEST_ASKED) + min(_FIRST * 2.0 ** (attempt - 1), _LONGEST) * jitter


def asked_wait(retry_after: str) -> float | None:
    """Seconds from the value of a ``Retry-After`` header, a number of seconds or a date; None for anything else."""
    value = retry_after.strip()
    if value.isascii() and value.isdigit():
        return float(value[:9])
    try:
        date = parsedate_to_datetime(value)
    except ValueError:
        return None
    if date.tzinfo is None:
        date = date.replace(tzinfo=timezone.utc)
    return max((date - datetime.now(timezone.utc)).total_seconds(), 0.0)
