"""Checklist, part 8: the trickiest points."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from types import SimpleNamespace
from typing import Any

import pytest

from ssefold import StreamError
from ssefold.adapters import slime as adapter

from ..fakes import STOP, b64, lines_response, stream_of
from .runs import Run


def test_point_1_what_is_sent_does_not_grow_with_the_sample(slime: Any) -> None:
    """A client that encodes its body late would otherwise send the answer as part of the question."""
    bodies: list[dict[str, Any]] = []

    @asynccontextmanager
    async def stream(method: str, url: str, json: Any, headers: Any) -> AsyncIterator[Any]:
        bodies.append(json)
        yield lines_response(stream_of([11, 12], incremental=True, finish=STOP))

    encoded = [1, 2]
    run = Run(slime)
    run.client.stream = stream  # type: ignore[method-assign]
    run.state.tokenizer.encode = lambda *_args, **_kwargs: encoded
    sample = run(slime.Sample(prompt="p"))
    assert sample.tokens == [1, 2, 11, 12]
    assert (bodies[0]["input_ids"], encoded) == ([1, 2], [1, 2])
    resumed = slime.Sample(prompt="p", tokens=[1, 2, 5], response_length=1, rollout_log_probs=[-0.5], loss_mask=[1])
    run(resumed)
    assert bodies[1]["input_ids"] == [1, 2, 5]


def test_point_2_a_second_call_on_the_same_parameters_does_not_subtract_twice(slime: Any) -> None:
    params = {"max_new_tokens": 8}
    responses = [lines_response(stream_of([11], incremental=True, finish=STOP)) for _ in range(2)]
    run = Run(slime, *responses)
    for _ in responses:
        sample = slime.Sample(prompt="p", tokens=[1, 2, 5], response_length=1, rollout_log_probs=[-0.5], loss_mask=[1])
        asyncio.run(adapter.generate_streaming(run.args, sample, params))
    assert [body["sampling_params"]["max_new_tokens"] for _, body, _ in run.client.requests] == [7, 7]


def test_point_3_cancelled_by_slime(slime: Any) -> None:
    """slime cancels the task, catches the cancellation outside, and goes on in the same task."""
    seen = asyncio.Event()

    async def lines() -> AsyncIterator[str]:
        yield "data: " + json.dumps(stream_of([11], incremental=True)[0])
        seen.set()
        await asyncio.Event().wait()

    run = Run(slime, SimpleNamespace(raise_for_status=lambda: None, aiter_lines=lines))
    run.state.semaphore, run.state.cancellable_tasks = asyncio.Semaphore(1), set()
    run.state.pendings, run.state.active_server_generations = set(), 0
    sample = slime.Sample(prompt="p")

    async def exercise() -> Any:
        task = asyncio.create_task(slime.sglang_rollout.generate_and_rm(run.args, sample, {"max_new_tokens": 8}))
        await seen.wait()
        await slime.sglang_rollout.abort(run.args, rollout_id=0)
        return await task

    assert asyncio.run(exercise()) is sample
    assert (sample.tokens, sample.response, sample.status) == ([1, 2, 11], "<11>", slime.Sample.Status.ABORTED)
    assert run.client.closed == 1


@pytest.mark.parametrize("incremental", [True, False])
def test_point_4_a_terminal_chunk_without_tokens_brings_everything_again(slime: Any, incremental: bool) -> None:
    chunks = stream_of([11, 12], incremental=incremental)
    rows: dict[str, Any] = {"top_p_token_ids": b64([60, 61]), "top_p_token_offsets": b64([0, 1, 2])}
    last = stream_of([] if incremental else [11, 12], incremental=True, step=5, finish=STOP, **rows)[0]
    last["meta_info"].update(output_token_logprobs_length=2, completion_tokens=2, routed_experts=b64([101, 102, 103]))
    run = Run(slime, lines_response([*chunks, last]), sglang_incremental_streaming_output=incremental)
    sample = run(slime.Sample(prompt="p"))
    assert (sample.tokens, sample.rollout_log_probs, sample.loss_mask) == ([1, 2, 11, 12], [-0.11, -0.12], [1, 1])
    assert sample.rollout_top_p_token_ids.tolist() == [60, 61]
    assert sample.rollout_routed_experts.tolist() == [[[101]], [[102]], [[103]]]
    assert sample.prefix_cache_info.total_prompt_tokens == 2


def test_point_6_an_error_event_is_a_value_error_with_the_servers_own_words(slime: Any) -> None:
    sample = slime.Sample(prompt="p")
    chunks = [*stream_of([11], incremental=True), {"error": {"message": "CUDA out of memory", "code": 500}}]
    with pytest.raises(ValueError, match="CUDA out of memory") as raised:
        Run(slime, lines_response(chunks))(sample)
    assert isinstance(raised.value, StreamError)
    assert list(raised.value.partial[0].token_ids) == [11]
    assert (sample.tokens, sample.response) == ([1, 2, 11], "<11>")


def test_point_7_a_stalled_stream_notices_cancellation_only(slime: Any) -> None:
    waiting = asyncio.Event()

    async def lines() -> AsyncIterator[str]:
        waiting.set()
        await asyncio.Event().wait()
        yield ""

    run = Run(slime, SimpleNamespace(raise_for_status=lambda: None, aiter_lines=lines))

    async def exercise() -> None:
        task = asyncio.create_task(run.call(slime.Sample(prompt="p")))
        await waiting.wait()
        run.state.aborted = True
        await asyncio.sleep(0)
        assert not task.done()
        task.cancel()
        await asyncio.wait([task])
        assert task.cancelled()

    asyncio.run(exercise())
