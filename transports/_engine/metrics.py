"""Times and counts of one stream; the caller passes the clock's readings."""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ssefold import Update


class StreamMetrics:
    """Numbers of one stream; times are seconds.

    :ivar bytes: of the body, as received; :ivar events: payloads folded.
    :ivar attempts: requests made.
    """

    __slots__ = ("_arrivals", "_ends", "_indexes", "_last", "_started", "attempts", "bytes", "events")

    def __init__(self) -> None:
        self.bytes: int = 0
        self.events: int = 0
        self.attempts: int = 0
        self._started: float | None = None
        self._last: float | None = None
        # How many tokens each output has; and of every update with new ones, its output, and when it came.
        self._ends: dict[int, int] = {}
        self._indexes: array[int] = array("l")
        self._arrivals: array[float] = array("d")

    def request_started(self, now: float) -> None:
        """An attempt begins."""
        self.attempts += 1
        if self._started is None:
            self._started = now

    def received(self, now: float, size: int, updates: Sequence[Update]) -> None:
        """A read brought these updates."""
        self._last = now
        self.bytes += size
        self.events += len(updates)
        for update in updates:
            index, end = update.index, update.start + len(update.token_ids)
            # An update that replaces repeats earlier tokens: only those after them are new.
            if end > self._ends.get(index, 0):
                self._ends[index] = end
                self._indexes.append(index)
                self._arrivals.append(now)

    @property
    def tokens(self) -> int:
        """New token ids, of all outputs."""
        return sum(self._ends.values())

    @property
    def ttft(self) -> float | None:
        """From the request's start to the read that brought the first token, retries included; None before it."""
        return self._since_start(self._arrivals[0]) if self._arrivals else None

    @property
    def inter_token_times(self) -> array[float]:
        """Between two reads that brought tokens of the same output.

        One entry an update after the output's first; 0.0 for updates of one read.
        """
        times = array("d")
        last: dict[int, float] = {}
        for index, now in zip(self._indexes, self._arrivals, strict=True):
            if index in last:
                times.append(now - last[index])
            last[index] = now
        return times

    @property
    def elapsed(self) -> float:
        """From the request's start to the last byte."""
        return 0.0 if self._last is None else self._since_start(self._last)

    def _since_start(self, now: float) -> float:
        return now - (now if self._started is None else self._started)

    def __repr__(self) -> str:
        ttft = "None" if self.ttft is None else f"{self.ttft:.4f}"
        return (
            f"StreamMetrics(ttft={ttft}, tokens={self.tokens}, events={self.events}, bytes={self.bytes}, "
            f"elapsed={self.elapsed:.4f}, attempts={self.attempts})"
        )
