"""An ``httpx.AsyncClient`` as a client of streams, on asyncio and trio; what httpcore leaks is mended here."""

from __future__ import annotations

from collections.abc import Awaitable, Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from .._engine import BODY_SIZE, Head, Verdict, gate_of
from ._client import is_decoded, judge, raw_body, timeouts, with_patient_hooks

if TYPE_CHECKING:
    from .._engine import PreparedRequest

_DECODED_BY_CLIENTS = {"gzip", "deflate"}


class Httpx:
    """See :class:`._engine.exchange.Client`."""

    def __init__(self, client: Any) -> None:
        self._client = client
        self.gate = gate_of(client)

    def exchange(self, idle_timeout: float | None) -> HttpxExchange:
        # The stream itself keeps the time, so that it can tell the server before the client closes the response.
        return HttpxExchange(self._client, timeouts(self._client, read=None) if idle_timeout else {})

    async def call(
        self, method: str, url: str, body: bytes, headers: Mapping[str, str], *, timeout: float, patience: float
    ) -> tuple[int, bytes]:
        limits = timeouts(self._client, connect=timeout, read=timeout, write=timeout, pool=patience)
        client = with_patient_hooks(self._client, [])
        answer = b""
        made: list[Any] = []
        context = client.stream(method, url, content=body, headers=dict(headers), **limits, **_noting(url, made))
        response = await _entered(context, self._client, made)
        try:
            chunks = raw_body(response, "aiter_raw", "aiter_bytes")
            while len(answer) < BODY_SIZE and (data := await anext(chunks, b"")):
                answer += data
        finally:
            await context.__aexit__(None, None, None)
        return response.status_code, answer

    def judge(self, error: Exception) -> Verdict:
        return judge(error)


class HttpxExchange:
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
        context = with_patient_hooks(self._client, raised).stream(
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
        if is_decoded(response) and encoding.strip().lower() in _DECODED_BY_CLIENTS:
            encoding = ""
        return Head(response.status_code, headers.get("content-type", ""), encoding, headers.get("retry-after", ""))

    def _note(self, url: str) -> dict[str, Any]:
        return _noting(url, self._made) if self._limits or hasattr(self._client, "timeout") else {}

    async def _enter(self, context: Any) -> Any:
        return await _entered(context, self._client, self._made)

    def _chunks_of(self, response: Any) -> Any:
        return raw_body(response, "aiter_raw", "aiter_bytes")

    def read(self) -> Awaitable[bytes]:
        return anext(self._chunks, b"")  # no coroutine around it: each read would pay for that

    def rest(self) -> bytes:
        return b""

    def hurry(self, seconds: float) -> None:
        pass  # the stream ends a read that takes too long

    def judge(self, error: Exception) -> Verdict:
        return judge(error)

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
