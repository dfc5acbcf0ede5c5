"""What a perfect client holds after each event: the truth that prefixes of a stream are compared with.

This module knows scripts and counts; it does not look at bytes, and no decoder is involved.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ..script import Script


@dataclass(frozen=True)
class Held:
    """One output as far as its events have arrived.

    :ivar tokens: so many of the script's first tokens are known: their ids, or their rows, were in the bytes.
    :ivar counted: the newest ``completion_tokens`` (0 before the first event).  Less than ``tokens`` only while a live
        list runs ahead of its counters.
    :ivar rows: so many logprob rows have arrived (with the script's extra rows at the end).
    :ivar text: the server's own text so far; "" where it sends none.
    :ivar finish_reason: as the server wrote it, or None.
    :ivar error: the error event that failed this one output, or None.
    :ivar lost: tokens were generated whose ids never came and never will: a client must not pretend otherwise.
    """

    script: Script = field(repr=False)
    tokens: int = 0
    counted: int = 0
    rows: int = 0
    text: str = ""
    finish_reason: Any = None
    error: dict[str, Any] | None = None
    lost: bool = False

    @property
    def complete(self) -> bool:
        """The terminal chunk has arrived."""
        return self.finish_reason is not None

    @property
    def token_ids(self) -> tuple[int, ...]:
        """The ids that are known."""
        return self.script.token_ids[: self.tokens]

    @property
    def logprobs(self) -> tuple[float | None, ...]:
        """The logprobs of the known tokens as JSON can say them; empty when none were asked for."""
        if self.script.logprobs is None:
            return ()
        return tuple(finite(value) for value in self.script.logprobs[: min(self.tokens, self.rows)])


def finite(value: float | None) -> float | None:
    """A float as JSON can say it: None for NaN and the infinities."""
    return value if value is not None and math.isfinite(value) else None
