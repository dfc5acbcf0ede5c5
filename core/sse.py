"""Server-sent events: bytes of a response body in, dispatched events out.

The norm is the WHATWG HTML standard, section 9.2 "Server-sent events"; sentences of it stand in quotation marks over the
lines that carry them out.  This module must not know who sends the bytes, what a payload means, or that SGLang exists.

Theory of operation
-------------------
Between two ``feed`` calls the parser is in one phase, which says where in a line the next byte falls::

    phase      the next byte is                      on a line end    on other bytes
    ---------  ------------------------------------  ---------------  ------------------------------------------
    START      the first of the stream (BOM?)        AFTER_CR / LINE  START while it may be a BOM, else as LINE
    LINE       the first of a line                   LINE             NAME, DATA, VALUE or SKIP
    AFTER_CR   the first of a line; a LF is dropped  LINE             as LINE
    NAME       in a field name, kept in ``_head``    as LINE          as LINE, with ``_head`` put before it
    DATA       in the value of a ``data`` line       LINE             DATA
    VALUE      in another value, kept in ``_value``  LINE             VALUE
    SKIP       in a line that cannot matter          LINE             SKIP
    CLOSED     refused: ``close`` was called
    TOO_LARGE  refused: an event broke ``max_event_size``
    BROKEN     refused: ``on_comment`` raised (or called the parser)

``reset`` leads from each of them to START.  A read whose last byte is a CR ends in AFTER_CR instead of LINE.

Speed comes from three things.  A read with a CR in it is rewritten to LF line ends first, so that there is one line end
to look for, with a ``find`` of one byte (memchr).  A value that spans reads is kept as fragments and joined once, and no
byte is looked at twice.  Many small events in one read, all of the shape ``data: ...``, are split by one call.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum
from io import BytesIO
from itertools import repeat

from .errors import EventTooLargeError
from .sse_event import ServerSentEvent, make_event

__all__ = ["MAX_RETRY_DIGITS", "SSEParser", "ServerSentEvent"]

MAX_RETRY_DIGITS = 640
"""Longest ``retry`` number that is taken: what ``int`` reads in any process (``sys.set_int_max_str_digits``).  A longer
one is no time that a clock can wait for; reading it would cost quadratic time."""

LF = 10
CR = 13
_BOM = b"\xef\xbb\xbf"
_NAMES = (b"data", b"event", b"id", b"retry")
_LONGEST_NAME = 5
_UNDECIDED = frozenset(name[:n] for name in _NAMES for n in range(1, len(name) + 1)) | {n + b":" for n in _NAMES}
"""Starts of a line after which it is still open which field it is, or whether a space after the colon is to go."""

_SMALL_EVENT = 512
"""First event of a read below this many bytes: try to split the whole read.  The search for ``_BETWEEN`` costs 0.5 ns a
byte more than memchr, the Python steps that it saves 300 ns an event."""
_BETWEEN = b"\n\ndata: "
_MESSAGE = repeat("message")

_MANY_PIECES = 1024
_LARGE_VALUE = 2**20
"""From so many fragments or bytes on, a value moves to a BytesIO, which needs neither 40 bytes for each fragment nor
twice the memory at the end.  Below, joining a list is faster by a third."""
_WORTH_A_VIEW = 4096
"""From here on a memoryview is cheaper than a copy of the end of a read."""


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

    The size of an event, which ``max_event_size`` bounds, is what the parser has to hold for it: its data (one byte for
    each LF between data lines included), its event type and ID, and the value of the line that is still arriving.  Field
    names, the space after the colon, line ends, comments and unknown fields are not counted and not held.  A size equal
    to the bound is allowed.

    :param last_event_id: the last event ID to begin with, as after a reconnection.
    :param max_event_size: bound in bytes, 256 MiB unless given.
    :param on_comment: called with the text of each comment line, without the colon and one space after it, as soon as
        the line ended and before the events of that read are returned.  Without it comments are dropped as they arrive;
        with it they count against the bound while they do.  It must not call the parser.  If it raises, the exception
        leaves ``feed``, the events that this read had completed are lost, and the parser refuses to go on until
        ``reset``.
    :raises ValueError: if ``max_event_size`` is not positive.
    """

    __slots__ = (
        "_data",
        "_field",
        "_fresh",
        "_head",
        "_held",
        "_id",
        "_id_size",
        "_large",
        "_last_event_id",
        "_max_event_size",
        "_on_comment",
        "_phase",
        "_reconnection_time",
        "_refusal",
        "_type",
        "_type_size",
        "_value",
    )

    def __init__(
        self,
        *,
        last_event_id: str = "",
        max_event_size: int = 256 * 2**20,
        on_comment: Callable[[str], None] | None = None,
    ) -> None:
        if max_event_size <= 0:
            raise ValueError(f"max_event_size must be a positive number of bytes, not {max_event_size}")
        self._max_event_size = max_event_size
        self._on_comment = on_comment
        self._last_event_id = last_event_id
        self._reconnection_time: int | None = None
        self.reset()

    @property
    def last_event_id(self) -> str:
        """ID of the last dispatched event, to be sent as ``Last-Event-ID`` when reconnecting."""
        return self._last_event_id

    @property
    def reconnection_time(self) -> int | None:
        """Milliseconds to wait before reconnecting, from the last valid ``retry`` line; None if there was none."""
        return self._reconnection_time

    def reset(self) -> None:
        """Begin with a new stream, as after a reconnection, from whatever phase; an unfinished event is dropped.

        ``last_event_id`` and ``reconnection_time`` stay: they belong to the source, not to one response.
        """
        self._drop(_Phase.START)
        self._refusal = ""

    def close(self) -> bool:
        """Say that the input has ended.  Until ``reset``, ``feed`` is an error.

        :returns: True if an event was unfinished and is dropped: "If the file ends in the middle of an event, before the
            final empty line, the incomplete event is not dispatched."  False if the input ended between events, and on
            a second call.
        :raises EventTooLargeError: if an event was larger than ``max_event_size``.
        """
        if self._phase is _Phase.TOO_LARGE:
            raise EventTooLargeError(self._refusal)
        dropped = not self._fresh or self._phase is _DATA
        if self._phase is _Phase.VALUE:
            dropped = dropped or self._field in (b"event", b"id")
        elif self._phase is _Phase.NAME:
            dropped = dropped or self._head[:1] in b"dei"
        self._drop(_Phase.CLOSED)
        self._refusal = "feed() after close(): the input had ended; call reset() to parse another stream"
        return dropped

    def feed(self, data: bytes | bytearray | memoryview) -> list[ServerSentEvent]:
        """Parse the next bytes of the stream, and hand out each event whose final blank line is among them.

        Linear in the bytes, whatever the cut.  The bytes of a mutable buffer are copied, so that it can be used again.

        :param data: the next bytes as they came; a memoryview may have any format and shape, its raw bytes count.
        :returns: the events in order; often none.
        :raises EventTooLargeError: if an event is larger than ``max_event_size``.  Events before it are never lost: a
            call that has some returns them, and the next call raises.  Then every call does, until ``reset``.
        :raises ValueError: after ``close``, or after ``on_comment`` raised, until ``reset``.
        :raises TypeError: if ``data`` is of another type, such as str.
        """
        if type(data) is not bytes:
            data = _as_bytes(data)
        phase = self._phase
        if phase is _DATA:
            if LF not in data and CR not in data:  # one more piece of a large event; _add_piece, without the call
                pieces = self._data
                pieces.append(data)
                held = self._held = self._held + len(data)
                if held > self._max_event_size:
                    self._refuse_size(b"data")
                if held > _LARGE_VALUE or len(pieces) > _MANY_PIECES:
                    self._spill()
                return []
        elif phase is not _LINE:
            data = self._enter(data)
            if not data:
                return []
            phase = self._phase
        ends_in_cr = False
        if CR in data:
            # "CRLF character pairs, single LF characters [not preceded by CR], and single CR characters [not followed
            # by LF]": a CR ends its line at once, and a LF that opens the next read is dropped in AFTER_CR.
            ends_in_cr = data[-1] == CR
            data = data.replace(b"\r\n", b"\n").replace(b"\r", b"\n")
        events: list[ServerSentEvent] = []
        try:
            pos = 0
            if phase is not _LINE:
                pos = self._continue_line(data)
                if not pos:
                    return events
            self._parse_lines(data, pos, events)
        except EventTooLargeError:
            if not events or self._phase is not _Phase.TOO_LARGE:
                raise
            return events
        if ends_in_cr:
            self._phase = _Phase.AFTER_CR
        return events

    def _enter(self, data: bytes) -> bytes:
        """What is left to parse of ``data`` in the phases where its first bytes are special; often all."""
        phase = self._phase
        if phase is _Phase.NAME:
            data = self._head + data
            self._phase = _LINE
        elif phase is _Phase.AFTER_CR:
            if data:
                self._phase = _LINE
                if data.startswith(b"\n"):
                    return data[1:]
        elif phase is _Phase.START:
            # "If the byte order mark is present, strip it": one, and it may come in pieces.
            data = self._head + data
            if len(data) < len(_BOM) and _BOM.startswith(data):
                self._head = data
                return b""
            self._phase = _LINE
            if data.startswith(_BOM):
                return data[len(_BOM) :]
        elif phase is _Phase.TOO_LARGE:
            raise EventTooLargeError(self._refusal)
        elif phase is _Phase.CLOSED or phase is _Phase.BROKEN:
            raise ValueError(self._refusal)
        return data

    def _parse_lines(self, data: bytes, pos: int, events: list[ServerSentEvent]) -> None:
        """Process all lines of ``data`` (which has no CR) from the line start ``pos`` on, and the start of a line at
        its end.  The shortcuts for ``data: ...`` lines are taken only in a read too short to break the size limit.
        """
        size = len(data)
        roomy = size <= self._max_event_size
        may_split = roomy
        while (end := data.find(LF, pos)) >= 0:
            if end == pos:
                if not self._fresh:
                    self._dispatch(events)
                pos += 1
            elif roomy and self._fresh and end + 1 < size and data[end + 1] == LF and data[pos : pos + 6] == b"data: ":
                if may_split and end - pos < _SMALL_EVENT and data[end + 2 : end + 8] == b"data: ":
                    may_split = False
                    parts = (data[pos:] if pos else data).split(_BETWEEN)
                    tail = parts.pop()  # the read's last event, or a part of it
                    parts[0] = parts[0][6:]
                    if LF not in b"".join(parts):  # no other line among them
                        events.extend(map(make_event, zip(_MESSAGE, parts, repeat(self._last_event_id))))
                        pos = size - len(tail) - 6
                        continue
                events.append(make_event(("message", data[pos + 6 : end], self._last_event_id)))
                pos = end + 2
            else:
                field, start = _split_line(data, pos, end)
                self._take(field, data[start:end])
                pos = end + 1
        if pos == size:
            self._phase = _LINE
        elif roomy and self._fresh and data[pos : pos + 6] == b"data: ":  # as _begin_line would do
            pos += 6
            self._fresh = False
            self._phase = _DATA
            self._held = size - pos
            self._data.append(_end_of(data, pos))
        else:
            self._begin_line(data, pos)

    def _dispatch(self, events: list[ServerSentEvent]) -> None:
        """Carry out the blank line after a block with a data, event or id line."""
        # "Set the last event ID string of the event source to the value of the last event ID buffer."
        self._last_event_id = self._id
        # "If the data buffer is an empty string, set the data buffer and the event type buffer to the empty string and
        # return." (One empty data line makes it a single LF: an event with empty data.)
        if self._data or self._large is not None:
            if self._large is None:
                data = b"".join(self._data)
            else:
                self._spill()
                data = self._large.getvalue()
                self._large = None
            events.append(make_event((self._type or "message", data, self._id)))
            self._data = []
        self._type = ""
        self._held = self._type_size = self._id_size = 0
        self._fresh = True

    def _begin_line(self, data: bytes, pos: int) -> None:
        """Keep what has to be kept of the line at ``pos``, which ``data`` does not end."""
        start = data[pos : pos + _LONGEST_NAME + 2]
        if start in _UNDECIDED or (start == b":" and self._on_comment is not None):
            self._phase = _Phase.NAME
            self._head = start
            return
        field, pos = _split_line(data, pos, len(data))
        if field == b"data":
            self._begin_data()
            self._phase = _DATA
            self._add_piece(_end_of(data, pos))
        elif field in _NAMES or (field == b"" and self._on_comment is not None):
            self._phase = _Phase.VALUE
            self._field = field
            self._grow(field, len(data) - pos)
            self._value = bytearray(memoryview(data)[pos:])
        else:
            self._phase = _Phase.SKIP

    def _continue_line(self, data: bytes) -> int:
        """Process the rest of a line that an earlier read began: the position after its end, or 0 if it goes on."""
        end = data.find(LF)
        phase = self._phase
        if phase is _DATA:
            if end > _WORTH_A_VIEW and data[end + 1 : end + 2] == b"\n":
                self._add_piece(memoryview(data)[:end])  # which is joined, and let go, at once
            else:
                self._add_piece(data[:end])
        elif phase is _Phase.VALUE:
            part = data if end < 0 else data[:end]
            self._grow(self._field, len(part))
            self._value += part
        if end < 0:
            return 0
        self._phase = _LINE
        if phase is _Phase.VALUE:
            value = bytes(self._value)
            self._value = bytearray()
            self._held -= len(value)  # as _take counts the whole of it
            self._take(self._field, value)
        return end + 1

    def _add_piece(self, piece: bytes | memoryview) -> None:
        """Add to the data line that is arriving."""
        pieces = self._data
        held = self._held = self._held + len(piece)
        if held > self._max_event_size:
            self._refuse_size(b"data")
        pieces.append(piece)
        if held > _LARGE_VALUE or len(pieces) > _MANY_PIECES:
            self._spill()

    def _take(self, field: bytes, value: bytes) -> None:
        """Carry out one whole line."""
        if field == b"data":
            self._begin_data()
            self._add_piece(value)
        elif field == b"event":
            self._grow(field, len(value))
            self._held -= self._type_size
            self._type_size = len(value)
            self._type = value.decode("utf-8", "replace")
            self._fresh = False
        elif field == b"id":
            self._grow(field, len(value))
            # "If the field value does not contain U+0000 NULL, then set the last event ID buffer to the field value."
            if b"\0" in value:
                self._held -= len(value)
            else:
                self._held -= self._id_size
                self._id_size = len(value)
                self._id = value.decode("utf-8", "replace")
                self._fresh = False
        elif field == b"retry":
            self._grow(field, len(value))
            self._held -= len(value)
            # "If the field value consists of only ASCII digits, then interpret the field value as an integer in base
            # ten, and set the event stream's reconnection time to that integer."
            if value.isdigit():
                digits = value.lstrip(b"0") or b"0"
                if len(digits) <= MAX_RETRY_DIGITS:
                    self._reconnection_time = int(digits)
        elif field == b"" and self._on_comment is not None:
            self._grow(b"", len(value))
            self._held -= len(value)
            self._phase = _Phase.BROKEN
            self._refusal = "on_comment raised or called the parser, so events were lost; call reset() to begin anew"
            self._on_comment(value.decode("utf-8", "replace"))
            self._phase = _LINE
        # "Otherwise: the field is ignored."

    def _begin_data(self) -> None:
        if self._data or self._large is not None:
            self._grow(b"data", 1)
            self._data.append(b"\n")
        self._fresh = False

    def _grow(self, field: bytes, size: int) -> None:
        """Count ``size`` more bytes for the event in progress."""
        self._held += size
        if self._held > self._max_event_size:
            self._refuse_size(field)

    def _refuse_size(self, field: bytes) -> None:
        place = f"its {field.decode()!r} field" if field else "a comment"
        self._drop(_Phase.TOO_LARGE)
        self._refusal = (
            f"an event is larger than max_event_size={self._max_event_size} bytes, which {place} goes beyond; "
            "raise max_event_size if such events are expected"
        )
        raise EventTooLargeError(self._refusal)

    def _spill(self) -> None:
        if self._large is None:
            self._large = BytesIO()
        self._large.writelines(self._data)
        self._data = []

    def _drop(self, phase: _Phase) -> None:
        """Go to ``phase`` and forget the event in progress."""
        self._phase = phase
        self._head = b""
        self._field = b""
        self._value = bytearray()
        self._data: list[bytes | memoryview] = []
        self._large: BytesIO | None = None
        self._type = ""
        self._id = self._last_event_id
        self._held = self._type_size = self._id_size = 0
        self._fresh = True


def _split_line(data: bytes, pos: int, end: int) -> tuple[bytes, int]:
    """Field name of the line from ``pos`` to ``end``, and where its value starts.

    The name is b"" for a comment and ``b"?"`` for a name too long to be known, which is not copied.
    """
    colon = data.find(b":", pos, min(end, pos + _LONGEST_NAME + 1))
    if colon < 0:
        return (data[pos:end] if end - pos <= _LONGEST_NAME else b"?"), end
    start = colon + 1
    # "If value starts with a U+0020 SPACE character, remove it from value."
    if data[start : min(start + 1, end)] == b" ":
        start += 1
    return data[pos:colon], start


def _end_of(data: bytes, pos: int) -> bytes | memoryview:
    """``data[pos:]``, without copying it where that pays.

    A view keeps the whole read alive, so it must be the larger part of it.
    """
    size = len(data) - pos
    return memoryview(data)[pos:] if size > _WORTH_A_VIEW and size > pos else data[pos:]


def _as_bytes(data: object) -> bytes:
    """The bytes of a buffer that the caller may change later."""
    if isinstance(data, memoryview):
        return data.tobytes()  # of any format and shape; bytes(view) fails for none of them, but is slower
    if isinstance(data, (bytes, bytearray)):
        return bytes(memoryview(data))
    hint = ": feed the response's bytes, undecoded" if isinstance(data, str) else ""
    raise TypeError(f"feed() takes bytes, bytearray or memoryview, not {type(data).__name__}{hint}")
