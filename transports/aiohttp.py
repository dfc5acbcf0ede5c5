"""Streams over an ``aiohttp.ClientSession``, which stays the caller's own: its connector, TLS, cookies and hooks apply.

Reads take whatever has arrived (``readany``), so there is no line-length limit.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import aiohttp

from ._engine.abort import BODY_SIZE
from ._engine.answer import Head, idle
from ._engine.collect import collect_stream
from ._engine.errors import TransportError
from ._engine.gate import gate_of
from ._engine.options import Options
from ._engine.request import prepare
from ._engine.stream import GenerateStream

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from ._engine.options import GenerateOptions
    from ._engine.request import PreparedRequest

__all__ = ["collect", "generate"]


def generate(
    session: aiohttp.ClientSession, url: object, payload: Mapping[str, Any], **options: Unpack[GenerateOptions]
) -> GenerateStream:
    """One ``POST`` of ``payload`` to ``url``, streamed; nothing is sent before the block is entered.

    :param options: :class:`GenerateOptions`.
    :raises PayloadError: the payload can not be sent.
    :raises ValueError: an option makes no sense.
    """
    checked = Options(**options)
    request = prepare(url, payload, rid=checked.rid, headers=checked.headers)
    return GenerateStream(_Session(session), request, checked)


async def collect(
    session: aiohttp.ClientSession, url: object, payload: Mapping[str, Any], **options: Unpack[GenerateOptions]
) -> dict[int, dict[str, Any]]:
    """The answer as ``stream: false`` would give it, by output index.

    :raises StreamError: with what came in ``.partial``; a cancellation gets a ``.partial`` as well.
    """
    return await collect_stream(generate(session, url, payload, **options))


class _Session:
    """See :class:`._exchange.Client`."""

    anyio_based = False

    def __init__(self, session: aiohttp.ClientSession) -> None:
        self._session = session
        self.gate = gate_of(session)

    def exchange(self, idle_timeout: float | None) -> _Exchange:
        return _Exchange(self._session, idle_timeout)

    async def call(
        self, method: str, url: str, body: bytes, headers: Mapping[str, str], *, timeout: float, patience: float
    ) -> tuple[int, bytes]:
        limits = aiohttp.ClientTimeout(total=timeout, connect=patience)
        try:
            async with self._session.request(
                method, url, data=body or None, headers=headers, allow_redirects=False, timeout=limits
            ) as response:
                return response.status, await response.content.read(BODY_SIZE)
        except (aiohttp.ClientError, asyncio.TimeoutError, OSError, ValueError) as error:
            raise _failed(f"{method} {url}", error, began=False) from error


class _Exchange:
    """See :class:`._exchange.Exchange`."""

    fragile = False  # a read waits for one future of ours
    closes_at_once = True

    def __init__(self, session: aiohttp.ClientSession, idle_timeout: float | None) -> None:
        self._session = session
        self._idle_timeout = idle_timeout
        self._idle = False
        self._response: aiohttp.ClientResponse | None = None
        self._failure: TransportError | None = None
        self._place = ""
        self._connection_closed: asyncio.Future[None] | None = None

    async def open(self, request: PreparedRequest) -> Head:
        self._place = request.place
        try:
            response = self._response = await self._session.post(
                request.url, data=request.body, headers=request.headers, allow_redirects=False
            )
        except (aiohttp.ClientError, asyncio.TimeoutError, OSError, ValueError) as error:
            raise _failed(self._place, error, began=False) from error
        self._watch(response)
        encoding = response.headers.get("content-encoding", "").strip().lower()
        return Head(
            response.status,
            response.headers.get("content-type", ""),
            "" if self._session.auto_decompress and "," not in encoding else encoding,
        )

    async def read(self) -> bytes:
        response = self._response
        if response is None:
            return b""
        if self._failure is not None:
            raise self._failure
        content = response.content
        timer = None
        if self._idle_timeout is not None:
            timer = asyncio.get_running_loop().call_later(self._idle_timeout, self._expire)
        try:
            return await content.readany()
        except (aiohttp.ClientError, asyncio.TimeoutError, OSError) as error:
            self._failure = (
                idle(self._place, self._idle_timeout) if self._idle else _failed(self._place, error, began=True)
            )
            self._failure.__cause__ = error
            # aiohttp reports a broken connection before the bytes that arrived ahead of it.
            left = _left_over(response)
            if left:
                return left
            raise self._failure from error
        finally:
            if timer is not None:
                timer.cancel()

    def _watch(self, response: aiohttp.ClientResponse) -> None:
        # When the framing of a body breaks, aiohttp closes the connection, and tells nobody who waits for the body.
        connection = response.connection
        self._connection_closed = getattr(getattr(connection, "protocol", None), "closed", None)
        if self._connection_closed is not None:
            self._connection_closed.add_done_callback(self._lost)

    def _lost(self, closed: asyncio.Future[None]) -> None:
        reason = None if closed.cancelled() else closed.exception()
        content = None if self._response is None else self._response.content
        if content is not None and content.exception() is None and not content.is_eof():
            content.set_exception(reason or aiohttp.ClientPayloadError("the connection was closed amid the body"))

    def _expire(self) -> None:
        # The read ends, but not the connection: a server must be told before that.
        self._idle = True
        if self._response is not None:
            self._response.content.set_exception(asyncio.TimeoutError())

    def hurry(self, seconds: float) -> None:
        self._idle_timeout = seconds

    async def close(self) -> bytes:
        response, self._response = self._response, None
        if response is None:
            return b""
        closed = self._connection_closed
        if closed is not None:
            # The connection may serve many others, and whatever ends it then is nobody's failure.
            for callback in (self._lost, _look_at):
                closed.remove_done_callback(callback)
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
    """What has arrived and was not read."""
    # read_nowait() refuses once the connection has failed, although the bytes are there.
    take: Callable[[int], bytes] | None = getattr(response.content, "_read_nowait", None)
    if take is not None:
        with suppress(asyncio.TimeoutError):  # the session's total timeout is over, and aiohttp gives out nothing more
            return take(-1)
    return b""


def _failed(place: str, error: Exception, *, began: bool) -> TransportError:
    """What the client reported, in our words; ``began``: the response had begun."""
    what = f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
    if isinstance(error, aiohttp.ClientConnectorError | aiohttp.ConnectionTimeoutError):
        return TransportError(f"no connection to {place}: {what}", retryable=True)
    if isinstance(error, asyncio.TimeoutError):
        return TransportError(
            f"the session's own timeout ended the stream from {place}: {what}; aiohttp's default is 300 s in all: "
            "ClientSession(timeout=aiohttp.ClientTimeout(total=None)), and idle_timeout here"
        )
    if began:
        return TransportError(f"reading from {place} failed: {what}")
    cut = isinstance(error, aiohttp.ServerDisconnectedError | aiohttp.ClientOSError)
    return TransportError(f"{place} gave no answer: {what}", retryable=cut)
