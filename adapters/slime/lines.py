"""Every ``data:`` line is one event, as slime reads a stream.

By the norm, ``data:`` lines without a blank line between them are one event.  Some gateways drop the blank lines, and
slime's own function, which reads line by line, does not notice.  Here the blank line that is missing is put in; what is
as it should be passes through unchanged.  Knows nothing of JSON.
"""

from __future__ import annotations

_FIELD = b"data:"


class LineEvents:
    """Takes a body read by read.  The beginning of a line is held back while it may become ``data:``."""

    def __init__(self) -> None:
        self._held = b""
        self._at_line_start = True
        # A data line has begun since the last blank line.
        self._open = False

    def split(self, data: bytes) -> bytes:
        """The same bytes, with a blank line before every data line."""
        data, self._held = self._held + data, b""
        start = 0 if self._at_line_start else data.find(b"\n") + 1
        if not (self._at_line_start or start):
            return data
        places: list[int] = []
        while start < len(data):
            if len(data) - start < len(_FIELD) and _FIELD.startswith(data[start:]):
                data, self._held = data[:start], data[start:]
                break
            if data.startswith(_FIELD, start):
                if self._open:
                    places.append(start)
                self._open = True
            elif data[start] in b"\r\n":
                self._open = False
            start = data.find(b"\n", start) + 1 or len(data) + 1
        self._at_line_start = start == len(data)
        if not places:
            return data
        return b"\n".join(data[a:b] for a, b in zip([0, *places], [*places, len(data)], strict=True))
