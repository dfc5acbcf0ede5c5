"""Times and counts of one stream; the caller passes the clock's readings."""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ssefold import Update


class StreamMetrics:
    """Numbers of one stream; times are seconds.

    :ivar bytes: of the body, as received; :ivar events: payloads folded; :ivar tokens: new token ids in them.
    :ivar ttft: from the request's start to the read that brought the first token, retries included; None before it.
    :ivar inter_token_times: between two reads that brought tokens of the same output, one entry an update after the
        output's first; 0.0 for updates of one read.
    :ivar parse_time: spent on parsing and folding.
    :ivar attempts: requests made.
    """

    __slots__ = (
        "_known", "_last", "_started", "attempts", "bytes", "events", "inter_token_times", "parse_time", "tokens",
        "ttft",
    )  # fmt: skip

    def __init__(self) -> None:
        self.bytes: int = 0
        self.events: int = 0
        self.tokens: int = 0
        self.ttft: float | None = None
        self.inter_token_times: array[float] = array("d")
        self.parse_time: float = 0.0
        self.attempts: int = 0
        self._started: float | None = None
        self._last: float | None = None
        self._known: dict[int, list[float]] = {}

    def request_started(self, now: float) -> None:
        """An attempt begins."""
        self.attempts += 1
        if self._started is None:
            self._started = now

    @property
    def elapsed(self) -> float:
        """From the request's start to the last byte."""
        last = self._last
        return 0.0 if last is None else last - (last if self._started is None else self._started)

    def received(self, size: int, updates: Sequence[Update], now: float, parse_time: float) -> None:
        """A read brought these updates."""
        self.bytes += size
        self.parse_time += parse_time
        self.events += len(updates)
        self._last = now
        for update in updates:
            known = self._known.get(update.index)
            if known is None:
                known = self._known[update.index] = [0, 0.0]
            end, last = known
            # An update that replaces repeats earlier tokens: only those after them are new.
            new_end = update.start + len(update.token_ids)
            if new_end > end:
                self.tokens += int(new_end - end)
                known[:] = new_end, now
                if end:
                    self.inter_token_times.append(now - last)
                elif self.ttft is None:
                    self.ttft = self.elapsed

    def __repr__(self) -> str:
        ttft = "None" if self.ttft is None else f"{self.ttft:.4f}"
        return (
            f"StreamMetrics(ttft={ttft}, tokens={self.tokens}, events={self.events}, bytes={self.bytes}, "
            f"elapsed={self.elapsed:.4f}, parse_time={self.parse_time:.4f}, attempts={self.attempts})"
        )
