"""Content encodings that were not requested: gzip and deflate are decompressed, others are refused by name.

gzip or deflate make a read at most a thousand times larger.  Other or stacked encodings can make gigabytes of a few
kilobytes (decompression bombs).
"""

from __future__ import annotations

import zlib
from collections.abc import Callable

Undo = Callable[[bytes], bytes]

_GZIP, _ZLIB, _RAW = 31, zlib.MAX_WBITS, -zlib.MAX_WBITS


def undo_encoding(name: str) -> Undo | None:
    """A function that decompresses each read of a body; None if the body is not compressed.

    The function raises :class:`ValueError` for bytes that are not of this encoding.

    :param name: the value of the ``Content-Encoding`` header.
    :raises ValueError: an unsupported encoding; the message names it.
    """
    kind = name.strip().lower().removeprefix("x-")
    if kind in ("", "identity"):
        return None
    if kind not in ("gzip", "deflate"):
        raise ValueError(
            f"content-encoding {name.strip()!r} although identity was asked for: a proxy compresses; turn it off there"
        )
    return _Undo(kind == "gzip")


class _Undo:
    def __init__(self, is_gzip: bool) -> None:
        self._is_gzip = is_gzip
        self._inflate = zlib.decompressobj(_GZIP if is_gzip else _ZLIB)
        self._began = False

    def __call__(self, data: bytes) -> bytes:
        try:
            return self._undone(data)
        except zlib.error as error:
            kind = "gzip" if self._is_gzip else "deflate"
            raise ValueError(f"the body is not the {kind} that its content-encoding says: {error}") from error

    def _undone(self, data: bytes) -> bytes:
        if not self._began and data:
            self._began = True
            if not self._is_gzip and data[0] & 15 != zlib.DEFLATED:
                self._inflate = zlib.decompressobj(_RAW)  # some servers leave out the header that "deflate" means
        parts = [self._inflate.decompress(data)]
        while self._is_gzip and (rest := self._inflate.unused_data):
            self._inflate = zlib.decompressobj(_GZIP)
            parts.append(self._inflate.decompress(rest))
        return b"".join(parts)
