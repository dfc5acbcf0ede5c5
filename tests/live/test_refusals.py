"""What the server refuses, and how: in the stream, with a message, and without a token that could be trained on."""

from __future__ import annotations

from typing import Any

import pytest

from ssefold import ServerError
from ssefold.adapters.rollout import RolloutSample
from tests.live.asks import PATIENCE, PROMPTS, ask, rid_of
from tests.live.server import CONTEXT, LAYERS, TOP_K, LiveServer
from tests.transports.stacks import BoundClient, Stack, read


@pytest.mark.parametrize("interval", [1, 8])
@pytest.mark.parametrize("prompt", [CONTEXT + 1, CONTEXT - 3], ids=["prompt too long", "no room for the answer"])
def test_a_prompt_that_is_too_long(stack: Stack, live: LiveServer, prompt: int, interval: int) -> None:
    payload = ask(30, prompt=[7] * prompt, interval=interval)

    async def test(client: BoundClient) -> None:
        with pytest.raises(ServerError, match=str(CONTEXT)) as caught:
            async with client.generate(live.generate, payload, **PATIENCE) as stream:
                await read(stream)
        assert (caught.value.code, caught.value.type) == (400, "invalid_request_error")
        assert caught.value.partial == {}

    stack.run(test)


def test_one_prompt_too_long_fails_the_batch(stack: Stack, live: LiveServer) -> None:
    payload = ask(30, prompt=[PROMPTS[0], [7] * (CONTEXT + 1)])

    async def test(client: BoundClient) -> None:
        with pytest.raises(ServerError, match=str(CONTEXT)) as caught:
            async with client.generate(live.generate, payload, **PATIENCE) as stream:
                await read(stream)
        assert (caught.value.code, caught.value.index) == (400, None)

    stack.run(test)


@pytest.mark.parametrize("start", [-1, len(PROMPTS[1]) + 1])
@pytest.mark.parametrize("logprobs", [True, False])
def test_a_start_outside_the_prompt(stack: Stack, live: LiveServer, start: int, logprobs: bool) -> None:
    """The scheduler refuses it, and sends a token of a prompt that nobody asked about, with a row of routing."""
    payload = ask(30, prompt=PROMPTS[1], return_routed_experts=True, routed_experts_start_len=start)
    payload["return_logprob"] = logprobs

    async def test(client: BoundClient) -> None:
        async with client.generate(live.generate, payload, **PATIENCE) as stream:
            updates = await read(stream)
        (output,) = stream.outputs.values()
        assert len(live.truth.sent(rid_of(output)).token_ids) == 1
        assert list(output.token_ids) == list(output.logprobs) == []
        assert output.text() == ""
        assert [token for update in updates for token in update.token_ids] == []
        assert output.finish_reason.is_failure
        assert output.finish_reason.status_code == 400
        assert "routed_experts_start_len" in output.finish_reason.message

    stack.run(test)


def test_a_refused_rollout_has_failed(stack: Stack, live: LiveServer) -> None:
    async def test(client: BoundClient) -> None:
        sample = RolloutSample(PROMPTS[1], sampling_params={"max_new_tokens": 9}, num_layers=LAYERS, top_k=TOP_K)
        payload = {**sample.next_payload(), "routed_experts_start_len": 99}
        async with client.generate(live.generate, payload, **PATIENCE) as stream:
            async for update in stream:
                sample.apply(update)
        assert sample.status == "failed"
        assert list(sample.token_ids) == []
        assert sample.routed_experts is None

    stack.run(test)


@pytest.mark.parametrize(
    "bad",
    [{"top_p": 7.0}, {"temperature": -1.0}, {"max_new_tokens": -3}],
    ids=["top_p", "temperature", "max_new_tokens"],
)
def test_parameters_out_of_range(stack: Stack, live: LiveServer, bad: dict[str, Any]) -> None:
    payload = ask(30)
    payload["sampling_params"] = {**payload["sampling_params"], **bad}

    async def test(client: BoundClient) -> None:
        with pytest.raises(ServerError) as caught:
            async with client.generate(live.generate, payload, **PATIENCE) as stream:
                await read(stream)
        assert caught.value.code == 400

    stack.run(test)


def test_an_id_that_is_taken(stack: Stack, live: LiveServer) -> None:
    async def test(client: BoundClient) -> None:
        async with client.generate(live.generate, ask(1500), **PATIENCE) as first:
            await first.__anext__()
            with pytest.raises(ServerError) as caught:
                async with client.generate(live.generate, ask(5), rid=first.rid, **PATIENCE) as second:
                    await read(second)
            assert caught.value.code == 400
            await first.abort()

    stack.run(test)
