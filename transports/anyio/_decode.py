"""Any anyio receive stream as the source of a stream of updates."""

from __future__ import annotations

from typing import TYPE_CHECKING

import anyio

from .._engine.answer import Head
from .._engine.errors import TransportError
from .._engine.folding import Folding
from .._engine.update_stream import UpdateStream

if TYPE_CHECKING:
    from anyio.abc import ByteReceiveStream, ObjectReceiveStream

    from .._engine.options import Options
    from .._engine.request import PreparedRequest

RECEIVE = 2**16
"""Bytes asked of a socket at once: with less, a large event costs more turns of the event loop than it needs."""


def decode_stream(source: ByteReceiveStream | ObjectReceiveStream[bytes], options: Options) -> UpdateStream:
    """See :func:`ssefold.transports.anyio.decode`."""
    return _DecodedStream(source, options)


class _DecodedStream(UpdateStream):
    def __init__(self, source: ByteReceiveStream | ObjectReceiveStream[bytes], options: Options) -> None:
        super().__init__(Folding(options), options, place="the byte stream", anyio_based=True)
        self._exchange = _Source(source, options.idle_timeout)


class _Source:
    """See :class:`._exchange.Exchange`; open from the start."""

    fragile = False
    closes_at_once = False

    def __init__(self, source: ByteReceiveStream | ObjectReceiveStream[bytes], idle_timeout: float | None) -> None:
        self._source = source
        self._idle_timeout = idle_timeout

    async def open(self, request: PreparedRequest) -> Head:
        raise RuntimeError("a decoded stream is open from the start")

    async def read(self) -> bytes:
        try:
            with anyio.fail_after(self._idle_timeout):
                return await self._source.receive()
        except anyio.EndOfStream:
            return b""
        except TimeoutError as error:
            raise TransportError(
                f"nothing came out of the byte stream for idle_timeout={self._idle_timeout} s"
            ) from error
        except (anyio.BrokenResourceError, anyio.ClosedResourceError, OSError) as error:
            raise TransportError(f"reading from the byte stream failed: {type(error).__name__}: {error}") from error

    def hurry(self, seconds: float) -> None:
        self._idle_timeout = seconds

    async def close(self) -> bytes:
        await self._source.aclose()
        return b""
