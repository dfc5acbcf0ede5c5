"""Kinds of damage to a stream, each at every place: events lost, doubled, moved and mixed, fields of the wrong event.

A kind takes the events of a stream and those of another request to the same server, and gives damaged bodies.  What
must come of them is the matter of ``matrix.py``.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any

from ssefold.transports.testing import DONE

Events = list[bytes]
Kind = Callable[[Events, Events], Iterator[bytes]]

HTML = b"<html>\n<head><title>502 Bad Gateway</title></head>\n\n<body>nginx</body>\n</html>\n"
_FIELDS = ("id", "finish_reason", "prompt_tokens", "completion_tokens", "output_token_logprobs_length")


def drop(events: Events, _: Events) -> Iterator[bytes]:
    """One event is lost."""
    for at in range(len(events)):
        yield b"".join(events[:at] + events[at + 1 :])


def drop_run(events: Events, _: Events) -> Iterator[bytes]:
    """Two events in a row are lost."""
    for at in range(len(events) - 1):
        yield b"".join(events[:at] + events[at + 2 :])


def double(events: Events, _: Events) -> Iterator[bytes]:
    """One event comes twice."""
    for at, event in enumerate(events):
        yield b"".join([*events[:at], event, *events[at:]])


def repeat(events: Events, _: Events) -> Iterator[bytes]:
    """One event comes again, some events later."""
    for at, event in enumerate(events):
        for later in {at + 2, at + 3, len(events)}:
            yield b"".join([*events[:later], event, *events[later:]])


def repeat_all(events: Events, _: Events) -> Iterator[bytes]:
    """A gateway tries again within one answer: the first events, then the stream from its beginning."""
    for at in range(1, len(events) + 1):
        yield b"".join(events[:at] + events)


def swap(events: Events, _: Events) -> Iterator[bytes]:
    """Two neighbours change places."""
    for at in range(len(events) - 1):
        yield b"".join([*events[:at], events[at + 1], events[at], *events[at + 2 :]])


def late(events: Events, _: Events) -> Iterator[bytes]:
    """One event comes after the one that ends the stream."""
    for at in range(len(events) - 2):
        yield b"".join([*events[:at], *events[at + 1 :], events[at]])


def insert(events: Events, other: Events) -> Iterator[bytes]:
    """An event of another request comes between."""
    others = _chunks(other)
    for at in range(len(events)):
        for event in dict.fromkeys([*others[:1], *others[at : at + 2], *others[-1:]]):
            yield b"".join([*events[:at], event, *events[at:]])


def replace(events: Events, other: Events) -> Iterator[bytes]:
    """An event of another request comes instead of one."""
    for at, event in enumerate(other[: len(events)]):
        yield b"".join([*events[:at], event, *events[at + 1 :]])


def go_over(events: Events, other: Events) -> Iterator[bytes]:
    """The stream goes on as another request's."""
    for at in range(1, min(len(events), len(other))):
        yield b"".join(events[:at] + other[at:])


def end(events: Events, _: Events) -> Iterator[bytes]:
    """The body ends after some events, with ``[DONE]`` and without."""
    for at in range(len(events)):
        yield b"".join(events[:at])
        yield b"".join([*events[:at], DONE])


def cut(events: Events, _: Events) -> Iterator[bytes]:
    """The body ends within an event."""
    for at, event in enumerate(events):
        for size in (7, len(event) // 2, len(event) - 1):
            yield b"".join(events[:at]) + event[:size]


def html(events: Events, _: Events) -> Iterator[bytes]:
    """An error page comes after some events, instead of the others or between them."""
    for at in range(len(events)):
        yield b"".join(events[:at]) + HTML
        yield b"".join(events[:at]) + HTML + b"".join(events[at:])


def line_feeds(events: Events, _: Events) -> Iterator[bytes]:
    """Blank lines between events are lost: all of them, and each by itself."""
    body = b"".join(events)
    yield body.replace(b"\n\n", b"\n")
    for at in range(len(events)):
        yield b"".join(events[:at]) + events[at][:-1] + b"".join(events[at + 1 :])


def field_of(name: str) -> Kind:
    """A field holds what it holds in a neighbour, or in another request's event."""

    def kind(events: Events, other: Events) -> Iterator[bytes]:
        chunks = _chunks(events)
        others = _chunks(other)
        for at, event in enumerate(chunks):
            for source in dict.fromkeys([*chunks[max(at - 1, 0) : at + 2], *others[at : at + 1]]):
                damaged = _with(event, source, name)
                if damaged != event:
                    yield b"".join([*chunks[:at], damaged, *chunks[at + 1 :], *events[len(chunks) :]])

    kind.__doc__ = f"``{name}`` of another event."
    return kind


KINDS: dict[str, Kind] = {
    "an event is lost": drop,
    "two events are lost": drop_run,
    "an event comes twice": double,
    "an event comes again later": repeat,
    "the stream begins again": repeat_all,
    "two events change places": swap,
    "an event comes after the end": late,
    "an event of another request between": insert,
    "an event of another request instead": replace,
    "the stream goes on as another request's": go_over,
    "the body ends early": end,
    "the body is cut within an event": cut,
    "a page of HTML comes between": html,
    "blank lines are lost": line_feeds,
    "`meta_info` of another event": field_of("meta_info"),
    "`index` of another output": field_of("index"),
    **{f"`{name}` of another event": field_of(name) for name in _FIELDS},
    "`output_token_logprobs` of another event": field_of("output_token_logprobs"),
    "`output_ids` of another event": field_of("output_ids"),
    "`text` of another event": field_of("text"),
}


def _chunks(events: Events) -> Events:
    return [event for event in events if event.startswith(b"data: {")]


def _with(event: bytes, source: bytes, name: str) -> bytes:
    """The event with a field of another one, written as SGLang writes it."""
    mine, other = json.loads(event[6:]), json.loads(source[6:])
    inner = name not in ("text", "output_ids", "meta_info", "index")
    into: dict[str, Any] = mine["meta_info"] if inner else mine
    of: dict[str, Any] = other["meta_info"] if inner else other
    if name not in into or name not in of or into[name] == of[name]:
        return event
    into[name] = of[name]
    return b"data: " + json.dumps(mine, ensure_ascii=False, separators=(",", ":")).encode() + b"\n\n"
