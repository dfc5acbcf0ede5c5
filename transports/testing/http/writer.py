"""Writing a fake server's body to the socket, with the faults that concern bytes.

What is written here is the body of one streamed response.  The pieces, cuts and compression of a
:class:`~ssefold.transports.testing.Fault` are applied to its bytes; what the bytes mean is not known here.
"""

from __future__ import annotations

import random
import zlib
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ..engine import Fault
    from .connection import Connection


class CutError(Exception):
    """The fault's ``cut_at`` is reached: the body is over, and the connection with it."""


class BodyWriter:
    """Writes one body, each event as one HTTP chunk unless the fault says otherwise."""

    def __init__(self, connection: Connection, fault: Fault, count: Callable[[int], None]) -> None:
        self._connection = connection
        self._fault = fault
        self._count = count
        self._sent = 0
        self._random = random.Random(fault.pieces)  # noqa: S311  # sizes, not secrets
        self._gzip = zlib.compressobj(wbits=31) if fault.gzip else None

    async def start(self) -> None:
        """The head of the response."""
        headers = {"content-type": self._fault.content_type, **self._fault.headers}
        if self._gzip is not None:
            headers["content-encoding"] = "gzip"
        await self._connection.start(200, headers)

    async def event(self, data: bytes) -> None:
        """One event.

        :raises CutError: the body ends inside it.
        :raises ClosedError: the client is gone.
        """
        data = self._fault.junk + data
        if self._gzip is not None:
            data = self._gzip.compress(data) + self._gzip.flush(zlib.Z_SYNC_FLUSH)
        for piece in self._pieces(data):
            await self._write(piece)

    async def end(self) -> None:
        """The end of the response."""
        if self._gzip is not None:
            await self._write(self._gzip.flush())
        await self._connection.end()

    def _pieces(self, data: bytes) -> Iterator[bytes]:
        fault = self._fault
        if fault.pieces is None and fault.drip is None:
            yield data
            return
        position = 0
        while position < len(data):
            size = fault.drip or self._random.randint(1, max(1, len(data) // 2))
            yield data[position : position + size]
            position += size

    async def _write(self, data: bytes) -> None:
        limit = self._fault.cut_at
        if limit is None or self._sent + len(data) < limit:
            self._sent += len(data)
            self._count(len(data))
            await self._connection.chunk(data)
            return
        data = data[: limit - self._sent]
        self._count(len(data))
        await self._connection.chunk(data)
        if self._fault.cut == "rst":
            self._connection.reset()
        elif self._fault.cut == "clean":
            await self._connection.end()
        raise CutError
