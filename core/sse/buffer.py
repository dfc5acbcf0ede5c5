"""What has arrived of one server-sent event, within a bound of bytes.

It must not know how lines are found, or what belongs to the source of the stream rather than to one event.

Two needs pull in opposite directions.  An event of 100 kB that comes in a few large reads should be copied once, so its
pieces are kept in a list as they are, and joined at its end.  But a list costs some 40 bytes for each piece, and the
join twice the memory: pieces that are many, or large together, move to a BytesIO.  Both ways are linear.
"""

from __future__ import annotations

from io import BytesIO

from ..errors import EventTooLargeError

MANY_PIECES = 1024
LARGE_EVENT = 2**20
"""Bytes of an event; below, joining a list takes a third less time than a BytesIO, and its copy is small."""


class EventBuffer:
    """The data, event type and ID of an event that is not complete.

    :ivar fresh: nothing of an event has come since the last one was taken out.
    :ivar held: bytes held for the event, as bounded by ``max_size``: the data with one byte for each line end in it,
        the event type, the ID, and what has come of the value of an unfinished line.
    :ivar easy_size: up to this size of the event, pieces can be added without a look at any bound but ``MANY_PIECES``.
    :ivar pieces: the data, or its end if ``spilled`` holds the rest.
    """

    __slots__ = ("easy_size", "event_type", "fresh", "held", "max_size", "new_id", "pieces", "spilled")

    easy_size: int
    event_type: bytes
    fresh: bool
    held: int
    max_size: int
    pieces: list[bytes | memoryview]
    spilled: BytesIO | None
    new_id: bytes | None

    def __init__(self, max_size: int) -> None:
        self.max_size = max_size
        self.clear()

    def clear(self) -> None:
        """Forget the event."""
        self.fresh = True
        self.held = 0
        self.easy_size = min(self.max_size, LARGE_EVENT)
        self.pieces = []
        self.spilled = None
        self.event_type = b""
        self.new_id = None

    def check(self, field: bytes, size: int) -> None:
        """Ask whether ``size`` bytes more could be held.

        :raises EventTooLargeError: if they are too many; ``field`` is where they are (b"": a comment).
        """
        if self.held + size > self.max_size:
            self.refuse(field)

    def hold(self, field: bytes, size: int) -> None:
        """Count ``size`` bytes more, or raise as :meth:`check` does."""
        self.held += size
        if self.held > self.max_size:
            self.refuse(field)

    def refuse(self, field: bytes) -> None:
        """Raise the error of an event that is too large because of ``field`` (b"": a comment)."""
        place = f"its {field.decode()!r} field" if field else "a comment"
        raise EventTooLargeError(
            f"an event is larger than max_event_size={self.max_size} bytes, which {place} goes beyond; "
            "raise max_event_size if such events are to be expected"
        )

    def begin_data(self) -> None:
        """Begin one more data line."""
        self.fresh = False
        if self.pieces or self.spilled is not None:
            self.hold(b"data", 1)
            self.pieces.append(b"\n")

    def start_data(self, piece: bytes | memoryview) -> None:
        """Begin an event by what has come of its first data line, which is known not to be too large."""
        self.fresh = False
        self.held = len(piece)
        self.pieces.append(piece)

    def end_plain(self, piece: bytes | memoryview) -> bytes | None:
        """Take out the data, of which ``piece`` is the end, and be done with the event.

        :returns: None, and nothing has changed, if there is more to look at: a type, an ID, or a bound.
        """
        if (
            self.event_type
            or self.new_id is not None
            or self.spilled is not None
            or self.held + len(piece) > self.easy_size
        ):
            return None
        pieces = self.pieces
        pieces.append(piece)
        self.pieces = []
        self.held = 0
        self.fresh = True
        return b"".join(pieces)

    def add_data(self, piece: bytes | memoryview) -> None:
        """Add to the data line that was begun; a view must be of immutable bytes."""
        held = self.held = self.held + len(piece)
        self.pieces.append(piece)
        if held > self.easy_size or len(self.pieces) > MANY_PIECES:
            if held > self.max_size:
                self.refuse(b"data")
            self._spill()

    def _spill(self) -> None:
        """Move the pieces to where they take only their own bytes."""
        if self.spilled is None:
            self.spilled = BytesIO()
        self.spilled.writelines(self.pieces)
        self.pieces = []
        self.easy_size = min(self.max_size, self.held + LARGE_EVENT)

    def set_type(self, value: bytes) -> None:
        """Take the value of an event line; the last one counts."""
        self.check(b"event", len(value))
        self.held += len(value) - len(self.event_type)
        self.event_type = value
        self.fresh = False

    def set_id(self, value: bytes) -> None:
        """Take the value, checked, of an id line; the last one counts."""
        self.held += len(value) - len(self.new_id or b"")
        self.new_id = value
        self.fresh = False

    def data_so_far(self) -> bytes:
        """The data, joined, which stays where it is."""
        spilled = b"" if self.spilled is None else self.spilled.getvalue()
        return b"".join([spilled, *self.pieces])

    def take_data(self) -> bytes | None:
        """Take out the data, joined; None if there was no data line."""
        if self.spilled is not None:
            self._spill()
            data = self.spilled.getvalue()  # the BytesIO's own buffer, not a copy of it
            self.spilled = None
            self.easy_size = min(self.max_size, LARGE_EVENT)
            return data
        if not self.pieces:
            return None
        data = b"".join(self.pieces)
        self.pieces = []
        return data
