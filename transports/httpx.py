"""Streams over httpx, or over anything with its surface: ``stream``, and a response to iterate (httpx2 included).

``generate`` takes an ``AsyncClient`` (asyncio or trio) or a ``Client``, which stays the caller's own: its pool, TLS,
proxies, authentication and hooks apply.  httpx itself is not imported; only what a client can do is looked at.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import suppress
from time import monotonic
from typing import TYPE_CHECKING, Any, overload

from ._engine.abort import BODY_SIZE
from ._engine.answer import Head
from ._engine.collect import collect_stream, collect_sync_stream
from ._engine.errors import TransportError
from ._engine.gate import gate_of
from ._engine.options import Options
from ._engine.request import prepare
from ._engine.stream import GenerateStream
from ._engine.sync_stream import SyncGenerateStream

if TYPE_CHECKING:
    import httpx
    from typing_extensions import Unpack

    from ._engine.options import GenerateOptions
    from ._engine.request import PreparedRequest

__all__ = ["collect", "collect_sync", "generate"]

_UNSENT = {"ConnectError", "ConnectTimeout", "PoolTimeout"}
_CUT = {"RemoteProtocolError", "ReadError", "WriteError", "CloseError"}
# httpx undoes each read whole.  These two make at most a thousand times as much of it; others, and several on top of
# each other, make gigabytes of a few kilobytes.
_UNDONE = {"gzip", "deflate"}


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
    :raises PayloadError: the payload can not be sent.
    :raises ValueError: an option makes no sense.
    """
    checked = Options(**options)
    request = prepare(url, payload, rid=checked.rid, headers=checked.headers)
    if hasattr(client, "close") and not hasattr(client, "aclose"):
        return SyncGenerateStream(_SyncHttpx(client), request, checked)
    return GenerateStream(_Httpx(client), request, checked)


async def collect(
    client: httpx.AsyncClient, url: object, payload: Mapping[str, Any], **options: Unpack[GenerateOptions]
) -> dict[int, dict[str, Any]]:
    """The answer as ``stream: false`` would give it, by output index.

    :raises StreamError: with what came in ``.partial``; a cancellation gets a ``.partial`` as well.
    """
    return await collect_stream(generate(client, url, payload, **options))


def collect_sync(
    client: httpx.Client, url: object, payload: Mapping[str, Any], **options: Unpack[GenerateOptions]
) -> dict[int, dict[str, Any]]:
    """:func:`collect` for a blocking client."""
    return collect_sync_stream(generate(client, url, payload, **options))


class _Httpx:
    """See :class:`._exchange.Client`."""

    anyio_based = True

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
        parts: list[bytes] = []
        try:
            async with self._client.stream(method, url, content=body, headers=dict(headers), **limits) as response:
                async for data in _chunks(response):
                    parts.append(data)
                    if sum(map(len, parts)) > BODY_SIZE:
                        break
        except Exception as error:
            raise _failed(f"{method} {url}", error, sent=False) from error
        return response.status_code, b"".join(parts)


class _Exchange:
    """See :class:`._exchange.Exchange`."""

    # httpcore cleans up inside the read that was cancelled, and a second cancellation there would leave the connection
    # in the pool for ever (encode/httpx 3782).
    fragile = True
    closes_at_once = False

    def __init__(self, client: Any, limits: dict[str, Any]) -> None:
        self._client = client
        self._limits = limits
        self._context: Any = None
        self._response: Any = None
        self._chunks: AsyncIterator[bytes] | None = None
        self._place = ""
        self._broken = False

    async def open(self, request: PreparedRequest) -> Head:
        self._place = request.place
        try:
            context = self._client.stream(
                "POST", request.url, content=request.body, headers=dict(request.headers), **self._limits
            )
            response = await context.__aenter__()
        except Exception as error:
            raise _failed(self._place, error, sent=False) from error
        self._context = context
        self._response = response
        self._chunks = _chunks(response)
        return _head(response)

    async def read(self) -> bytes:
        chunks = self._chunks
        if chunks is None:
            return b""
        if self._broken:
            raise TransportError(
                f"an earlier read from {self._place} was cancelled, and httpx closed the response then"
            )
        try:
            return await chunks.__anext__()
        except StopAsyncIteration:
            return b""
        except Exception as error:
            raise _failed(self._place, error, sent=True) from error
        except BaseException:
            self._broken = True
            raise

    def hurry(self, seconds: float) -> None:
        pass  # fragile: reads are bounded from outside

    async def close(self) -> bytes:
        context, self._context = self._context, None
        chunks, self._chunks = self._chunks, None
        left: list[bytes] = []
        if context is None or chunks is None:
            return b""
        with suppress(Exception):  # the connection is broken and gone, as was wanted
            await context.__aexit__(None, None, None)
        with suppress(Exception):
            if str(getattr(self._response, "http_version", "")).startswith("HTTP/1"):
                # Reading on gives what the client holds, then fails on the closed socket, which ends the generators
                # that httpx has nested in each other; aclose() would end the outermost alone, to trio's displeasure.
                while not self._broken:
                    left.append(await chunks.__anext__())
            else:
                await chunks.aclose()  # type: ignore[attr-defined]
        return b"".join(left)


class _SyncHttpx:
    """See :class:`._exchange.SyncClient`."""

    def __init__(self, client: Any) -> None:
        self._client = client

    def exchange(self, idle_timeout: float | None) -> _SyncExchange:
        return _SyncExchange(self._client, idle_timeout)

    def call(
        self, method: str, url: str, body: bytes, headers: Mapping[str, str], *, timeout: float, patience: float
    ) -> tuple[int, bytes]:
        limits = _timeouts(self._client, connect=timeout, read=timeout, write=timeout, pool=patience)
        parts: list[bytes] = []
        ends_by = monotonic() + timeout  # the client's own timeouts begin anew with every byte
        try:
            with self._client.stream(method, url, content=body, headers=dict(headers), **limits) as response:
                for data in _sync_chunks(response):
                    parts.append(data)
                    if sum(map(len, parts)) > BODY_SIZE or monotonic() > ends_by:
                        break
        except Exception as error:
            raise _failed(f"{method} {url}", error, sent=False) from error
        return response.status_code, b"".join(parts)


class _SyncExchange:
    """See :class:`._exchange.SyncExchange`."""

    def __init__(self, client: Any, idle_timeout: float | None) -> None:
        self._client = client
        self._idle_timeout = idle_timeout
        self._context: Any = None
        self._chunks: Iterator[bytes] | None = None
        self._place = ""

    def open(self, request: PreparedRequest) -> Head:
        self._place = request.place
        limits = _timeouts(self._client, read=self._idle_timeout) if self._idle_timeout else {}
        try:
            context = self._client.stream(
                "POST", request.url, content=request.body, headers=dict(request.headers), **limits
            )
            response = context.__enter__()
        except Exception as error:
            raise _failed(self._place, error, sent=False, idle_timeout=self._idle_timeout) from error
        self._context = context
        self._chunks = _sync_chunks(response)
        return _head(response)

    def read(self) -> bytes:
        if self._chunks is None:
            return b""
        try:
            return next(self._chunks, b"")
        except Exception as error:
            raise _failed(self._place, error, sent=True, idle_timeout=self._idle_timeout) from error

    def close(self) -> None:
        context, self._context = self._context, None
        chunks, self._chunks = self._chunks, None
        if context is None or chunks is None:
            return
        with suppress(Exception):  # the connection is broken and gone, as was wanted
            context.__exit__(None, None, None)
        with suppress(Exception):
            chunks.close()  # type: ignore[attr-defined]


def _chunks(response: Any) -> AsyncIterator[bytes]:
    # Raw bytes, unless only the client knows how to undo an encoding that nobody asked for.
    raw: Callable[[], AsyncIterator[bytes]] | None = getattr(response, "aiter_raw", None)
    if raw is not None and not _needs_client(response):
        return raw()
    decoded: AsyncIterator[bytes] = response.aiter_bytes()
    return decoded


def _sync_chunks(response: Any) -> Iterator[bytes]:
    raw: Callable[[], Iterator[bytes]] | None = getattr(response, "iter_raw", None)
    if raw is not None and not _needs_client(response):
        return raw()
    decoded: Iterator[bytes] = response.iter_bytes()
    return decoded


def _needs_client(response: Any) -> bool:
    """Only the client has the body: it is encoded, or was read beforehand as test transports do it."""
    return _encoding(response) in _UNDONE or bool(getattr(response, "is_stream_consumed", False))


def _head(response: Any) -> Head:
    encoding = _encoding(response)
    kind = str(_headers(response).get("content-type", ""))
    return Head(response.status_code, kind, "" if encoding in _UNDONE else encoding)


def _encoding(response: Any) -> str:
    return str(_headers(response).get("content-encoding", "")).strip().lower()


def _headers(response: Any) -> Mapping[str, str]:
    headers: Mapping[str, str] = response.headers
    return headers


def _timeouts(client: Any, **seconds: float | None) -> dict[str, Any]:
    """Arguments of a request that change some of the client's own timeouts."""
    own = getattr(client, "timeout", None)
    if own is None:
        return {}
    kept = {"connect": own.connect, "read": own.read, "write": own.write, "pool": own.pool}
    return {"timeout": type(own)(**{**kept, **seconds})}


def _failed(place: str, error: Exception, *, sent: bool, idle_timeout: float | None = None) -> TransportError:
    """What the client reported, in our words; ``sent``: the response had begun."""
    names = {kind.__name__ for kind in type(error).__mro__}
    what = f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
    if names & _UNSENT:
        hint = "; its pool has no connection to spare: raise httpx.Limits" if "PoolTimeout" in names else ""
        return TransportError(f"no connection to {place}: {what}{hint}", retryable=True)
    if "ReadTimeout" in names:
        setting = "the client's own read timeout: set idle_timeout" if idle_timeout is None else f"{idle_timeout=} s"
        return TransportError(f"nothing came from {place} for too long ({setting}): {what}")
    if sent:
        return TransportError(f"reading from {place} failed: {what}")
    return TransportError(f"{place} gave no answer: {what}", retryable=bool(names & _CUT))
