"""Feed a stream in pieces and collect all that can be seen of it: what every test of the parser begins with."""

from __future__ import annotations

import random
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import pairwise
from unittest.mock import patch

from ssefold import EventTooLargeError, SSEParser

from .reference import Outcome

HUGE = 256 * 2**20


@dataclass
class Seen:
    """All that a stream made visible."""

    events: list[tuple[str, str, str]] = field(default_factory=list[tuple[str, str, str]])
    comments: list[str] = field(default_factory=list[str])
    last_event_id: str = ""
    reconnection_time: int | None = None
    unfinished: bool | None = None
    """What ``close`` returned; None after a failure."""
    failure: str = ""


def parse(
    pieces: Iterable[bytes], *, last_event_id: str = "", max_event_size: int = HUGE, comments: bool = False
) -> Seen:
    """Feed the pieces, close, and tell."""
    seen = Seen()
    parser = SSEParser(
        last_event_id=last_event_id,
        max_event_size=max_event_size,
        on_comment=seen.comments.append if comments else None,
    )
    try:
        for piece in pieces:
            seen.events += [(event.event, event.data, event.id) for event in parser.feed(piece)]
        seen.unfinished = parser.close()
    except EventTooLargeError as error:
        seen.failure = str(error)
    seen.last_event_id = parser.last_event_id
    seen.reconnection_time = parser.reconnection_time
    return seen


def expected(outcome: Outcome, *, comments: bool = False) -> Seen:
    """What must be visible of a stream within the bound."""
    return Seen(
        events=outcome.events,
        comments=outcome.comments if comments else [],
        last_event_id=outcome.last_event_id,
        reconnection_time=outcome.reconnection_time,
        unfinished=outcome.unfinished,
    )


def cut(stream: bytes, offsets: Iterable[int]) -> list[bytes]:
    """The stream, cut at these offsets."""
    at = [0, *sorted(offsets), len(stream)]
    return [stream[start:end] for start, end in pairwise(at)]


def every_cut(stream: bytes) -> Iterator[list[bytes]]:
    """Whole; byte by byte; in two at every offset (a thousand, in a long stream); at random."""
    yield [stream]
    yield [stream[n : n + 1] for n in range(len(stream))]
    for offset in range(0, len(stream) + 1, 1 + len(stream) // 1000):
        yield [stream[:offset], stream[offset:]]
    chance = random.Random(len(stream))
    for _ in range(20):
        yield cut(stream, [chance.randrange(len(stream) + 1) for _ in range(chance.randrange(1, 12))])


@contextmanager
def tiny_thresholds() -> Iterator[None]:
    """Make the sizes at which the parser changes its ways so small that short streams meet them all."""
    with (
        patch("ssefold.sse.buffer.MANY_PIECES", 2),
        patch("ssefold.sse.buffer.LARGE_EVENT", 8),
    ):
        yield
