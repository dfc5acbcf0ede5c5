"""Streams over httpx, or over a client with the same interface: ``stream``, and a response to iterate (such as httpx2).

``generate`` takes an ``AsyncClient`` (asyncio or trio) or a ``Client``, which stays the caller's own: its pool, TLS,
proxies, authentication and hooks apply.  httpx itself is not imported; only what a client can do is looked at.
"""

from __future__ import annotations

import copy
import socket
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping
from contextlib import suppress
from time import monotonic
from typing import TYPE_CHECKING, Any, cast, overload

from ._engine import (
    BODY_SIZE,
    Gate,
    GenerateStream,
    Head,
    SyncGenerateStream,
    Verdict,
    checked,
    collect_stream,
    collect_sync_stream,
    gate_of,
    prepare,
)

if TYPE_CHECKING:
    import httpx
    from typing_extensions import Unpack

    from ._engine import GenerateOptions, PreparedRequest

__all__ = ["collect", "collect_sync", "generate"]

_UNSENT = {"ConnectError", "ConnectTimeout", "PoolTimeout"}
_CUT = {"RemoteProtocolError", "ReadError", "WriteError", "CloseError"}
_DECODED_BY_CLIENTS = {"gzip", "deflate"}


@overload
def generate(
    client: httpx.Client, url: object, payload: Mapping[str, Any], **options: Unpack[GenerateOptions]
) -> SyncGenerateStream: ...
@overload
def generate(
    client: httpx.AsyncClient, url: object, payload: Mapping[str, Any], **options: Unpack[GenerateOptions]
) -> GenerateStream: ...
@overload
def generate(client: Any, url: object, payload: Mapping[str, Any], **options: Unpack[GenerateOptions]) -> Any: ...
def generate(
    client: Any, url: object, payload: Mapping[str, Any], **options: Unpack[GenerateOptions]
) -> GenerateStream | SyncGenerateStream:
    """One ``POST`` of ``payload`` to ``url``, streamed; nothing is sent before the block is entered.

    :param client: an ``httpx.AsyncClient``, giving a :class:`GenerateStream` for ``async with``, or an
        ``httpx.Client``, giving a :class:`SyncGenerateStream` for ``with``.
    :param options: :class:`GenerateOptions`.
    :raises PayloadError: the payload cannot be sent.
    :raises ValueError: an option makes no sense.
    """
    given = checked(options)
    request = prepare(url, payload, rid=given.rid, headers=given.headers)
    if hasattr(client, "close") and not hasattr(client, "aclose"):
        return SyncGenerateStream(_SyncHttpx(client), request, given)
    return GenerateStream(_Httpx(client), request, given)


async def collect(
    client: httpx.AsyncClient, url: object, payload: Mapping[str, Any], **options: Unpack[GenerateOptions]
) -> dict[int, dict[str, Any]]:
    """The answer as ``stream: false`` would give it, by output index.

    :raises StreamError: with the partial result in ``.partial``; a cancellation gets a ``.partial``, too.
    """
    return await collect_stream(generate(client, url, payload, **options))


def collect_sync(
    client: httpx.Client, url: object, payload: Mapping[str, Any], **options: Unpack[GenerateOptions]
) -> dict[int, dict[str, Any]]:
    """:func:`collect` for a blocking client."""
    return collect_sync_stream(generate(client, url, payload, **options))


class _Httpx:
    """See :class:`._engine.exchange.Client`."""

    def __init__(self, client: Any) -> None:
        self._client = client
        self.gate = gate_of(client)

    def exchange(self, idle_timeout: float | None) -> _Exchange:
        # The stream itself keeps the time, so that it can tell the server before the client closes the response.
        return _Exchange(self._client, _timeouts(self._client, read=None) if idle_timeout else {})

    async def call(
        self, method: str, url: str, body: bytes, headers: Mapping[str, str], *, timeout: float, patience: float
    ) -> tuple[int, bytes]:
        limits = _timeouts(self._client, connect=timeout, read=timeout, write=timeout, pool=patience)
        client = _with_patient_hooks(self._client, [])
        answer = b""
        made: list[Any] = []
        context = client.stream(method, url, content=body, headers=dict(headers), **limits, **_noting(url, made))
        response = await _entered(context, self._client, made)
        try:
            chunks = _raw(response, "aiter_raw", "aiter_bytes")
            while len(answer) < BODY_SIZE and (data := await anext(chunks, b"")):
                answer += data
        finally:
            await context.__aexit__(None, None, None)
        return response.status_code, answer

    def judge(self, error: Exception) -> Verdict:
        return _judge(error)


class _Exchange:
    """See :class:`._engine.exchange.Exchange`."""

    # httpcore cleans up inside the read that was cancelled, and a second cancellation there would leave the connection
    # in the pool forever (encode/httpx 3782).
    fragile = True

    def __init__(self, client: Any, limits: dict[str, Any]) -> None:
        self._client = client
        self._limits = limits
        self._context: Any = None
        self._response: Any = None
        self._chunks: Any = None
        self._made: list[Any] = []

    async def open(self, request: PreparedRequest) -> Head:
        raised: list[Exception] = []
        context = _with_patient_hooks(self._client, raised).stream(
            "POST",
            request.url,
            content=request.body,
            headers=dict(request.headers),
            **self._limits,
            **self._note(request.url),
        )
        response = self._response = await self._enter(context)
        self._context = context
        self._chunks = self._chunks_of(response)
        if raised and response.status_code == 200:
            raise raised[0]
        headers = response.headers
        encoding = headers.get("content-encoding", "")
        if _is_decoded(response) and encoding.strip().lower() in _DECODED_BY_CLIENTS:
            encoding = ""
        return Head(response.status_code, headers.get("content-type", ""), encoding, headers.get("retry-after", ""))

    def _note(self, url: str) -> dict[str, Any]:
        return _noting(url, self._made) if self._limits or hasattr(self._client, "timeout") else {}

    async def _enter(self, context: Any) -> Any:
        return await _entered(context, self._client, self._made)

    def _chunks_of(self, response: Any) -> Any:
        return _raw(response, "aiter_raw", "aiter_bytes")

    def read(self) -> Awaitable[bytes]:
        return anext(self._chunks, b"")  # no coroutine around it: each read would pay for that

    def rest(self) -> bytes:
        return b""

    def hurry(self, seconds: float) -> None:
        pass  # the stream ends a read that takes too long

    def judge(self, error: Exception) -> Verdict:
        return _judge(error)

    async def close(self) -> bytes:
        context, self._context = self._context, None
        if context is None:
            return b""
        left: list[bytes] = []
        with suppress(Exception):  # the connection is broken and gone, as was wanted
            await context.__aexit__(None, None, None)
        with suppress(Exception):
            if str(getattr(self._response, "http_version", "")).startswith("HTTP/1"):
                # Reading on gives what the client holds, then fails on the closed socket, which ends the generators
                # that httpx has nested in each other; aclose() would end the outermost alone, to trio's displeasure.
                while data := await anext(self._chunks, b""):
                    left.append(data)
            else:
                await self._chunks.aclose()
        return b"".join(left)


def _noting(url: str, made: list[Any]) -> dict[str, Any]:
    """Arguments of a request over TLS that note the connections made for it."""
    if url.lower().startswith("http:"):
        return {}

    async def trace(event: str, info: Mapping[str, Any]) -> None:
        if event == "connection.connect_tcp.complete":
            made.append(info["return_value"])

    return {"extensions": {"trace": trace}}


async def _entered(context: Any, client: Any, made: list[Any]) -> Any:
    """The response.  If there is none, clean up what httpcore leaks when it is cancelled while connecting.

    It does not close a connection in the middle of its TLS handshake.  And a waiting request gets a pool slot before it
    connects; if it is cancelled in between, the slot stays in the pool forever, "connecting".
    """
    try:
        return await context.__aenter__()
    except BaseException:
        transports = [getattr(client, "_transport", None), *getattr(client, "_mounts", {}).values()]
        with suppress(AttributeError):  # another transport, or another version of httpcore
            for pool in [transport._pool for transport in transports if transport is not None]:
                owned = {id(request.connection) for request in pool._requests}
                held = pool._connections
                kept = [one for one in held if one.info() != "CONNECTING" or id(one) in owned]
                if len(kept) < len(held):
                    held[:] = kept
                    await pool._close_connections(pool._assign_requests_to_connections())
        for connection in made:
            with suppress(Exception):
                await connection.aclose()
        raise


# ---- blocking


class _SyncHttpx:
    """See :class:`._engine.exchange.Client`; suspends nowhere."""

    def __init__(self, client: Any) -> None:
        self._client = client
        self.gate = Gate()

    def exchange(self, idle_timeout: float | None) -> _SyncExchange:
        return _SyncExchange(self._client, _timeouts(self._client, read=idle_timeout) if idle_timeout else {})

    async def call(
        self, method: str, url: str, body: bytes, headers: Mapping[str, str], *, timeout: float, patience: float
    ) -> tuple[int, bytes]:
        limits = _timeouts(self._client, connect=timeout, read=timeout, write=timeout, pool=patience)
        client = _with_patient_hooks(self._client, [])
        answer = b""
        ends_by = monotonic() + timeout  # the client's own timeouts begin anew with every byte
        with client.stream(method, url, content=body, headers=dict(headers), **limits) as response:
            chunks: Iterator[bytes] = _raw(response, "iter_raw", "iter_bytes")
            while len(answer) < BODY_SIZE and monotonic() < ends_by and (data := next(chunks, b"")):
                answer += data
        return response.status_code, answer

    def judge(self, error: Exception) -> Verdict:
        return _judge(error)


class _SyncExchange(_Exchange):
    """The same, blocking."""

    fragile = False

    def __init__(self, client: Any, limits: dict[str, Any]) -> None:
        super().__init__(client, limits)
        self._ending: threading.Timer | None = None

    def _note(self, url: str) -> dict[str, Any]:
        return {}

    async def _enter(self, context: Any) -> Any:
        return context.__enter__()

    def _chunks_of(self, response: Any) -> Any:
        return _raw(response, "iter_raw", "iter_bytes")

    async def read(self) -> bytes:
        return cast("bytes", next(self._chunks, b""))

    def hurry(self, seconds: float) -> None:
        # Nothing else ends a blocking read than its socket.  One of HTTP/2 belongs to other streams, too.
        connection = getattr(self._response, "extensions", {}).get("network_stream")
        if connection is not None and self._ending is None and self._response.http_version.startswith("HTTP/1"):
            self._ending = threading.Timer(seconds, _shut, [connection.get_extra_info("socket")])
            self._ending.daemon = True
            self._ending.start()

    def judge(self, error: Exception) -> Verdict:
        if self._limits and type(error).__name__ == "ReadTimeout":
            return Verdict(idle=True)
        return _judge(error)

    async def close(self) -> bytes:
        context, self._context = self._context, None
        if self._ending is not None:
            self._ending.cancel()
        if context is not None:
            with suppress(Exception):  # the connection is broken and gone, as was wanted
                context.__exit__(None, None, None)
            with suppress(Exception):
                self._chunks.close()
        return b""


def _shut(connection: socket.socket | None) -> None:
    if connection is not None:
        with suppress(OSError):
            socket.socket.shutdown(connection, socket.SHUT_RDWR)  # not TLS's own, which another thread is reading


# ---- what both have


def _with_patient_hooks(client: Any, raised: list[Exception]) -> Any:
    """The client, or a copy of it whose response hooks may raise: what they raise is noted, and the answer stays."""
    hooks: list[Callable[[Any], Any]] = getattr(client, "event_hooks", {}).get("response", [])
    if not hooks:
        return client

    def patient(hook: Callable[[Any], Any]) -> Callable[[Any], Any]:
        async def call(response: Any) -> None:
            try:
                await hook(response)
            except Exception as error:  # noqa: BLE001  # the hook's own business
                raised.append(error)

        def call_blocking(response: Any) -> None:
            try:
                hook(response)
            except Exception as error:  # noqa: BLE001  # the hook's own business
                raised.append(error)

        return call if hasattr(client, "aclose") else call_blocking

    other = copy.copy(client)
    other.event_hooks = {**client.event_hooks, "response": [patient(hook) for hook in hooks]}
    return other


def _raw(response: Any, raw: str, decoded: str) -> Any:
    """The raw body; or the decompressed one, if the client gives no other."""
    chunks: AsyncIterator[bytes] | Iterator[bytes] = getattr(response, decoded if _is_decoded(response) else raw)()
    return chunks


def _is_decoded(response: Any) -> bool:
    """The client gives only decompressed content: it has no other way, or has read the body beforehand."""
    raw = hasattr(response, "aiter_raw") or hasattr(response, "iter_raw")
    return not raw or bool(getattr(response, "is_stream_consumed", False))


def _timeouts(client: Any, **seconds: float | None) -> dict[str, Any]:
    """Arguments of a request that change some of the client's own timeouts."""
    own = getattr(client, "timeout", None)
    if own is None:
        return {}
    kept = {"connect": own.connect, "read": own.read, "write": own.write, "pool": own.pool}
    return {"timeout": type(own)(**{**kept, **seconds})}


def _judge(error: Exception) -> Verdict:
    names = {kind.__name__ for kind in type(error).__mro__}
    if "PoolTimeout" in names:
        return Verdict(unsent=True, hint="its pool has no connection to spare: raise httpx.Limits")
    if "ReadTimeout" in names:
        return Verdict(hint="nothing came for the client's own read timeout: set idle_timeout")
    return Verdict(unsent=bool(names & _UNSENT), cut=bool(names & _CUT))
