"""A router in front of fake servers: it forwards ``/generate`` and lists its workers, but has no ``/abort_request``.

As with real servers, only the worker knows the client's id, so only the worker can abort the request.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from itertools import cycle
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from .server import LoopbackServer

if TYPE_CHECKING:
    from .connection import Connection, HTTPRequest
    from .fake import FakeSGLang


class FakeRouter(LoopbackServer):
    """Gives requests to its workers in turn.

    :ivar forwarded: how many it has passed on.
    """

    def __init__(self, workers: Sequence[FakeSGLang]) -> None:
        super().__init__()
        self.forwarded: int = 0
        self._workers = list(workers)
        self._turn = cycle(self._workers)

    async def serve(self, connection: Connection) -> None:
        """See :class:`LoopbackServer`."""
        while (request := await connection.next_request()) is not None:
            route = (request.method, request.path.partition("?")[0])
            if route == ("GET", "/workers"):
                names = {"workers": [{"url": worker.url} for worker in self._workers]}
                await connection.answer(200, json.dumps(names).encode())
            elif route == ("POST", "/generate"):
                self.forwarded += 1
                await _pass_on(connection, request, next(self._turn).url)
                return
            else:
                await connection.answer(404, b'{"detail":"Not Found"}')
            if not request.keep_alive:
                return


async def _pass_on(connection: Connection, request: HTTPRequest, url: str) -> None:
    """Relay one request and its answer, byte for byte, for as long as both sides are there."""
    parts = urlsplit(url)
    reader, writer = await asyncio.open_connection(parts.hostname, parts.port)
    try:
        headers = {**request.headers, "connection": "close", "content-length": str(len(request.body))}
        headers.pop("transfer-encoding", None)
        lines = "".join(f"{name}: {value}\r\n" for name, value in headers.items())
        writer.write(f"POST /generate HTTP/1.1\r\n{lines}\r\n".encode("latin-1") + request.body)
        relay = asyncio.ensure_future(_relay(reader, connection))
        watch = asyncio.ensure_future(connection.closed())
        try:
            await asyncio.wait([relay, watch], return_when=asyncio.FIRST_COMPLETED)
        finally:
            relay.cancel()
            watch.cancel()
            await asyncio.gather(relay, watch, return_exceptions=True)
    finally:
        writer.close()


async def _relay(reader: asyncio.StreamReader, connection: Connection) -> None:
    while data := await reader.read(2**16):
        await connection.write(data)
