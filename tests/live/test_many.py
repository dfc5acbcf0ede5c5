"""32 streams at once, four times what the server runs at once."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from ssefold.transports import gather
from tests.live.asks import PATIENCE, PROMPTS, ask, check_all
from tests.live.server import LiveServer
from tests.transports.stacks import BoundClient, Stack

anyio = pytest.importorskip("anyio", reason="the tests run on anyio")

STREAMS = 32


def payload(number: int) -> dict[str, Any]:
    """Every kind among them."""
    if number % 8 == 7:
        return ask(20, n=2, interval=1)
    prompt = PROMPTS[number % 3]
    return ask(10 + number, prompt=prompt, interval=(1, 8)[number % 2], return_routed_experts=number % 4 == 0)


def outputs(number: int) -> int:
    return 2 if number % 8 == 7 else 1


def test_32_streams_at_once(async_stack: Stack, live: LiveServer) -> None:
    async def test(client: BoundClient) -> None:
        streams = [client.generate(live.generate, payload(number), **PATIENCE) for number in range(STREAMS)]
        results = await gather(streams, limit=STREAMS)
        for number, result in enumerate(results):
            assert result.error is None
            check_all(live, result.outputs, outputs(number))

    async_stack.run(test)


def test_32_blocking_streams_at_once(live: LiveServer) -> None:
    client_library = pytest.importorskip("httpx", reason="needs httpx")
    from ssefold.transports import httpx

    with client_library.Client() as client, ThreadPoolExecutor(STREAMS) as threads:

        def run(number: int) -> Any:
            with httpx.generate(client, live.generate, payload(number), **PATIENCE) as stream:
                for _ in stream:
                    pass
            return stream

        for number, stream in enumerate(threads.map(run, range(STREAMS))):
            check_all(live, stream.outputs, outputs(number))


def test_half_done_and_the_rest_aborted(async_stack: Stack, live: LiveServer) -> None:
    """Over-sampling: once 16 are done, the others are aborted and keep what came."""

    async def test(client: BoundClient) -> Any:
        streams = [
            client.generate(live.generate, ask(12 if number % 2 else 600), **PATIENCE) for number in range(STREAMS)
        ]
        return await gather(
            streams, limit=STREAMS, abort_when=lambda results: sum(result.done for result in results) >= STREAMS // 2
        )

    results = async_stack.run(test)
    assert sum(result.aborted for result in results) >= 1
    for result in results:
        assert result.error is None
        (output,) = result.outputs.values()
        sent = live.truth.end_of(result.stream.rid)
        assert list(output.token_ids) == sent.token_ids
        assert list(output.logprobs) == sent.logprobs
        if output.finish_reason.type == "abort":
            assert result.aborted
        else:  # to its end, before it was told
            assert len(output.token_ids) in (12, 600)
