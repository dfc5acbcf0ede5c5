"""HTTP/1.1 over an anyio socket: one connection, one request, one response."""

from __future__ import annotations

import base64
import ssl
from collections.abc import Mapping
from typing import TYPE_CHECKING
from urllib.parse import unquote, urlsplit

import anyio
import h11

from .._engine.abort import BODY_SIZE
from .._engine.answer import Head, idle
from .._engine.errors import TransportError
from .._engine.gate import Gate
from ._decode import RECEIVE

if TYPE_CHECKING:
    from anyio.abc import ByteStream

    from .._engine.request import PreparedRequest

_BROKEN = (anyio.BrokenResourceError, anyio.ClosedResourceError, anyio.EndOfStream, OSError)


class Dialer:
    """See :class:`._exchange.Client`: dials a connection for every request.

    :raises ValueError: the url is not http or https.
    """

    anyio_based = True

    def __init__(self, url: str, ssl_context: ssl.SSLContext | None) -> None:
        if urlsplit(url).scheme not in ("http", "https"):
            raise ValueError(f"the url must be absolute, http or https, found {url!r}")
        self._ssl_context = ssl_context
        self.gate = Gate()  # nothing is shared with other streams

    def exchange(self, idle_timeout: float | None) -> HTTPExchange:
        """See :class:`._exchange.Client`."""
        return HTTPExchange(self._ssl_context, idle_timeout)

    async def call(
        self,
        method: str,
        url: str,
        body: bytes,
        headers: Mapping[str, str],
        *,
        timeout: float,  # noqa: ASYNC109  # the caller's scope bounds the whole; this bounds each wait
        patience: float,
    ) -> tuple[int, bytes]:
        """See :class:`._exchange.Client`; there is no pool to be patient with."""
        exchange = HTTPExchange(self._ssl_context, timeout)
        answer = b""
        try:
            head = await exchange.send(method, url, body, headers)
            while len(answer) < BODY_SIZE and (data := await exchange.read()):
                answer += data
        except ValueError as error:  # a router may name anything as a worker's url
            raise TransportError(f"{method} {url} can not be sent: {error}") from error
        finally:
            await exchange.close()
        return head.status, answer


class HTTPExchange:
    """See :class:`._exchange.Exchange`."""

    fragile = False  # a read waits for the socket alone
    closes_at_once = True

    def __init__(self, ssl_context: ssl.SSLContext | None, idle_timeout: float | None) -> None:
        self._ssl_context = ssl_context
        self._idle_timeout = idle_timeout
        self._stream: ByteStream | None = None
        self._protocol = h11.Connection(h11.CLIENT)
        self._ended = False
        self._drained = False  # what h11 was given, it has given out; asking it again costs as much as an event
        self._failure: TransportError | None = None
        self._place = ""

    async def open(self, request: PreparedRequest) -> Head:
        """See :class:`._exchange.Exchange`."""
        return await self.send("POST", request.url, request.body, request.headers)

    async def send(self, method: str, url: str, body: bytes, headers: Mapping[str, str]) -> Head:
        """Dial, send the request, and read the head of the response."""
        parts = urlsplit(url)
        is_tls = parts.scheme == "https"
        host, port = parts.hostname or "", parts.port or (443 if is_tls else 80)
        self._place = f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}{parts.path}"
        data = self._request_bytes(method, parts.netloc, _target(parts.path, parts.query), body, headers)
        try:
            self._stream = await self._dial(host, port, is_tls=is_tls)
        except (*_BROKEN, ssl.SSLError) as error:
            raise self._error("no connection to", error, True) from error
        try:
            await self._stream.send(data)
            while not isinstance(event := await self._next_event(), h11.Response):
                if isinstance(event, h11.ConnectionClosed):
                    raise self._error("no answer from", "it closed the connection", True)
        except TimeoutError as error:
            raise idle(self._place, self._idle_timeout) from error
        except (*_BROKEN, h11.RemoteProtocolError) as error:
            raise self._error("no answer from", error, True) from error
        found = {name.decode("latin-1"): value.decode("latin-1") for name, value in event.headers}
        return Head(event.status_code, found.get("content-type", ""), found.get("content-encoding", "").strip().lower())

    async def _dial(self, host: str, port: int, *, is_tls: bool) -> ByteStream:
        if not is_tls:
            return await anyio.connect_tcp(host, port)
        # Whether the body is whole, its own framing tells; few servers end TLS as its norm wants it.
        return await anyio.connect_tcp(
            host, port, tls_hostname=host, ssl_context=self._ssl_context, tls=True, tls_standard_compatible=False
        )

    def _request_bytes(self, method: str, netloc: str, target: str, body: bytes, headers: Mapping[str, str]) -> bytes:
        user, at, host = netloc.rpartition("@")
        lines = {"Host": host, "Connection": "close", "Content-Length": str(len(body)), **headers}
        if at and not any(name.lower() == "authorization" for name in headers):
            lines["Authorization"] = "Basic " + base64.b64encode(unquote(user).encode("utf-8")).decode("ascii")
        try:
            head = h11.Request(method=method, target=target, headers=list(lines.items()))
        except (h11.LocalProtocolError, UnicodeError) as error:
            raise TransportError(f"the request to {self._place} can not be sent: {error}") from error
        events = (head, h11.Data(body), h11.EndOfMessage())
        return b"".join(self._protocol.send(event) or b"" for event in events)

    async def read(self) -> bytes:
        """See :class:`._exchange.Exchange`."""
        if self._failure is not None:
            raise self._failure
        parts: list[bytes] = []
        protocol = self._protocol
        try:
            while not self._ended:
                event = h11.NEED_DATA if self._drained else protocol.next_event()
                if event is h11.NEED_DATA:
                    self._drained = True
                    if parts:
                        break  # all that has come was taken
                    await self._receive()
                elif isinstance(event, h11.Data):
                    parts.append(bytes(event.data))
                else:
                    self._ended = True
        except TimeoutError as error:
            self._failure = idle(self._place, self._idle_timeout)
            self._failure.__cause__ = error
        except (*_BROKEN, h11.RemoteProtocolError) as error:
            self._failure = self._error("reading failed from", error, False)
            self._failure.__cause__ = error
        if self._failure is not None and not parts:
            raise self._failure
        return b"".join(parts)

    async def _next_event(self) -> object:
        while (event := self._protocol.next_event()) is h11.NEED_DATA:
            await self._receive()
        return event

    async def _receive(self) -> None:
        """Wait for bytes, or for the end of them."""
        stream = self._stream
        try:
            if stream is None:
                data = b""  # closed by ourselves
            elif self._idle_timeout is None:
                data = await stream.receive(RECEIVE)  # a scope for every read is not free
            else:
                with anyio.fail_after(self._idle_timeout):
                    data = await stream.receive(RECEIVE)
        except anyio.EndOfStream:
            data = b""
        self._protocol.receive_data(data)
        self._drained = False

    def hurry(self, seconds: float) -> None:
        """See :class:`._exchange.Exchange`."""
        self._idle_timeout = seconds

    async def close(self) -> bytes:
        """See :class:`._exchange.Exchange`."""
        stream, self._stream = self._stream, None
        if stream is not None:
            await anyio.aclose_forcefully(stream)
        return b""  # a read takes all that has come

    def _error(self, what: str, why: object, retryable: bool) -> TransportError:
        reason = f"{type(why).__name__}: {why}" if isinstance(why, BaseException) else why
        return TransportError(f"{what} {self._place}: {reason}", retryable=retryable)


def _target(path: str, query: str) -> str:
    return (path or "/") + (f"?{query}" if query else "")
