"""A recording sent through a real transport, from a server on loopback: is the result the same as from the bytes?

Knows transports by name, each with its client; the comparison is with what folding the bytes directly gave.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

import httpx

from ssefold import Accumulator, StreamError
from ssefold.transports import GenerateStream, SyncGenerateStream
from ssefold.transports import anyio as over_anyio
from ssefold.transports import httpx as over_httpx

from ..reading import Reading, Reads, Recording
from .server import PlaybackServer

TRANSPORTS = ("httpx", "httpx-sync", "aiohttp", "anyio")


def replay_through(
    name: str, recording: Recording, reading: Reading, reads: Reads | None, *, timing: bool
) -> tuple[list[str], str]:
    """Send it; returns the differences from folding the bytes directly, and the stream's metrics as text.

    :raises ModuleNotFoundError: the transport's client is not installed.
    """
    torn = not reading.done
    with PlaybackServer(recording.read(), reads, timing=timing, torn=torn) as server:
        url = f"{server.url}/generate"
        # As many outputs as there are: a transport refuses the answer to another request.
        count = max(reading.outputs, default=0) + 1
        payload: dict[str, Any] = {"text": "" if count == 1 else [""] * count, "stream": True}
        if name == "httpx-sync":
            with httpx.Client(trust_env=False) as client:
                stream = over_httpx.generate(client, url, payload)
                error = _read_sync(stream)
                return _differences(reading, stream.outputs, error), _numbers(stream)
        return asyncio.run(_through_async(name, url, payload, reading))


async def _through_async(name: str, url: str, payload: dict[str, Any], reading: Reading) -> tuple[list[str], str]:
    if name == "httpx":
        async with httpx.AsyncClient(trust_env=False) as client:
            return await _compare(over_httpx.generate(client, url, payload), reading)
    if name == "aiohttp":
        import aiohttp

        from ssefold.transports import aiohttp as over_aiohttp

        async with aiohttp.ClientSession() as session:
            return await _compare(over_aiohttp.generate(session, url, payload), reading)
    return await _compare(over_anyio.generate(url, payload), reading)


async def _compare(stream: GenerateStream, reading: Reading) -> tuple[list[str], str]:
    error: StreamError | None = None
    try:
        async with stream:
            async for _ in stream:
                pass
    except StreamError as failure:
        error = failure
    return _differences(reading, stream.outputs, error), _numbers(stream)


def _read_sync(stream: SyncGenerateStream) -> StreamError | None:
    try:
        with stream:
            for _ in stream:
                pass
    except StreamError as failure:
        return failure
    return None


def _differences(reading: Reading, outputs: Mapping[int, Accumulator], error: StreamError | None) -> list[str]:
    found: list[str] = []
    if (error is None) != (reading.error is None):
        found.append(f"error {error!s}" if error is not None else f"no error, where the bytes give: {reading.error}")
    for index in sorted(set(outputs) | set(reading.outputs)):
        ours, theirs = reading.outputs.get(index), outputs.get(index)
        if ours is None or theirs is None:
            found.append(f"output {index} came {'through the transport' if ours is None else 'from the bytes'} only")
            continue
        for what, one, other in (
            ("token ids", list(ours.token_ids), list(theirs.token_ids)),
            ("logprobs", list(ours.logprobs), list(theirs.logprobs)),
            ("text", ours.text(), theirs.text()),
            ("finish_reason", ours.finish_reason, theirs.finish_reason),
        ):
            if one != other:
                found.append(f"output {index}: {what} differ")
    return found


def _numbers(stream: GenerateStream | SyncGenerateStream) -> str:
    metrics = stream.metrics
    ttft = "no token" if metrics.ttft is None else f"first token after {metrics.ttft * 1000:,.1f} ms"
    return f"{metrics.bytes:,} bytes, {metrics.events:,} chunks, {ttft}, {metrics.elapsed:.2f} s in all"
