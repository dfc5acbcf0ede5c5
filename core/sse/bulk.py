"""Shortcuts through a read that holds many small events: all of them by a few calls in C.

It must not know the parser's state.  The caller sees to it that the read has only LF line ends, that nothing of an
event came before ``pos``, which is a line start, and that no event in the read can be too large.  Whatever is not of
the one expected shape is left to the caller; in doubt these functions do nothing.
"""

from __future__ import annotations

from itertools import repeat

from .event import ServerSentEvent, make_event
from .lines import LF

_SMALL_EVENT = 512
"""First event below this many bytes: split the read.  Searching for ``_BETWEEN`` costs 0.5 ns a byte more than memchr;
the steps in Python that it saves cost 300 ns an event."""
_BETWEEN = b"\n\ndata: "
_MESSAGES = repeat("message")


def take_plain_events(data: bytes, pos: int, last_id: str, events: list[ServerSentEvent]) -> tuple[int, bool]:
    """Take events that are one ``data: ...`` line each, which is what nearly all streams consist of.

    :returns: where the first thing begins that is something else, or is not complete; and whether it has a line end.
    """
    size = len(data)
    may_split = True
    while (end := data.find(LF, pos)) >= 0:
        if end == pos:
            pos += 1
        elif data[pos : pos + 6] != b"data: " or end + 1 == size or data[end + 1] != LF:
            break
        elif may_split and end - pos < _SMALL_EVENT and data[end + 2 : end + 8] == b"data: ":
            may_split = False
            values = data[pos + 6 :].split(_BETWEEN)
            rest = values.pop()  # the last event, perhaps a part of it, perhaps with lines after it
            if LF not in b"".join(values):  # each is one line
                events.extend(map(make_event, zip(_MESSAGES, values, repeat(last_id))))
                pos = size - len(rest) - 6
        else:
            events.append(make_event(("message", data[pos + 6 : end], last_id)))
            pos = end + 2
    return pos, end >= 0


def take_named_events(data: bytes, pos: int, last_id: str, events: list[ServerSentEvent]) -> int:
    """Take events that are one ``event: ...`` and one ``data: ...`` line each.

    :returns: where the first thing begins that is something else, or is not complete.
    """
    known_head = b""
    event_type = ""
    while (line_end := data.find(LF, pos)) >= 0:
        start = line_end + 7
        if data[line_end:start] != b"\ndata: ":
            break
        end = data.find(LF, start)
        if end < 0 or data[end + 1 : end + 2] != b"\n":
            break
        head = data[pos:line_end]
        if head != known_head:
            if head[:7] != b"event: ":
                break
            known_head = head
            event_type = head[7:].decode("utf-8", "replace") or "message"
        events.append(make_event((event_type, data[start:end], last_id)))
        pos = end + 2
    return pos
