"""What a line of an event stream looks like.

It must not know the parser's state: these are constants and pure functions on bytes.
"""

from __future__ import annotations

LF = 10  # as numbers: `10 in data` takes a tenth of the time of `b"\n" in data`
CR = 13
BOM = b"\xef\xbb\xbf"

NAMES = (b"data", b"event", b"id", b"retry")
LONGEST_NAME = 5
UNDECIDED = frozenset(name[:n] for name in NAMES for n in range(1, len(name) + 1)) | {name + b":" for name in NAMES}
"""Starts of a line after which it is open which field it is, or whether a space after the colon is to go."""

WORTH_A_VIEW = 4096
"""From so many bytes on, a memoryview is cheaper than a copy."""

MAX_RETRY_DIGITS = 640
"""Longest ``retry`` number that is taken: what ``int`` reads in any process (``sys.set_int_max_str_digits``).  A longer
one is no time that a clock can wait for; reading it would cost quadratic time."""


def split_line(data: bytes, pos: int, end: int) -> tuple[bytes, int]:
    """Field name of the line from ``pos`` to ``end``, and where its value starts.

    The name is b"" for a comment, and b"?" for one that is longer than all known.
    """
    colon = data.find(b":", pos, min(end, pos + LONGEST_NAME + 1))
    if colon < 0:
        return (data[pos:end] if end - pos <= LONGEST_NAME else b"?"), end
    start = colon + 1
    # "If value starts with a U+0020 SPACE character, remove it from value."
    if data[start : min(start + 1, end)] == b" ":
        start += 1
    return data[pos:colon], start


def retry_time(value: bytes) -> int | None:
    """Milliseconds in the value of a ``retry`` line; None if it is to be ignored."""
    # "If the field value consists of only ASCII digits, then interpret the field value as an integer in base ten, and
    # set the event stream's reconnection time to that integer."
    if not value.isdigit() or len(digits := value.lstrip(b"0")) > MAX_RETRY_DIGITS:
        return None
    return int(digits or b"0")


def end_of(data: bytes, pos: int) -> bytes | memoryview:
    """``data[pos:]``, without copying it where that pays.

    A view keeps the whole read alive, so it must be the larger part of it.
    """
    size = len(data) - pos
    return memoryview(data)[pos:] if size > WORTH_A_VIEW and size > pos else data[pos:]


def as_bytes(data: object) -> bytes:
    """The bytes of a buffer that the caller may change later.

    :raises TypeError: for anything but bytes, bytearray and memoryview.
    """
    if isinstance(data, memoryview):
        return data.tobytes()  # whatever its format and shape
    if isinstance(data, (bytes, bytearray)):
        return bytes(memoryview(data))
    hint = ": feed the response's bytes, undecoded" if isinstance(data, str) else ""
    raise TypeError(f"feed() takes bytes, bytearray or memoryview, not {type(data).__name__}{hint}")
