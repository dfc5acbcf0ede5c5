"""The events of a recorded body, each with the place where it stands.

The parser is the core's own; it is fed line by line, so that the line which ends an event is known.  Knows bytes and
events, and nothing of what is in them.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple

from ssefold import SSEParser

# A body is read from memory: nothing that fits there is too large.
_NO_LIMIT = 2**62
_LINE = re.compile(rb"[^\r\n]*(?:\r\n|\r|\n)")


class Event(NamedTuple):
    """One event.

    :ivar offset: of its first field line in the body.
    :ivar start: where the bytes that it may be fed with begin: the end of the event before.
    :ivar end: behind the blank line that ends it.
    """

    offset: int
    start: int
    end: int
    type: str
    data: bytes


def events_of(body: bytes) -> Iterator[Event]:
    """Events in order; one that the body does not end is left out."""
    parser = SSEParser(max_event_size=_NO_LIMIT)
    view = memoryview(body)
    start = 0
    offset: int | None = None
    for line in _LINE.finditer(body):
        first, end = line.span()
        if offset is None and not _is_ignored(body, first):
            offset = first
        found = parser.feed(view[first:end])
        for event in found:
            yield Event(first if offset is None else offset, start, end, event.event, event.data_bytes)
        if found or body[first] in b"\r\n":
            offset = None
        if found:
            start = end


def _is_ignored(body: bytes, first: int) -> bool:
    """A blank line or a comment: no part of an event."""
    return body[first] in b"\r\n:"
