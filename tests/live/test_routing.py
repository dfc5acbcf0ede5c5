"""Routed experts: one row for each token that was fed, cropped or not, as the scheduler sent them."""

from __future__ import annotations

from typing import Any

import pytest

from tests.live.asks import PATIENCE, PROMPTS, ask, check_all, rid_of, saying
from tests.live.server import EXPERTS, LAYERS, TOP_K, LiveServer
from tests.transports.stacks import BoundClient, Stack, read

PROMPT = PROMPTS[1]
STARTS = [None, 0, 2, len(PROMPT) - 1, len(PROMPT)]
SHAPES: dict[str, tuple[dict[str, Any], int]] = {
    "single": ({"prompt": PROMPT}, 1),
    "n=2": ({"prompt": PROMPT, "n": 2}, 2),
    "batch": ({"prompt": [PROMPT, [*PROMPT, 9]]}, 2),
}


def routing_ask(tokens: int, start: int | None, **more: Any) -> dict[str, Any]:
    start_len = {} if start is None else {"routed_experts_start_len": start}
    return ask(tokens, return_routed_experts=True, **start_len, **more)


@pytest.mark.parametrize("start", STARTS)
@pytest.mark.parametrize("shape", SHAPES)
def test_rows_are_placed(stack: Stack, live: LiveServer, shape: str, start: int | None) -> None:
    more, count = SHAPES[shape]

    async def test(client: BoundClient) -> None:
        async with client.generate(live.generate, routing_ask(17, start, **more), **PATIENCE) as stream:
            updates = await read(stream)
        check_all(live, stream.outputs, count)
        assert [update for update in updates if update.routed_experts and update.finish_reason is None] == []
        for output in stream.outputs.values():
            meta = output.meta_info
            total = meta["prompt_tokens"] + meta["completion_tokens"]
            rows, first, shape = output.routed_experts.reshape(LAYERS, TOP_K, total_tokens=total, start_len=start or 0)
            assert (rows, first, shape) == (total - 1 - (start or 0), start or 0, (rows, LAYERS, TOP_K))
            assert_experts(output.routed_experts.values)
            placed = output.routed_experts.reshape(LAYERS, TOP_K, total_tokens=total, start_len=start or 0)
            assert placed.array.tolist() == live.truth.sent(rid_of(output)).routing

    stack.run(test)


def assert_experts(values: memoryview) -> None:
    """Each token went to ``TOP_K`` different experts in each layer."""
    assert all(0 <= expert < EXPERTS for expert in values)
    for at in range(0, len(values), TOP_K):
        assert len(set(values[at : at + TOP_K])) == TOP_K


def test_a_cropped_array_is_the_end_of_the_full_one(stack: Stack, live: LiveServer) -> None:
    """Greedy and steered, so that both requests feed the same tokens."""
    if live.processor is None:
        pytest.skip("needs the folder's clp.txt")
    payload = saying(live, range(270, 282), max_new_tokens=12, ignore_eos=True)
    payload["return_routed_experts"] = True

    async def test(client: BoundClient) -> list[Any]:
        found: list[Any] = []
        for start in (0, 3):
            ask = {**payload, "routed_experts_start_len": start}
            async with client.generate(live.generate, ask, **PATIENCE) as stream:
                await read(stream)
            check_all(live, stream.outputs)
            total = len(PROMPT) + 12
            placed = stream.outputs[0].routed_experts.reshape(LAYERS, TOP_K, total_tokens=total, start_len=start)
            assert placed.start == start
            found.append(placed.array.tolist())
        return found

    full, cropped = stack.run(test)
    assert cropped == full[3:]


def test_one_token_after_the_whole_prompt_has_no_row(stack: Stack, live: LiveServer) -> None:
    """The only token was sampled and never fed."""

    async def test(client: BoundClient) -> None:
        ask = routing_ask(1, len(PROMPT), prompt=PROMPT)
        async with client.generate(live.generate, ask, **PATIENCE) as stream:
            await read(stream)
        check_all(live, stream.outputs)
        placed = stream.outputs[0].routed_experts.reshape(
            LAYERS, TOP_K, total_tokens=len(PROMPT) + 1, start_len=len(PROMPT)
        )
        assert (placed.rows, placed.start) == (0, len(PROMPT))

    stack.run(test)
