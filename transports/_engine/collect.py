"""Streams read to their end, for callers who need only the whole answer."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ssefold import Accumulator

    from .blocking import SyncGenerateStream
    from .stream import GenerateStream


async def collect_stream(stream: GenerateStream) -> dict[int, dict[str, Any]]:
    """Every output's native response, once all are complete."""
    try:
        async with stream:
            async for _ in stream:
                pass
    except BaseException as error:
        _attach(error, stream)
        raise
    return _responses(stream.outputs)


def collect_sync_stream(stream: SyncGenerateStream) -> dict[int, dict[str, Any]]:
    """:func:`collect_stream`, blocking."""
    try:
        with stream:
            for _ in stream:
                pass
    except BaseException as error:
        _attach(error, stream)
        raise
    return _responses(stream.outputs)


def _attach(error: BaseException, stream: GenerateStream | SyncGenerateStream) -> None:
    """Attach the partial result, also to cancellations and to exceptions that are not ours."""
    with suppress(AttributeError):  # an exception class without room for it
        error.partial = stream.snapshot()  # type: ignore[attr-defined]


def _responses(outputs: Mapping[int, Accumulator]) -> dict[int, dict[str, Any]]:
    return {index: output.native_response() for index, output in outputs.items()}
