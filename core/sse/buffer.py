"""What has arrived of one server-sent event, within a bound of bytes.

It must not know how lines are found, or what belongs to the source of the stream rather than to one event.

An event that comes in a few reads is copied once: its pieces stay in a list until it ends.  But a list costs some
40 bytes for each piece, and joining it takes the memory twice: pieces that are many, or large together, move to a
BytesIO.  Both ways are linear.
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
    :ivar event_type: the value of the last ``event`` line, as it came.
    :ivar new_id: the value of the last ``id`` line, as it came; None if there was none.
    """

    __slots__ = ("_pieces", "_spilled", "event_type", "fresh", "held", "max_size", "new_id")

    def __init__(self, max_size: int) -> None:
        self.max_size: int = max_size
        self.clear()

    def clear(self) -> None:
        """Forget the event."""
        self.fresh: bool = True
        self.held: int = 0
        self.event_type: bytes = b""
        self.new_id: bytes | None = None
        self._pieces: list[bytes] = []
        self._spilled: BytesIO | None = None

    def hold(self, field: bytes, size: int) -> None:
        """Count ``size`` bytes more.

        :raises EventTooLargeError: they are too many; ``field`` is where they are (b"": a comment).
        """
        self.held += size
        if self.held > self.max_size:
            place = f"its {field.decode()!r} field" if field else "a comment"
            raise EventTooLargeError(
                f"an event is larger than max_event_size={self.max_size} bytes, which {place} goes beyond; "
                "raise max_event_size if such events are to be expected"
            )

    def begin_data(self) -> None:
        """Begin one more data line."""
        self.fresh = False
        if self._pieces or self._spilled is not None:
            self.add_data(b"\n")

    def add_data(self, piece: bytes) -> None:
        """Add to the data line that was begun."""
        self.hold(b"data", len(piece))
        if self._spilled is not None:
            self._spilled.write(piece)
            return
        self._pieces.append(piece)
        if self.held > LARGE_EVENT or len(self._pieces) > MANY_PIECES:
            self._spilled = BytesIO()
            self._spilled.writelines(self._pieces)
            self._pieces = []

    def set_type(self, value: bytes) -> None:
        """Take the value, which is held, of an event line; the last one counts."""
        self.held -= len(self.event_type)
        self.event_type = value
        self.fresh = False

    def set_id(self, value: bytes) -> None:
        """Take the value, which is held and checked, of an id line; the last one counts."""
        self.held -= len(self.new_id or b"")
        self.new_id = value
        self.fresh = False

    def data(self) -> bytes | None:
        """The data, joined; None if there was no data line."""
        if self._spilled is not None:
            return self._spilled.getvalue()  # the BytesIO's own buffer, not a copy of it
        return b"".join(self._pieces) if self._pieces else None
