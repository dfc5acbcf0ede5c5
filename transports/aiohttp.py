"""Streams over an ``aiohttp.ClientSession``, which stays the caller's own: its connector, TLS, cookies and hooks apply.

Reads take whatever has arrived (``readany``), so there is no line-length limit.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from ._engine import BODY_SIZE, GenerateStream, Head, Verdict, checked, collect_stream, gate_of, prepare

try:
    import aiohttp
except ImportError as _missing:
    raise ImportError("ssefold.transports.aiohttp needs aiohttp: pip install 'ssefold[aiohttp]'") from _missing

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from ._engine import GenerateOptions, PreparedRequest

__all__ = ["collect", "generate"]

# What the session does by default, and what a stream does instead: status and encoding are looked at here.
_OURS: dict[str, Any] = {"allow_redirects": False, "raise_for_status": False, "auto_decompress": False}


def generate(
    session: aiohttp.ClientSession, url: object, payload: Mapping[str, Any], **options: Unpack[GenerateOptions]
) -> GenerateStream:
    """One ``POST`` of ``payload`` to ``url``, streamed; nothing is sent before the block is entered.

    :param options: :class:`GenerateOptions`.
    :raises PayloadError: the payload cannot be sent.
    :raises ValueError: an option makes no sense.
    """
    given = checked(options)
    request = prepare(url, payload, rid=given.rid, headers=given.headers)
    return GenerateStream(_Session(session), request, given)


async def collect(
    session: aiohttp.ClientSession, url: object, payload: Mapping[str, Any], **options: Unpack[GenerateOptions]
) -> dict[int, dict[str, Any]]:
    """The answer as ``stream: false`` would give it, by output index.

    :raises StreamError: with the partial result in ``.partial``; a cancellation gets a ``.partial``, too.
    """
    return await collect_stream(generate(session, url, payload, **options))


class _Session:
    """See :class:`._engine.exchange.Client`."""

    def __init__(self, session: aiohttp.ClientSession) -> None:
        self._session = session
        self.gate = gate_of(session)

    def exchange(self, idle_timeout: float | None) -> _Exchange:  # kept by the stream
        return _Exchange(self._session)

    async def call(
        self, method: str, url: str, body: bytes, headers: Mapping[str, str], *, timeout: float, patience: float
    ) -> tuple[int, bytes]:
        limits = aiohttp.ClientTimeout(total=timeout, connect=patience)
        async with self._session.request(
            method, url, data=body or None, headers=headers, timeout=limits, **_OURS
        ) as response:
            return response.status, await response.content.read(BODY_SIZE)

    def judge(self, error: Exception) -> Verdict:
        return _judge(error)


class _Exchange:
    """See :class:`._engine.exchange.Exchange`."""

    fragile = False  # a read waits for one future of ours

    def __init__(self, session: aiohttp.ClientSession) -> None:
        self._session = session
        self._response: aiohttp.ClientResponse | None = None
        self._connection_closed: asyncio.Future[None] | None = None

    async def open(self, request: PreparedRequest) -> Head:
        response = self._response = await self._session.post(
            request.url, data=request.body, headers=request.headers, **_OURS
        )
        self._watch(response)
        headers = response.headers
        return Head(
            response.status,
            headers.get("content-type", ""),
            ",".join(headers.getall("content-encoding", [])),
            headers.get("retry-after", ""),
        )

    def read(self) -> Awaitable[bytes]:
        return self._opened.content.readany()  # no coroutine around it: each read would pay for that

    def rest(self) -> bytes:
        # aiohttp reports a broken connection before the bytes that arrived ahead of it.
        return _left_over(self._opened)

    @property
    def _opened(self) -> aiohttp.ClientResponse:
        if self._response is None:
            raise RuntimeError("the exchange is not open")
        return self._response

    def _watch(self, response: aiohttp.ClientResponse) -> None:
        # When the framing of a body is wrong, aiohttp closes the connection, and does not wake the reader of the body.
        connection = response.connection
        self._connection_closed = getattr(getattr(connection, "protocol", None), "closed", None)
        if self._connection_closed is not None:
            self._connection_closed.add_done_callback(self._lost)

    def _lost(self, closed: asyncio.Future[None]) -> None:
        reason = None if closed.cancelled() else closed.exception()
        content = None if self._response is None else self._response.content
        if content is not None and content.exception() is None and not content.is_eof():
            content.set_exception(reason or aiohttp.ClientPayloadError("the connection was closed inside the body"))

    def hurry(self, seconds: float) -> None:
        pass  # the stream ends a read that takes too long

    def judge(self, error: Exception) -> Verdict:
        return _judge(error)

    async def close(self) -> bytes:
        response, self._response = self._response, None
        if response is None:
            return b""
        closed = self._connection_closed
        if closed is not None:
            # The connection may serve other requests later, and its end is then no failure of this one.
            for callback in (self._lost, _look_at):
                closed.remove_done_callback(callback)
            with suppress(RuntimeError):  # the loop is closed
                closed.add_done_callback(_look_at)
        left = _left_over(response)
        if response.content.at_eof():
            response.release()
        else:
            response.close()
            await asyncio.sleep(0)  # the transport closes its socket with the loop's next turn
        return left


def _look_at(closed: asyncio.Future[None]) -> None:
    if not closed.cancelled():
        closed.exception()


def _left_over(response: aiohttp.ClientResponse) -> bytes:
    """Bytes that have arrived and were not read."""
    # read_nowait() refuses once the connection has failed, although the bytes are there.
    take: Callable[[int], bytes] | None = getattr(response.content, "_read_nowait", None)
    if take is not None:
        with suppress(Exception):  # the session's total timeout is over, and aiohttp gives out nothing more
            return take(-1)
    return b""


def _judge(error: Exception) -> Verdict:
    if isinstance(error, aiohttp.ClientConnectorError | aiohttp.ConnectionTimeoutError):
        return Verdict(unsent=True)
    if isinstance(error, asyncio.TimeoutError):
        return Verdict(
            hint="the session's own timeout ended the stream; aiohttp's default is 300 s in all: "
            "ClientSession(timeout=aiohttp.ClientTimeout(total=None)), and idle_timeout here"
        )
    return Verdict(cut=isinstance(error, aiohttp.ServerDisconnectedError | aiohttp.ClientOSError))
