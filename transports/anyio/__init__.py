"""Streams over anyio's own sockets with h11, on asyncio and trio; and ``decode`` for bytes from another source.

Each request opens its own connection and closes it: no pool, no proxy, and only TLS to configure.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from .._engine import GenerateStream, checked, collect_stream, prepare

try:
    from ._decode import decode_stream
    from ._h11 import Dialer
except ImportError as _missing:
    raise ImportError("ssefold.transports.anyio needs anyio and h11: pip install 'ssefold[anyio]'") from _missing

if TYPE_CHECKING:
    import ssl

    from anyio.abc import ByteReceiveStream, ObjectReceiveStream
    from typing_extensions import Unpack

    from .._engine import FoldOptions, GenerateOptions, UpdateStream

__all__ = ["collect", "decode", "generate"]


def generate(
    url: object,
    payload: Mapping[str, Any],
    *,
    ssl_context: ssl.SSLContext | None = None,
    **options: Unpack[GenerateOptions],
) -> GenerateStream:
    """One ``POST`` of ``payload`` to ``url``, streamed; nothing is sent before the block is entered.

    :param ssl_context: for ``https``; default: the system's certificates.
    :param options: :class:`GenerateOptions`.
    :raises PayloadError: the payload cannot be sent.
    :raises ValueError: an option makes no sense, or the url is not http or https.
    """
    given = checked(options)
    request = prepare(url, payload, rid=given.rid, headers=given.headers)
    return GenerateStream(Dialer(request, ssl_context), request, given)


async def collect(
    url: object,
    payload: Mapping[str, Any],
    *,
    ssl_context: ssl.SSLContext | None = None,
    **options: Unpack[GenerateOptions],
) -> dict[int, dict[str, Any]]:
    """The answer as ``stream: false`` would give it, by output index.

    :raises StreamError: with the partial result in ``.partial``; a cancellation gets a ``.partial``, too.
    """
    return await collect_stream(generate(url, payload, ssl_context=ssl_context, **options))


def decode(byte_stream: ByteReceiveStream | ObjectReceiveStream[bytes], **options: Unpack[FoldOptions]) -> UpdateStream:
    """The updates of a ``/generate`` body from any anyio byte or object stream.

    Iterate over it directly, or in ``async with``, which closes ``byte_stream`` at its end.

    :param options: :class:`FoldOptions`.
    :raises ValueError: an option makes no sense.
    """
    return decode_stream(byte_stream, checked(options))
