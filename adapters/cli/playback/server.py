"""A server on loopback that repeats a recording: the same bytes in the same reads, with the same timing on request.

It answers every request with the one recording.  Knows HTTP as far as the fake servers do, and nothing of the bytes.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import TYPE_CHECKING

from ssefold.transports.testing.http import LoopbackServer

if TYPE_CHECKING:
    from ssefold.transports.testing.http import Connection

    from ..reading import Reads

_READ = 16 * 1024


class PlaybackServer(LoopbackServer):
    """The server; entering the block starts it.

    :param reads: where the bytes were cut, and when; None: in pieces of 16 kB.
    :param timing: keep the times as well.
    :param port: see :class:`LoopbackServer`.
    :param torn: end by closing the connection in the middle of the response, as when the recording was cut off.
    """

    def __init__(
        self, body: bytes, reads: Reads | None = None, *, timing: bool = False, torn: bool = False, port: int = 0
    ) -> None:
        super().__init__(port=port)
        self._body = body
        self._reads = reads
        self._timing = timing and reads is not None
        self._torn = torn

    async def serve(self, connection: Connection) -> None:
        """See :class:`LoopbackServer`."""
        while await connection.next_request() is not None:
            await connection.start(200, {"content-type": "text/event-stream; charset=utf-8"})
            start = asyncio.get_running_loop().time()
            for time, piece in self._pieces():
                if self._timing:
                    await asyncio.sleep(max(start + time - asyncio.get_running_loop().time(), 0.0))
                await connection.chunk(piece)
            if self._torn:
                return
            await connection.end()

    def _pieces(self) -> Iterator[tuple[float, bytes]]:
        position = 0
        if self._reads is not None:
            for time, size in zip(self._reads.times, self._reads.sizes, strict=True):
                yield time, self._body[position : position + size]
                position += size
        while position < len(self._body):
            yield 0.0, self._body[position : position + _READ]
            position += _READ
