"""The first line that no event stream has: why a body that gave no event is none.

The norm has such lines ignored; whoever gets no event at all wants to know what came instead.  It must not know the
parser's state.
"""

from __future__ import annotations

import re

_LINE_END = re.compile(rb"\r\n|\r|\n")
_SHOWN = 80


class StrayLine:
    """Remembers one line.

    :ivar found: how many bytes before the end of what was fed it began, when the read was fed in which it began, and
        its first 80 bytes; None until there was one.
    """

    __slots__ = ("found", "is_open")

    def __init__(self) -> None:
        self.found: tuple[int, bytes] | None = None
        #: Its end has not come.
        self.is_open: bool = False

    def begin(self, read: bytes, data: bytes, start: int, *, is_open: bool) -> None:
        """Take the line at ``start`` of ``data``, which is ``read`` with LF line ends; only the first one counts."""
        if self.found is not None:
            return
        line = data[start : start + _SHOWN].partition(b"\n")[0]
        if data is not read and (lines := data.count(b"\n", 0, start)):
            ends = _LINE_END.finditer(read)
            start = [next(ends).end() for _ in range(lines)][-1]
        self.found = len(read) - start, line
        self.is_open = is_open

    def add(self, piece: bytes) -> None:
        """Take what has come of the line that is open."""
        if self.found is not None and self.is_open:
            from_end, line = self.found
            self.found = from_end, (line + piece)[:_SHOWN]
