"""Streams over httpx, or over a client with the same interface: ``stream``, and a response to iterate (such as httpx2).

``generate`` takes an ``AsyncClient`` (asyncio or trio) or a ``Client``, which stays the caller's own: its pool, TLS,
proxies, authentication and hooks apply.  httpx itself is not imported; only what a client can do is looked at.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, overload

from .._engine import GenerateStream, SyncGenerateStream, checked, collect_stream, collect_sync_stream, prepare
from ._async import Httpx
from ._blocking import SyncHttpx

if TYPE_CHECKING:
    import httpx
    from typing_extensions import Unpack

    from .._engine import GenerateOptions

__all__ = ["collect", "collect_sync", "generate"]


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
        return SyncGenerateStream(SyncHttpx(client), request, given)
    return GenerateStream(Httpx(client), request, given)


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
