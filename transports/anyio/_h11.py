"""HTTP/1.1 over an anyio socket: one connection, one request, one response."""

from __future__ import annotations

import ssl
from collections.abc import Mapping
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

import anyio
import h11

from .._engine import BODY_SIZE, Gate, Head, Verdict
from ._decode import RECEIVE

if TYPE_CHECKING:
    from anyio.abc import ByteStream

    from .._engine import PreparedRequest


_LINE_END = len(b"\r\n")


class Dialer:
    """See :class:`._engine.exchange.Client`: dials a connection for every request.

    :raises ValueError: the url is not http or https.
    """

    def __init__(self, request: PreparedRequest, ssl_context: ssl.SSLContext | None) -> None:
        if urlsplit(request.url).scheme not in ("http", "https"):
            raise ValueError(f"the url must be absolute, http or https, found {request.place!r}")
        self._ssl_context = ssl_context
        self.gate = Gate()  # nothing is shared with other streams

    def exchange(self, idle_timeout: float | None) -> HTTPExchange:  # kept by the stream
        """See :class:`._engine.exchange.Client`."""
        return HTTPExchange(self._ssl_context)

    async def call(
        self,
        method: str,
        url: str,
        body: bytes,
        headers: Mapping[str, str],
        *,
        timeout: float,  # noqa: ASYNC109  # the caller bounds the whole
        patience: float,
    ) -> tuple[int, bytes]:
        """See :class:`._engine.exchange.Client`; there is no pool to be patient with."""
        exchange = HTTPExchange(self._ssl_context)
        answer = b""
        try:
            head = await exchange.send(method, url, body, headers)
            while len(answer) < BODY_SIZE and (data := await exchange.read()):
                answer += data
        finally:
            await exchange.close()
        return head.status, answer

    def judge(self, error: Exception) -> Verdict:
        """See :class:`._engine.exchange.Client`."""
        return Verdict()


class HTTPExchange:
    """See :class:`._engine.exchange.Exchange`."""

    fragile = False  # a read waits for the socket alone

    def __init__(self, ssl_context: ssl.SSLContext | None) -> None:
        self._ssl_context = ssl_context
        self._stream: ByteStream | None = None
        self._protocol = h11.Connection(h11.CLIENT)
        self._dialing = False
        self._ended = False
        self._drained = False  # what h11 was given, it has given out; asking it again costs as much as an event
        self._parts: list[bytes] = []  # of the body, not returned yet

    async def open(self, request: PreparedRequest) -> Head:
        """See :class:`._engine.exchange.Exchange`."""
        return await self.send("POST", request.url, request.body, request.headers)

    async def send(self, method: str, url: str, body: bytes, headers: Mapping[str, str]) -> Head:
        """Dial, send the request, and read the head of the response."""
        parts = urlsplit(url)
        is_tls = parts.scheme == "https"
        host, port = parts.hostname or "", parts.port or (443 if is_tls else 80)
        target = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
        lines = {"Host": parts.netloc, "Connection": "close", "Content-Length": str(len(body)), **headers}
        request = h11.Request(method=method, target=target, headers=list(lines.items()))
        events = (request, h11.Data(body), h11.EndOfMessage())
        data = b"".join(self._protocol.send(event) or b"" for event in events)
        self._dialing = True
        self._stream = await self._dial(host, port, is_tls=is_tls)
        self._dialing = False
        await self._stream.send(data)
        while not isinstance(event := await self._next_event(), h11.Response):
            if isinstance(event, h11.ConnectionClosed):
                raise h11.RemoteProtocolError("the server closed the connection")
        found = {name.decode("latin-1"): value.decode("latin-1") for name, value in event.headers}
        return Head(
            event.status_code,
            found.get("content-type", ""),
            ",".join(value.decode("latin-1") for name, value in event.headers if name == b"content-encoding"),
            found.get("retry-after", ""),
        )

    async def _dial(self, host: str, port: int, *, is_tls: bool) -> ByteStream:
        if not is_tls:
            return await anyio.connect_tcp(host, port)
        # Whether the body is whole, its own framing tells; few servers end TLS as its norm wants it.
        return await anyio.connect_tcp(
            host, port, tls_hostname=host, ssl_context=self._ssl_context, tls=True, tls_standard_compatible=False
        )

    async def read(self) -> bytes:
        """See :class:`._engine.exchange.Exchange`."""
        parts, protocol = self._parts, self._protocol
        while not self._ended:
            event = h11.NEED_DATA if self._drained else protocol.next_event()
            if event is h11.NEED_DATA:
                self._drained = True
                if parts:
                    break  # all that has come was taken
                await self._receive()
            elif isinstance(event, h11.Data):
                parts.append(bytes(event.data))
                # Nothing but the line end of a chunk is left in h11: the next event is still to come.
                self._drained = event.chunk_end and len(protocol.trailing_data[0]) <= _LINE_END
            else:
                self._ended = True
        return self.rest()

    def rest(self) -> bytes:
        """See :class:`._engine.exchange.Exchange`."""
        data = b"".join(self._parts)
        self._parts.clear()
        return data

    async def _next_event(self) -> object:
        while (event := self._protocol.next_event()) is h11.NEED_DATA:
            await self._receive()
        return event

    async def _receive(self) -> None:
        """Wait for bytes, or for the end of them."""
        try:
            data = b"" if self._stream is None else await self._stream.receive(RECEIVE)
        except anyio.EndOfStream:
            data = b""
        self._protocol.receive_data(data)
        self._drained = False

    def hurry(self, seconds: float) -> None:
        """See :class:`._engine.exchange.Exchange`; the stream ends a read that takes too long."""

    def judge(self, error: Exception) -> Verdict:
        """See :class:`._engine.exchange.Exchange`."""
        broken = (anyio.BrokenResourceError, anyio.ClosedResourceError, OSError, h11.RemoteProtocolError)
        return Verdict(unsent=self._dialing and isinstance(error, broken), cut=isinstance(error, broken))

    async def close(self) -> bytes:
        """See :class:`._engine.exchange.Exchange`."""
        stream, self._stream = self._stream, None
        if stream is not None:
            await anyio.aclose_forcefully(stream)
        return b""  # a read takes all that has come
