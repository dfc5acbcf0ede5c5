"""Server-sent events: bytes of a response body in, dispatched events out.

The norm is the WHATWG HTML standard, section 9.2 "Server-sent events"; its sentences stand in quotation marks over the
lines that carry them out.  This module must not know who sends the bytes, what a payload means, or that SGLang exists.

Theory of operation
-------------------
Between two ``feed`` calls the parser is in one phase, which says where in a line the next byte falls::

    phase      the next byte is                      on a line end    on other bytes
    ---------  ------------------------------------  ---------------  ------------------------------------------
    START      the first of the stream               LINE             START while it may be a BOM, else as LINE
    LINE       the first of a line                   LINE             NAME, DATA, VALUE or SKIP
    AFTER_CR   the first of a line; a LF is dropped  LINE             as LINE
    NAME       in a field name, kept in ``_head``    LINE             as LINE, with ``_head`` put before it
    DATA       in the value of a ``data`` line       LINE             DATA
    VALUE      in another value, kept in ``_value``  LINE             VALUE
    SKIP       in a line that cannot matter          LINE             SKIP
    CLOSED     refused: ``close`` was called
    TOO_LARGE  refused: an event broke ``max_event_size``
    BROKEN     refused: ``on_comment`` raised (or called the parser)

``reset`` leads from each of them to START.  A read whose last byte is a CR ends in AFTER_CR instead of LINE.

Speed comes from three things.  A read with a CR in it is rewritten to LF line ends first, so that there is one line end
to look for, with a ``find`` of one byte (memchr).  A value that spans reads is kept in pieces and joined once, and no
byte is looked at twice.  Many small events in one read, all of one shape, are taken by a few calls (``sse_bulk``).
"""

from __future__ import annotations

import re
from collections.abc import Callable
from enum import Enum

from ..errors import EventTooLargeError
from .buffer import MANY_PIECES, EventBuffer
from .bulk import take_named_events, take_plain_events
from .event import ServerSentEvent, make_event
from .lines import BOM, CR, LF, LONGEST_NAME, NAMES, UNDECIDED, WORTH_A_VIEW, as_bytes, end_of, split_line

__all__ = ["MAX_RETRY_DIGITS", "SSEParser", "ServerSentEvent"]

MAX_RETRY_DIGITS = 640
"""Longest ``retry`` number that is taken: what ``int`` reads in any process (``sys.set_int_max_str_digits``).  A longer
one is no time that a clock can wait for; reading it would cost quadratic time."""

_STRAY = re.compile(rb"^(?!(?:data|event|id|retry)(?::|$)|:|$)", re.MULTILINE)
_LINE_END = re.compile(rb"\r\n|\r|\n")
_SHOWN = 80
_WINDOW = 2**16
"""Bytes whose lines are made into a list at a time; it may take 20 times as much while it is there."""


class _Phase(Enum):
    START = "start"
    LINE = "line"
    AFTER_CR = "after CR"
    NAME = "name"
    DATA = "data"
    VALUE = "value"
    SKIP = "skip"
    CLOSED = "closed"
    TOO_LARGE = "too large"
    BROKEN = "broken"


_LINE = _Phase.LINE  # members of an Enum are slow to look up, and each read asks for these two
_DATA = _Phase.DATA


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
        exception leaves ``feed``, the events that this read had completed are lost, and the parser refuses every call
        until ``reset``.
    :raises ValueError: ``max_event_size`` is no positive whole number, or ``last_event_id`` no string.
    """

    __slots__ = (
        "_buffer",
        "_field",
        "_head",
        "_last_event_id",
        "_on_comment",
        "_phase",
        "_reconnection_time",
        "_refusal",
        "_stray_is_open",
        "_stray_seen",
        "_value",
        "stray",
    )

    _phase: _Phase
    _refusal: str
    _head: bytes
    _field: bytes
    _value: bytearray

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
        #: The first line that no event stream has, ignored as the norm says: how many bytes before the end of what was
        #: fed it began, when the read was fed in which it began, and its first 80 bytes.
        self.stray: tuple[int, bytes] | None = None
        self._stray_seen = False
        self._stray_is_open = False
        self._drop(_Phase.START)

    @property
    def last_event_id(self) -> str:
        """The last event ID, to be sent as ``Last-Event-ID`` when reconnecting; set when an event is complete."""
        return self._last_event_id

    @property
    def is_between_events(self) -> bool:
        """Nothing of an event has been received yet: what comes next is the start of a line and of an event."""
        return self._phase is _LINE and self._buffer.fresh

    @property
    def error(self) -> EventTooLargeError | None:
        """What the next call will raise: set by the call that returned the events before an event too large."""
        return EventTooLargeError(self._refusal) if self._phase is _Phase.TOO_LARGE else None

    @property
    def reconnection_time(self) -> int | None:
        """Milliseconds to wait before reconnecting, from the last valid ``retry`` line; None if there was none."""
        return self._reconnection_time

    @property
    def unfinished_data(self) -> bytes:
        """The data lines so far of an event that has not ended."""
        return self._buffer.data_so_far()

    def reset(self) -> None:
        """Begin with a new stream, as after a reconnection, in whatever state; an unfinished event is dropped.

        ``last_event_id`` and ``reconnection_time`` stay: they belong to the source, not to one response.
        """
        self._drop(_Phase.START)

    def close(self) -> bool:
        """Say that the input has ended.  Until ``reset``, ``feed`` is an error.

        :returns: True if an event was unfinished and is dropped: "If the file ends in the middle of an event, before
            the final empty line, the incomplete event is not dispatched."  False if the input ended between events,
            and on a second call.
        :raises EventTooLargeError: if an event was larger than ``max_event_size``.
        """
        if self._phase is _Phase.TOO_LARGE:
            raise EventTooLargeError(self._refusal)
        unfinished = not self._buffer.fresh
        if self._phase is _Phase.VALUE:
            unfinished = unfinished or self._field in (b"event", b"id")
        elif self._phase is _Phase.NAME:
            unfinished = unfinished or self._head[0] in b"dei"
        self._drop(_Phase.CLOSED, "feed() after close(): the input had ended; call reset() to parse another stream")
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
        phase = self._phase
        buffer = self._buffer
        end = data.find(LF) if phase is _DATA else 0
        if end < 0 and CR not in data:
            # One more piece of a large event, and no bound to look at: what _continue_line does, without its cost.
            held = buffer.held + len(data)
            if held <= buffer.easy_size and len(buffer.pieces) < MANY_PIECES:
                buffer.held = held
                buffer.pieces.append(data)
                return []
        events: list[ServerSentEvent] = []
        entered, pos = data, 0
        try:
            if phase is not _LINE and phase is not _DATA:
                data = self._enter(data)
                if not data:
                    return events
                phase = self._phase
                entered = data
            ends_in_cr = False
            if CR in data:
                # "CRLF character pairs, single LF characters [not preceded by CR], and single CR characters [not
                # followed by LF]": a CR ends its line at once, and a LF that opens the next read is dropped.
                ends_in_cr = data[-1] == CR
                data = data.replace(b"\r\n", b"\n").replace(b"\r", b"\n")
                end = data.find(LF)
            elif (
                phase is _LINE
                and data.find(LF) == len(data) - 2
                and data[:6] == b"data: "
                and data[-1] == LF
                and buffer.fresh
                and len(data) <= buffer.max_size
            ):  # a plain event and nothing else, as from a server that writes them one by one: half the time
                events.append(make_event(("message", data[6:-2], self._last_event_id)))
                return events
            if phase is _DATA and end >= 0 and data[end + 1 : end + 2] == b"\n":
                # The usual end of an event that an earlier read began; what follows would do it, by more calls.
                value = buffer.end_plain(memoryview(data)[:end] if end > WORTH_A_VIEW else data[:end])
                if value is not None:
                    self._phase = phase = _LINE
                    events.append(make_event(("message", value, self._last_event_id)))
                    pos = end + 2
            if phase is not _LINE:
                pos = self._continue_line(data)
                if not pos:
                    return events
            first = pos
            if not buffer.fresh and data[pos : pos + 1] == b"\n":
                self._dispatch(events)
                pos += 1
            if buffer.fresh and len(data) <= buffer.max_size:
                start = data[pos : pos + 6]
                if start == b"data: ":
                    pos, has_end = take_plain_events(data, pos, self._last_event_id, events)
                    if not has_end and data[pos : pos + 6] == b"data: ":
                        self._phase = _DATA
                        pos += 6
                        buffer.start_data(data[pos:] if len(data) < WORTH_A_VIEW else end_of(data, pos))
                        return events
                elif start == b"event:":
                    pos = take_named_events(data, pos, self._last_event_id, events)
            if pos < len(data):
                self._take_lines(data, pos, events)
            if self._stray_seen and self.stray is None:
                self._find_stray(entered, data, first)
            if ends_in_cr:
                self._phase = _Phase.AFTER_CR
        except EventTooLargeError as error:
            if phase is _Phase.TOO_LARGE or self._phase is _Phase.BROKEN:
                raise
            self._drop(_Phase.TOO_LARGE, str(error))
            if not events:
                raise
        return events

    def _enter(self, data: bytes) -> bytes:
        """What is left to parse of ``data`` in the phases in which its first bytes are special."""
        phase = self._phase
        if phase is _Phase.NAME:
            self._phase = _LINE
            return self._head + data
        if phase is _Phase.AFTER_CR:
            if data:
                self._phase = _LINE
            return data[1:] if data[:1] == b"\n" else data
        if phase is _Phase.START:
            # "If the byte order mark is present, strip it": one, and it may come in pieces.
            data = self._head + data
            if len(data) < len(BOM) and BOM.startswith(data):
                self._head = data
                return b""
            self._phase = _LINE
            return data.removeprefix(BOM)
        if phase is _Phase.TOO_LARGE:
            raise EventTooLargeError(self._refusal)
        if phase in (_Phase.CLOSED, _Phase.BROKEN):
            raise ValueError(self._refusal)
        return data

    def _continue_line(self, data: bytes) -> int:
        """Process the rest of a line that an earlier read began: the position after its end, or 0 if it goes on."""
        end = data.find(LF)
        phase = self._phase
        if phase is _DATA:
            self._buffer.add_data(data if end < 0 else data[:end])
        elif phase is _Phase.VALUE:
            part = data if end < 0 else data[:end]
            self._buffer.hold(self._field, len(part))
            self._value += part
        elif self._stray_is_open and self.stray is not None:
            from_end, line = self.stray
            self.stray = from_end, (line + (data if end < 0 else data[:end]))[:_SHOWN]
        if end < 0:
            return 0
        self._phase = _LINE
        self._stray_is_open = False
        if phase is _Phase.VALUE:
            value = bytes(self._value)
            self._value = bytearray()
            self._buffer.held -= len(value)  # as _take counts the whole of it
            self._take(self._field, value)
        return end + 1

    def _dispatch(self, events: list[ServerSentEvent]) -> None:
        """Carry out the blank line after a data, event or id line."""
        buffer = self._buffer
        # "Set the last event ID string of the event source to the value of the last event ID buffer."
        if buffer.new_id is not None:
            self._last_event_id = buffer.new_id.decode("utf-8", "replace")
            buffer.new_id = None
        event_type = "message"
        if buffer.event_type:
            event_type = buffer.event_type.decode("utf-8", "replace")
            buffer.event_type = b""
        data = buffer.take_data()
        buffer.held = 0
        buffer.fresh = True
        # "If the data buffer is an empty string, set the data buffer and the event type buffer to the empty string and
        # return."  (An empty data line makes it a LF: an event with empty data.)
        if data is not None:
            events.append(make_event((event_type, data, self._last_event_id)))

    def _take_lines(self, data: bytes, pos: int, events: list[ServerSentEvent]) -> None:
        """Process whatever comes from the line start ``pos`` on."""
        size = len(data)
        buffer = self._buffer
        while (end := data.find(LF, pos)) >= 0:
            stop = size
            if size - pos > _WINDOW:
                stop = data.rfind(LF, pos, pos + _WINDOW) + 1
                if not stop:  # one line fills the window: no list, no second copy
                    field, start = split_line(data, pos, end)
                    self._take(field, data[start:end])
                    pos = end + 1
                    continue
            lines = data[pos:stop].split(b"\n")
            pos = stop - len(lines.pop())
            for line in lines:
                if line[:6] == b"data: ":
                    buffer.begin_data()
                    buffer.add_data(line[6:])
                elif line:
                    field, _, value = line.partition(b":")
                    self._take(field, value[1:] if value[:1] == b" " else value)
                elif not buffer.fresh:
                    self._dispatch(events)
        if pos < size:
            self._begin_line(data, pos)

    def _begin_line(self, data: bytes, pos: int) -> None:
        """Keep what has to be kept of the line at ``pos``, which ``data`` does not end."""
        start = data[pos : pos + LONGEST_NAME + 2]
        if start in UNDECIDED or (start == b":" and self._on_comment is not None):
            self._phase = _Phase.NAME
            self._head = start
            return
        field, pos = split_line(data, pos, len(data))
        if field == b"data":
            self._phase = _DATA
            self._buffer.begin_data()
            self._buffer.add_data(end_of(data, pos))
        elif field in NAMES or (field == b"" and self._on_comment is not None):
            self._phase = _Phase.VALUE
            self._field = field
            self._buffer.hold(field, len(data) - pos)
            self._value = bytearray(memoryview(data)[pos:])
        else:
            self._phase = _Phase.SKIP
            self._stray_seen = self._stray_seen or field != b""

    def _take(self, field: bytes, value: bytes) -> None:
        """Carry out one whole line, which is not blank."""
        buffer = self._buffer
        if field == b"event":
            buffer.set_type(value)
        elif field == b"data":
            buffer.begin_data()
            buffer.add_data(value)
        elif field == b"id":
            # "If the field value does not contain U+0000 NULL, then set the last event ID buffer to the field value."
            buffer.check(field, len(value))
            if 0 not in value:
                buffer.set_id(value)
        elif field == b"retry":
            buffer.check(field, len(value))
            # "If the field value consists of only ASCII digits, then interpret the field value as an integer in base
            # ten, and set the event stream's reconnection time to that integer."
            if value.isdigit() and len(digits := value.lstrip(b"0")) <= MAX_RETRY_DIGITS:
                self._reconnection_time = int(digits or b"0")
        elif field == b"" and self._on_comment is not None:
            buffer.check(field, len(value))
            self._phase = _Phase.BROKEN
            self._refusal = "on_comment raised, or called the parser, and events were lost; call reset() to start again"
            self._on_comment(value.decode("utf-8", "replace"))
            self._phase = _LINE
        elif field != b"":
            self._stray_seen = True  # "Otherwise: the field is ignored."

    def _find_stray(self, entered: bytes, data: bytes, first: int) -> None:
        """Note the first line from ``first`` on that is none of an event stream; ``data`` is ``entered`` with LF."""
        found = _STRAY.search(data, first)
        if found is None:
            return
        start = found.start()
        if data is not entered and (lines := data.count(b"\n", 0, start)):
            ends = _LINE_END.finditer(entered)
            start = [next(ends).end() for _ in range(lines)][-1]
        line, end, _ = data[found.start() : found.start() + _SHOWN].partition(b"\n")
        self.stray = len(entered) - start, line
        self._stray_is_open = not end and self._phase is _Phase.SKIP

    def _drop(self, phase: _Phase, refusal: str = "") -> None:
        """Go to ``phase`` and forget what belongs to an event or a line."""
        self._phase = phase
        self._refusal = refusal
        self._head = b""
        self._field = b""
        self._value = bytearray()
        self._buffer.clear()
