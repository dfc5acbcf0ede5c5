"""The value that the parser returns: a dispatched server-sent event.

It must not know how streams are parsed or what a payload means.

An event is a tuple, because nothing immutable is made faster: ``feed`` turns a whole read into events by one ``map``
in C.  That needs a constructor which is C all the way, so the friendly signature sits on the metaclass and
:data:`make_event` goes round it (a third less time per event than ``tuple.__new__`` called for the class).
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import repeat
from operator import itemgetter
from typing import TYPE_CHECKING, Any, cast

_SHOWN = 80
"""Bytes of data in a ``repr``; a late cumulative chunk has some 100 kB, which no log line wants."""


class _EventType(type):
    def __call__(cls, event: str = "message", data_bytes: bytes = b"", id: str = "") -> Any:
        return super().__call__((event, data_bytes, id))


class ServerSentEvent(tuple[str, bytes, str], metaclass=_EventType):
    r"""One dispatched event: immutable, hashable, comparable, picklable; unpacks as ``event, data_bytes, id``.

    :param event: the event type, ``"message"`` unless the stream said otherwise.
    :param data_bytes: the data lines joined with ``b"\n"``, as they came: not decoded, not validated.
    :param id: the last event ID when the event was dispatched; it persists from event to event.
    """

    __slots__ = ()

    if TYPE_CHECKING:

        def __new__(cls, event: str = "message", data_bytes: bytes = b"", id: str = "") -> ServerSentEvent: ...
        @property
        def event(self) -> str: ...
        @property
        def data_bytes(self) -> bytes: ...
        @property
        def id(self) -> str: ...
    else:
        event = property(itemgetter(0), doc='The event type, "message" unless the stream said otherwise.')
        data_bytes = property(itemgetter(1), doc='The data lines joined with b"\\n".')
        id = property(itemgetter(2), doc="The last event ID at dispatch.")

    @property
    def data(self) -> str:
        """``data_bytes`` decoded as UTF-8, with U+FFFD for what is not UTF-8 (decoded on each access)."""
        return self[1].decode("utf-8", "replace")

    def __repr__(self) -> str:
        event, data, last_id = self
        shown = repr(data) if len(data) <= _SHOWN else f"{data[:_SHOWN]!r}... {len(data)} bytes"
        return f"{type(self).__name__}(event={event!r}, data_bytes={shown}, id={last_id!r})"


make_event: Callable[[tuple[str, bytes, str]], ServerSentEvent] = cast(
    "Callable[[tuple[str, bytes, str]], ServerSentEvent]", type.__call__.__get__(ServerSentEvent)
)
"""``ServerSentEvent`` from one ready tuple of its three fields, without a Python frame."""

_BETWEEN = b"\n\ndata: "
_SMALL_EVENT = 512
"""First event below this many bytes: split the read.  Searching for ``_BETWEEN`` costs 0.5 ns a byte more than memchr;
the steps in Python that it saves cost 300 ns an event."""


def take_plain_events(data: bytes, pos: int, last_id: str, events: list[ServerSentEvent]) -> int:
    """Take events that are one ``data: ...`` line each and nothing else, which is what nearly all streams consist of.

    :param data: bytes with no line end but LF.
    :param pos: a line start, before which nothing of an event came.
    :returns: where the first thing begins that is something else, or is not complete.
    """
    may_split = True
    while data[pos : pos + 6] == b"data: ":
        end = data.find(b"\n", pos + 6)
        if data[end : end + 2] != b"\n\n":
            break
        if may_split and end - pos < _SMALL_EVENT and data[end + 2 : end + 8] == b"data: ":
            may_split = False
            values = data[pos + 6 :].split(_BETWEEN)
            rest = values.pop()  # the last event, perhaps a part of it, perhaps with lines after it
            if b"\n" not in b"".join(values):  # each is one line
                events.extend(map(make_event, zip(repeat("message"), values, repeat(last_id))))
                pos = len(data) - len(rest) - 6
                continue
        events.append(make_event(("message", data[pos + 6 : end], last_id)))
        pos = end + 2
    return pos
