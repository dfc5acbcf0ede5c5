"""Server-sent events: bytes of a response body in, dispatched events out.

The norm is the WHATWG HTML standard, section 9.2 "Server-sent events"; its sentences stand in quotation marks over the
lines that carry them out.  This module must not know who sends the bytes, what a payload means, or that SGLang exists.

Theory of operation
-------------------
A read with a CR in it is rewritten to LF line ends first, so that there is one line end to look for, with a ``find`` of
one byte (memchr).  Between two ``feed`` calls the parser is at one of four places:

- at the start of the stream (``_at_start``), where a byte order mark may come, perhaps in pieces (``_head``);
- at the start of a line; after a CR (``_after_cr``) a LF is dropped first;
- in a line whose field is not known yet: its bytes, seven at most, are kept in ``_head`` and put before the next read;
- in a value, of the field ``_field``: what comes of a data line goes to the buffer of the event, what comes of another
  known field to ``_value``, and the rest is dropped.

A value that spans reads is kept in pieces and joined once, and no byte is looked at twice.  ``_refusal`` is what every
``feed`` raises until ``reset``.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NoReturn

from ..errors import EventTooLargeError
from .buffer import EventBuffer
from .event import ServerSentEvent, make_event, take_plain_events
from .lines import BOM, CR, LF, LONGEST_NAME, NAMES, UNDECIDED, as_bytes, retry_time, split_line
from .stray import StrayLine

_IGNORED = b"?"
"""Stands for the name of a field that nothing is done with."""


class SSEParser:
    """Parses one event stream, however its bytes are cut into reads.

    The size of an event, which ``max_event_size`` bounds, is what the parser has to hold for it: its data (with one
    byte for each line end in it), its event type and ID, and the value of the line that is still arriving.  Field
    names, the space after the colon, comments and unknown fields are neither counted nor held.  A size equal to the
    bound is allowed.

    :param last_event_id: the last event ID to begin with, as after a reconnection.
    :param max_event_size: bound in bytes, 256 MiB unless given.
    :param on_comment: called with the text of each comment line, without the colon and one space after it, as soon as
        the line has ended and before the events of that read are returned.  Without it comments are dropped as they
        arrive; with it they count against the bound until they end.  It must not call the parser.  If it raises, the
        exception leaves ``feed``, the events that this read had completed are lost, and the parser refuses to go on
        until ``reset``.
    :raises ValueError: ``max_event_size`` is no positive whole number, or ``last_event_id`` no string.
    """

    __slots__ = (
        "_after_cr",
        "_at_start",
        "_buffer",
        "_field",
        "_head",
        "_last_event_id",
        "_on_comment",
        "_reconnection_time",
        "_refusal",
        "_stray",
        "_value",
    )

    def __init__(
        self,
        *,
        last_event_id: str = "",
        max_event_size: int = 256 * 2**20,
        on_comment: Callable[[str], None] | None = None,
    ) -> None:
        if type(max_event_size) is not int or max_event_size <= 0:
            raise ValueError(f"max_event_size must be a positive whole number of bytes, not {max_event_size!r}")
        if type(last_event_id) is not str:
            raise ValueError(f"last_event_id must be a string, not {type(last_event_id).__name__}")
        self._last_event_id = last_event_id
        self._reconnection_time: int | None = None
        self._on_comment = on_comment
        self._buffer = EventBuffer(max_event_size)
        self._stray = StrayLine()
        self.reset()

    def _drop(self, refusal: ValueError | None) -> None:
        """Forget what belongs to an event, a line or a stream; ``refusal`` is what to raise from now on."""
        self._refusal: ValueError | None = refusal
        self._at_start: bool = True
        self._after_cr: bool = False
        self._head: bytes = b""
        self._field: bytes | None = None
        self._value: bytearray = bytearray()
        self._buffer.clear()

    @property
    def last_event_id(self) -> str:
        """The last event ID, to be sent as ``Last-Event-ID`` when reconnecting; set when an event is complete."""
        return self._last_event_id

    @property
    def is_between_events(self) -> bool:
        """Nothing of an event has been received yet: what comes next is the start of a line and of an event."""
        return self._field is None and not (self._head or self._after_cr or self._at_start) and self._buffer.fresh

    @property
    def error(self) -> EventTooLargeError | None:
        """What the next call will raise: set by the call that returned the events before an event too large."""
        return self._refusal if isinstance(self._refusal, EventTooLargeError) else None

    @property
    def reconnection_time(self) -> int | None:
        """Milliseconds to wait before reconnecting, from the last valid ``retry`` line; None if there was none."""
        return self._reconnection_time

    @property
    def unfinished_data(self) -> bytes:
        """The data lines so far of an event that has not ended."""
        return self._buffer.data() or b""

    @property
    def stray(self) -> tuple[int, bytes] | None:
        """The first line that no event stream has: see :class:`~ssefold.sse.stray.StrayLine`."""
        return self._stray.found

    def reset(self) -> None:
        """Begin with a new stream, as after a reconnection, in whatever state; an unfinished event is dropped.

        ``last_event_id`` and ``reconnection_time`` stay: they belong to the source, not to one response.
        """
        self._drop(None)

    def close(self) -> bool:
        """Say that the input has ended.  Until ``reset``, ``feed`` is an error.

        :returns: True if an event was unfinished and is dropped: "If the file ends in the middle of an event, before
            the final empty line, the incomplete event is not dispatched."  False if the input ended between events,
            and on a second call.
        :raises EventTooLargeError: if an event was larger than ``max_event_size``.
        """
        if isinstance(self._refusal, EventTooLargeError):
            _refuse(self._refusal)
        unfinished = not self._buffer.fresh or self._field in (b"event", b"id") or self._head[:1] in (b"d", b"e", b"i")
        self._drop(ValueError("feed() after close(): the input had ended; call reset() to parse another stream"))
        return unfinished

    def feed(self, data: bytes | bytearray | memoryview) -> list[ServerSentEvent]:
        """Parse the next bytes of the stream, and return each event whose final blank line is among them.

        Linear in the bytes, whatever the cut.  The bytes of a mutable buffer are copied, so that it can be used again.

        :param data: the next bytes as they came; a memoryview may have any format and shape, its raw bytes count.
        :returns: the events in order; often none.
        :raises EventTooLargeError: if an event is larger than ``max_event_size``.  Events before it are never lost: a
            call that has some returns them, and the next call raises.  Then every call does, until ``reset``.
        :raises ValueError: after ``close``, or after ``on_comment`` raised, until ``reset``.
        :raises TypeError: if ``data`` is of another type, such as str.
        """
        if type(data) is not bytes:
            data = as_bytes(data)
        if self._refusal is not None:
            _refuse(self._refusal)
        is_plain = data.find(LF) == len(data) - 2 and data[:6] == b"data: " and data[-1] == LF and CR not in data
        if is_plain and self.is_between_events and len(data) <= self._buffer.max_size:
            # One event and nothing else, as from a server that writes them one by one: half the time.
            return [make_event(("message", data[6:-2], self._last_event_id))]
        events: list[ServerSentEvent] = []
        try:
            self._parse(data, events)
        except EventTooLargeError as error:
            if self._refusal is not None:  # on_comment raised it
                raise
            self._drop(EventTooLargeError(str(error)))
            if not events:
                raise
        return events

    def _parse(self, data: bytes, events: list[ServerSentEvent]) -> None:
        if self._head:
            data = self._head + data
            self._head = b""
        if self._at_start:
            # "If the byte order mark is present, strip it": one, and it may come in pieces.
            if len(data) < len(BOM) and BOM.startswith(data):
                self._head = data
                return
            self._at_start = False
            data = data.removeprefix(BOM)
        # "CRLF character pairs, single LF characters [not preceded by CR], and single CR characters [not followed by
        # LF]": a CR ends its line at once, and a LF that opens the next read is dropped.
        if self._after_cr and data:
            self._after_cr = False
            data = data.removeprefix(b"\n")
        read = data
        if CR in data:
            self._after_cr = data[-1] == CR
            data = data.replace(b"\r\n", b"\n").replace(b"\r", b"\n")
        pos = 0
        buffer = self._buffer
        if self._field is not None:
            end = data.find(LF)
            self._add(self._field, data if end < 0 else data[:end])
            if end < 0:
                return
            self._end_line()
            pos = end + 1
            if data[pos : pos + 1] == b"\n":
                self._dispatch(events)
                pos += 1
        may_be_plain = len(data) <= buffer.max_size
        while True:
            if may_be_plain and buffer.fresh:
                pos = take_plain_events(data, pos, self._last_event_id, events)
            end = data.find(LF, pos)
            if end < 0:
                break
            if end == pos:
                if not buffer.fresh:
                    self._dispatch(events)
            else:
                self._begin_line(read, data, pos, end)
                self._end_line()
            pos = end + 1
        start = data[pos : pos + LONGEST_NAME + 2]
        if start in UNDECIDED or (start == b":" and self._on_comment is not None):
            self._head = start
        elif start:
            self._begin_line(read, data, pos, len(data))

    def _begin_line(self, read: bytes, data: bytes, pos: int, end: int) -> None:
        """Take what there is of the line from ``pos`` to ``end``; ``data`` is ``read`` with LF line ends."""
        if data[pos : pos + 6] == b"data: ":  # as nearly all are
            field, start = b"data", pos + 6
        else:
            field, start = split_line(data, pos, end)
        if field == b"data":
            self._buffer.begin_data()
        elif field not in NAMES and (field or self._on_comment is None):
            # "Otherwise: the field is ignored."
            if field:
                self._stray.begin(read, data, pos, is_open=end == len(data))
            self._field = _IGNORED
            return
        self._field = field
        self._add(field, data[start:end])

    def _add(self, field: bytes, piece: bytes) -> None:
        """Take what has come of the value of the line."""
        if field == b"data":
            self._buffer.add_data(piece)
        elif field == _IGNORED:
            self._stray.add(piece)
        else:
            self._buffer.hold(field, len(piece))
            self._value += piece

    def _end_line(self) -> None:
        """Carry out the line, which is not blank; the data of a data line is in the buffer already."""
        field = self._field
        self._field = None
        if field == b"data":
            return
        if field == _IGNORED:
            self._stray.is_open = False
            return
        buffer = self._buffer
        value = bytes(self._value)
        self._value = bytearray()
        if field == b"event":
            buffer.set_type(value)
            return
        # "If the field value does not contain U+0000 NULL, then set the last event ID buffer to the field value."
        if field == b"id" and 0 not in value:
            buffer.set_id(value)
            return
        buffer.held -= len(value)
        if field == b"retry":
            milliseconds = retry_time(value)
            if milliseconds is not None:
                self._reconnection_time = milliseconds
        elif field == b"" and self._on_comment is not None:
            self._refusal = ValueError(
                "on_comment raised, or called the parser, and events were lost; call reset() to begin anew"
            )
            self._on_comment(value.decode("utf-8", "replace"))
            self._refusal = None

    def _dispatch(self, events: list[ServerSentEvent]) -> None:
        """Carry out the blank line after a data, event or id line."""
        buffer = self._buffer
        # "Set the last event ID string of the event source to the value of the last event ID buffer."
        if buffer.new_id is not None:
            self._last_event_id = buffer.new_id.decode("utf-8", "replace")
        # "If the data buffer is an empty string, set the data buffer and the event type buffer to the empty string and
        # return."  (An empty data line makes it a LF: an event with empty data.)
        data = buffer.data()
        if data is not None:
            event_type = buffer.event_type.decode("utf-8", "replace") if buffer.event_type else "message"
            events.append(make_event((event_type, data, self._last_event_id)))
        buffer.clear()


def _refuse(refusal: ValueError) -> NoReturn:
    """Raise it anew: one exception that is raised again and again would collect tracebacks."""
    raise type(refusal)(*refusal.args)
