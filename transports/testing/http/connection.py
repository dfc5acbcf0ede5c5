"""As much of HTTP/1.1 as a fake server needs: requests in, responses out, and a look at whether the client is there.

Kept plain so that tests can break it on purpose: what is written is what is sent.  This module knows nothing of
``/generate``.
"""

from __future__ import annotations

import asyncio
import socket
import struct
from collections.abc import Callable, Mapping
from dataclasses import dataclass

_MAX_HEAD = 2**16
_READ = 2**16
_REASONS = {
    200: "OK", 400: "Bad Request", 401: "Unauthorized", 404: "Not Found", 500: "Internal Server Error",
    503: "Service Unavailable",
}  # fmt: skip


class ClosedError(Exception):
    """The client closed the connection."""


@dataclass(frozen=True)
class HTTPRequest:
    """One request; header names in lower case."""

    method: str
    path: str
    headers: Mapping[str, str]
    body: bytes

    @property
    def keep_alive(self) -> bool:
        """The client wants the connection to stay open."""
        return self.headers.get("connection", "").lower() != "close"


class Connection:
    """One client's socket.

    :param waits: called with 1 and -1 around a wait for a slow client (and with 0 where there is none to wait for).
    """

    def __init__(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, waits: Callable[[int], None]
    ) -> None:
        self._reader = reader
        self._writer = writer
        self._waits = waits
        self._buffer = bytearray()

    async def next_request(self) -> HTTPRequest | None:
        """The next request, or None when the client closes between two."""
        try:
            head = await self._until(b"\r\n\r\n")
        except ClosedError:
            return None
        first, *lines = head.decode("latin-1").split("\r\n")
        method, path, _ = first.split(" ", 2)
        headers = {name.strip().lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
        return HTTPRequest(method, path, headers, await self._body(headers))

    async def _body(self, headers: Mapping[str, str]) -> bytes:
        if headers.get("transfer-encoding", "").lower() == "chunked":
            parts: list[bytes] = []
            while size := int((await self._until(b"\r\n")).partition(b";")[0], 16):
                parts.append(await self._exactly(size))
                await self._exactly(2)
            await self._until(b"\r\n")
            return b"".join(parts)
        return await self._exactly(int(headers.get("content-length", "0")))

    async def _until(self, end: bytes) -> bytes:
        searched = 0
        while (found := self._buffer.find(end, searched)) < 0:
            searched = max(len(self._buffer) - len(end) + 1, 0)
            if len(self._buffer) > _MAX_HEAD:
                raise ClosedError
            await self._more()
        taken = bytes(self._buffer[:found])
        del self._buffer[: found + len(end)]
        return taken

    async def _exactly(self, size: int) -> bytes:
        while len(self._buffer) < size:
            await self._more()
        taken = bytes(self._buffer[:size])
        del self._buffer[:size]
        return taken

    async def _more(self) -> None:
        try:
            data = await self._reader.read(_READ)
        except ConnectionError:
            data = b""
        if not data:
            raise ClosedError
        self._buffer += data

    async def closed(self) -> None:
        """Wait until the client has closed; what it sends meanwhile is kept for the next request."""
        try:
            while True:
                await self._more()
        except ClosedError:
            return

    async def write(self, data: bytes) -> None:
        """Send these bytes, and wait while the client is slow.

        :raises ClosedError: the client has closed the connection.
        """
        transport = self._writer.transport
        self._writer.write(data)
        is_slow = transport.get_write_buffer_size() > transport.get_write_buffer_limits()[1]
        self._waits(is_slow)
        try:
            await self._writer.drain()
        except ConnectionError:
            raise ClosedError from None
        finally:
            self._waits(-is_slow)

    async def answer(self, status: int, body: bytes, headers: Mapping[str, str] | None = None) -> None:
        """A whole response."""
        lines = {"content-length": str(len(body)), "content-type": "application/json", **(headers or {})}
        await self.write(head_bytes(status, lines) + body)

    async def start(self, status: int, headers: Mapping[str, str]) -> None:
        """The head of a chunked response."""
        await self.write(head_bytes(status, {**headers, "transfer-encoding": "chunked"}))

    async def chunk(self, data: bytes) -> None:
        """One HTTP chunk."""
        if data:
            await self.write(b"%x\r\n%b\r\n" % (len(data), data))

    async def end(self) -> None:
        """The end of a chunked response."""
        await self.write(b"0\r\n\r\n")

    def reset(self) -> None:
        """Cut the connection by a reset."""
        sock = self._writer.get_extra_info("socket")
        if sock is not None and sock.fileno() >= 0:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self._writer.transport.abort()

    async def close(self) -> None:
        """Close it, and see it closed."""
        self._writer.close()
        try:
            await self._writer.wait_closed()
        except (OSError, asyncio.CancelledError):
            self._writer.transport.abort()


def head_bytes(status: int, headers: Mapping[str, str]) -> bytes:
    """Status line and headers."""
    lines = [
        f"HTTP/1.1 {status} {_REASONS.get(status, 'Status')}",
        *(f"{name}: {value}" for name, value in headers.items()),
    ]
    return ("\r\n".join(lines) + "\r\n\r\n").encode("latin-1")
