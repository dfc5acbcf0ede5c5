"""When the output has its ``finish_reason``, whatever the connection does then is no failure."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from types import SimpleNamespace
from typing import Any

import pytest

from ssefold import ProtocolError
from ssefold.adapters.slime import SGLangStreamAccumulator

from ..fakes import STOP, b64, chunk, lines_response, pairs_of, stream_of
from .runs import Run


class ReadError(Exception):
    """The client's own."""


def ending(what: str, *, done: bool, waiting: asyncio.Event | None = None) -> Any:
    async def lines() -> AsyncIterator[str]:
        for item in stream_of([11, 12], incremental=True, finish=STOP):
            yield "data: " + json.dumps(item)
        if done:
            yield "data: [DONE]"
        if what == "reset":
            raise ReadError
        while what == "comments":
            yield ": still here"
            await asyncio.sleep(0)
        if waiting is not None:
            waiting.set()
        await asyncio.Event().wait()

    return SimpleNamespace(raise_for_status=lambda: None, aiter_lines=lines)


@pytest.mark.parametrize("done", [True, False])
@pytest.mark.parametrize("what", ["silence", "comments", "reset"])
def test_nothing_is_a_failure_after_the_finish_reason(slime: Any, what: str, done: bool) -> None:
    run = Run(slime, ending(what, done=done), ssefold_abort_timeout=0.05)

    async def exercise() -> Any:
        sample = await run.call(slime.Sample(prompt="p"))
        assert len(asyncio.all_tasks()) == 1
        return sample

    sample = asyncio.run(exercise())
    assert (sample.tokens, sample.status) == ([1, 2, 11, 12], slime.Sample.Status.COMPLETED)
    assert run.client.closed == 1


def test_a_cancellation_while_the_rest_is_waited_for(slime: Any) -> None:
    waiting = asyncio.Event()
    run = Run(slime, ending("silence", done=True, waiting=waiting))
    sample = slime.Sample(prompt="p")

    async def exercise() -> None:
        task = asyncio.create_task(run.call(sample))
        await waiting.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert len(asyncio.all_tasks()) == 1

    asyncio.run(exercise())
    assert (sample.tokens, sample.response, run.client.closed) == ([1, 2, 11, 12], "<11><12>", 1)


# ---- an end that does not hold for what was counted


def uncounted(rows: Any, length: int = 3) -> dict[str, Any]:
    item = chunk("abc", rows, length, finish_reason=STOP, id="r", prompt_tokens=2, completion_tokens=3)
    item["output_ids"] = [11, 12, 13]
    if rows is ...:
        del item["meta_info"]["output_token_logprobs"]
    return item


@pytest.mark.parametrize("rows", [None, ..., []], ids=["null", "absent", "empty"])
@pytest.mark.parametrize("incremental", [True, False, None])
def test_rows_that_were_counted_and_did_not_come(slime: Any, rows: Any, incremental: bool | None) -> None:
    sample = slime.Sample(prompt="p")
    with pytest.raises(ProtocolError, match="output_token_logprobs"):
        Run(slime, lines_response([uncounted(rows)]), sglang_incremental_streaming_output=incremental)(sample)
    assert (sample.tokens, sample.status) == ([1, 2], slime.Sample.Status.PENDING)


@pytest.mark.parametrize("rows", [None, ..., []], ids=["null", "absent", "empty"])
@pytest.mark.parametrize("mode", ["auto", "incremental", "cumulative"])
def test_the_accumulator_does_not_take_them_either(rows: Any, mode: Any) -> None:
    with pytest.raises(ProtocolError, match="output_token_logprobs"):
        SGLangStreamAccumulator(mode).add(uncounted(rows))


def test_a_terminal_chunk_without_text(slime: Any) -> None:
    """slime decodes what a chunk without text brings, also where the chunk says everything anew."""
    rows = {"top_p_token_ids": b64([60, 61]), "top_p_token_offsets": b64([0, 1, 2])}
    last = chunk(None, pairs_of([12]), 2, finish_reason=STOP, id="r", prompt_tokens=2, completion_tokens=2, **rows)
    chunks = [*stream_of([11], incremental=True), {**last, "output_ids": [12]}]
    assert Run(slime, lines_response(chunks))(slime.Sample(prompt="p")).response == "(11)(12)"


def test_a_weight_version_beside_an_empty_terminal_chunk(slime: Any) -> None:
    """Newer samples take it only beside tokens; without streaming all of them are beside it."""
    last = chunk("", [], 2, finish_reason=STOP, weight_version="v1", prompt_tokens=2, completion_tokens=2, id="r")
    chunks = [*stream_of([11, 12], incremental=True), last]
    sample = Run(slime, lines_response(chunks))(slime.Sample(prompt="p"))
    assert (sample.weight_versions, sample.tokens) == (["v1"], [1, 2, 11, 12])


@pytest.mark.parametrize("rows", [{"top_p_token_ids": "", "top_p_token_offsets": b64([0])}, {}])
def test_an_empty_terminal_chunk_after_rows_chunk_by_chunk(slime: Any, rows: dict[str, Any]) -> None:
    chunks = stream_of([11, 12], incremental=True)
    for item in chunks:
        item["meta_info"].update(top_p_token_ids=b64([60, 61]), top_p_token_offsets=b64([0, 2]))
    last = chunk("", [], 2, finish_reason=STOP, prompt_tokens=2, completion_tokens=2, id="r", **rows)
    sample = Run(slime, lines_response([*chunks, last]))(slime.Sample(prompt="p"))
    assert (sample.tokens, sample.status) == ([1, 2, 11, 12], slime.Sample.Status.COMPLETED)
    assert sample.rollout_top_p_token_offsets.tolist() == [0, 2, 4]
