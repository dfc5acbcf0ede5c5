"""A rollout that is aborted, cut, carried elsewhere and gone on with: its tokens are those of its calls, in a row."""

from __future__ import annotations

from typing import Any

import pytest

from ssefold.adapters.rollout import RolloutSample
from tests.live.asks import BIAS, PATIENCE, PROMPTS
from tests.live.server import EXPERTS, LAYERS, TOP_K, LiveServer
from tests.transports.stacks import BoundClient, Stack

PARAMS: dict[str, Any] = {"max_new_tokens": 120, "temperature": 1.0, "ignore_eos": True, "logit_bias": BIAS}


async def call(
    client: BoundClient, live: LiveServer, sample: RolloutSample, *, stop_at: int | None = None, abort: bool = True
) -> int:
    """One call, stopped at so many tokens in all; how many tokens it gave."""
    before = len(sample.token_ids)
    payload = sample.next_payload()
    assert payload["input_ids"] == [*sample.prompt_ids, *sample.token_ids]
    async with client.generate(live.generate, payload, **PATIENCE) as stream:
        async for update in stream:
            sample.apply(update)
            if stop_at is not None and len(sample.token_ids) >= stop_at:
                if not abort:
                    break
                stop_at = None
                await stream.abort()
    sent = live.truth.end_of(payload["rid"])
    got = len(sample.token_ids) - before
    assert sent.prompt_tokens == len(payload["input_ids"])
    assert list(sample.token_ids[before:]) == sent.token_ids[:got]
    assert list(sample.logprobs[before:]) == sent.logprobs[:got]
    if abort:
        assert got == len(sent.token_ids)
    return got


def routing_of(live: LiveServer, sample: RolloutSample, number: int) -> list[Any]:
    routing = live.truth.sent(str(sample.calls[number].rid)).routing
    assert routing is not None
    return routing


@pytest.mark.parametrize("interval", [1, 8])
def test_resume_after_aborts(stack: Stack, live: LiveServer, interval: int) -> None:
    async def test(client: BoundClient) -> None:
        params = {**PARAMS, "stream_interval": interval}
        sample = RolloutSample(PROMPTS[1], sampling_params=params, num_layers=LAYERS, top_k=TOP_K)
        await call(client, live, sample, stop_at=10)
        assert sample.status == "aborted"
        await call(client, live, sample, stop_at=len(sample.token_ids) + 10)
        assert sample.status == "aborted"
        sample = RolloutSample.from_bytes(sample.to_bytes())
        await call(client, live, sample)
        assert sample.status == "truncated"
        assert len(sample.token_ids) == 120
        assert len(sample.calls) == 3
        whole = [row for number in range(3) for row in routing_of(live, sample, number)]
        assert sample.routed_experts is not None
        assert sample.routed_experts.shape == (len(PROMPTS[1]) + 119, LAYERS, TOP_K)
        assert sample.routed_experts.array.tolist() == whole

    stack.run(test)


def test_resume_after_the_connection_was_closed(stack: Stack, live: LiveServer) -> None:
    """The call that was cut brought no routing: the next one is asked for all that is missing."""

    async def test(client: BoundClient) -> None:
        sample = RolloutSample(PROMPTS[1], sampling_params=PARAMS, num_layers=LAYERS, top_k=TOP_K)
        await call(client, live, sample, stop_at=10)
        known = len(PROMPTS[1]) + len(sample.token_ids) - 1
        await call(client, live, sample, stop_at=len(sample.token_ids) + 10, abort=False)
        assert not sample.done
        await call(client, live, sample)
        assert sample.status == "truncated"
        assert len(sample.token_ids) == 120
        assert sample.routed_experts is not None
        rows = sample.routed_experts.array.tolist()
        assert rows == routing_of(live, sample, 0) + routing_of(live, sample, 2)
        assert len(routing_of(live, sample, 0)) == known
        assert all(0 <= expert < EXPERTS for expert in sample.routed_experts.values)

    stack.run(test)
