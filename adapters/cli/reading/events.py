"""The events of a recorded body, each with its bytes and the place where it stands.

An event as SGLang writes it, one ``data: `` line and a blank one, is cut out here; anything else is given to the core's
own parser.  Knows bytes and events, and nothing of what is in them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple

from ssefold import SSEParser

# Nothing that is in a recording is too large.
_NO_LIMIT = 2**62
_PLAIN = b"data: "


class Event(NamedTuple):
    """One event, or what follows the last one.

    :ivar offset: of its first field line in the body.
    :ivar start: where ``raw`` begins: the end of the event before.
    :ivar raw: all bytes from there to the blank line that ends it, comments included.
    :ivar data: None: the body ends before the event does, or nothing but comments is left.
    :ivar plain: ``raw`` is one ``data: `` line, ended by LF, and a blank line.
    """

    offset: int
    start: int
    raw: bytes
    data: bytes | None
    plain: bool

    @property
    def end(self) -> int:
        """Behind the blank line."""
        return self.start + len(self.raw)


def events_of(pieces: Iterable[bytes]) -> Iterator[Event]:
    """Events in order, then what is left, if anything is."""
    parser = SSEParser(max_event_size=_NO_LIMIT)
    start = at = fed = 0
    offset: int | None = None
    lines: list[bytes] = []
    for line in _lines(pieces):
        lines.append(line)
        blank = line in (b"\n", b"\r\n", b"\r")
        if offset is None and not blank and line[:1] != b":":
            offset = at
        at += len(line)
        if not blank:
            continue
        plain = len(lines) == 2 and line == b"\n" and lines[0].startswith(_PLAIN) and not lines[0].endswith(b"\r\n")
        # The first event goes through the parser in any case: a byte order mark may stand before it.
        if plain and start:
            data = lines[0][len(_PLAIN) : -1]
        else:
            found = parser.feed(b"".join(lines[fed:]))
            if not found:
                fed, offset = len(lines), None
                continue
            data = found[0].data_bytes
        yield Event(start if offset is None else offset, start, b"".join(lines), data, plain)
        start, fed, offset, lines = at, 0, None, []
    if lines:
        yield Event(start if offset is None else offset, start, b"".join(lines), None, False)


def _lines(pieces: Iterable[bytes]) -> Iterator[bytes]:
    """Lines with their ends: LF, CR, CRLF and nothing else."""
    begun: list[bytes] = []
    for piece in pieces:
        *whole, rest = piece.split(b"\n")
        for part in whole:
            line = part + b"\n"
            if begun:
                line = b"".join([*begun, line])
                begun = []
            if b"\r" in line:
                yield from line.splitlines(keepends=True)
            else:
                yield line
        if rest:
            begun.append(rest)
    yield from b"".join(begun).splitlines(keepends=True)
