"""Any anyio receive stream as the source of a stream of updates."""

from __future__ import annotations

from typing import TYPE_CHECKING

import anyio

from .._engine import Folding, Head, UpdateStream, Verdict

if TYPE_CHECKING:
    from anyio.abc import ByteReceiveStream, ObjectReceiveStream
    from typing_extensions import Self

    from ssefold import Update

    from .._engine import Options, PreparedRequest

RECEIVE = 2**16
"""Bytes asked of a socket at once: with less, a large event costs more turns of the event loop than it needs."""


def decode_stream(source: ByteReceiveStream | ObjectReceiveStream[bytes], options: Options) -> UpdateStream:
    """See :func:`ssefold.transports.anyio.decode`."""
    return _DecodedStream(source, options)


class _DecodedStream(UpdateStream):
    def __init__(self, source: ByteReceiveStream | ObjectReceiveStream[bytes], options: Options) -> None:
        super().__init__(Folding(options), options, "the byte stream")
        self._exchange = _Source(source)

    async def __aenter__(self) -> Self:
        self._use(self._open_exchange)
        return self

    async def __anext__(self) -> Update:
        if self._known_runtime is None:  # iterated as it is
            self._use(self._open_exchange)
        return await super().__anext__()


class _Source:
    """See :class:`._engine.exchange.Exchange`; open from the start."""

    fragile = False

    def __init__(self, source: ByteReceiveStream | ObjectReceiveStream[bytes]) -> None:
        self._source = source

    async def open(self, request: PreparedRequest) -> Head:
        raise RuntimeError("a decoded stream is open from the start")

    async def read(self) -> bytes:
        try:
            return await self._source.receive()
        except anyio.EndOfStream:
            return b""

    def rest(self) -> bytes:
        return b""

    def hurry(self, seconds: float) -> None:
        pass  # the stream ends a read that takes too long

    def judge(self, error: Exception) -> Verdict:
        return Verdict()

    async def close(self) -> bytes:
        await self._source.aclose()
        return b""
