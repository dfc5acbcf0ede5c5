"""How a call of miles' adapter ends: finished, aborted, cut, refused."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from types import SimpleNamespace
from typing import Any

import pytest

from ssefold import PayloadError, ProtocolError, ServerError

from ..fakes import ABORT, RESPONSES, STOP, b64, bytes_response, chunk, lines_response, pairs_of, stream_of
from .runs import Run, finished, resumable

np = pytest.importorskip("numpy", reason="miles' replay arrays are NumPy's")


def spans(sample: Any) -> list[list[tuple[str, int, int]]]:
    return [[(span.version, span.abs_start, span.abs_end) for span in call.spans] for call in sample.weight_versions]


@pytest.mark.parametrize("kind", RESPONSES)
def test_an_abort_is_waited_for_to_its_terminal_chunk(miles: Any, kind: str) -> None:
    """``state.aborted`` is set before the servers are told: the chunk that ends the call is still on its way."""
    terminal: dict[str, Any] = {"weight_version": "7", "cached_tokens": 2, "routed_experts": b64(range(16))}
    chunks = stream_of([11, 12, 13], incremental=True, finish=ABORT, **terminal)
    sample = Run(miles, RESPONSES[kind](chunks), aborted=True)(miles.Sample(prompt="p"))
    assert (sample.tokens, sample.response) == ([1, 2, 11, 12, 13], "<11><12><13>")
    assert (sample.status, sample.cached_tokens) == (miles.Sample.Status.ABORTED, 2)
    assert (spans(sample), sample.oldest_weight_version) == ([[("7", 2, 5)]], 7)
    assert sample.rollout_routed_experts.shape == (4, 2, 2)


def test_an_abort_without_its_terminal_chunk_keeps_what_came(miles: Any) -> None:
    """And the weights that made it, so that a resumed sample is as stale as it is."""
    chunks = stream_of([11, 12, 13], incremental=True)
    for item, version in zip(chunks, ["6", "6", "7"], strict=True):
        item["meta_info"]["weight_version"] = version
    sample = Run(miles, lines_response(chunks), aborted=True)(miles.Sample(prompt="p"))
    assert (sample.tokens, sample.response) == ([1, 2, 11, 12, 13], "<11><12><13>")
    assert sample.status == miles.Sample.Status.ABORTED
    assert spans(sample) == [[("6", 2, 4), ("7", 4, 5)]]
    resumed = Run(miles, finished(14, weight_version="8"))(sample)
    assert (spans(resumed)[1], resumed.oldest_weight_version) == ([("8", 5, 6)], 6)


@pytest.mark.parametrize("how", ["disconnect", "direct"])
def test_an_abort_is_waited_for_within_a_bound(miles: Any, how: str) -> None:
    """A server that never ends the call: it is told, then the connection is closed."""
    told: list[Any] = []

    async def lines() -> AsyncIterator[str]:
        yield "data: " + json.dumps(stream_of([11], incremental=True)[0])
        while True:
            yield ": still here"
            await asyncio.sleep(0)

    async def post(url: str, json: Any) -> Any:
        told.append((url, json["rid"], run.client.closed))
        return SimpleNamespace(raise_for_status=lambda: None)

    response = SimpleNamespace(raise_for_status=lambda: None, aiter_lines=lines)
    run = Run(miles, response, aborted=True, ssefold_abort=how, ssefold_abort_timeout=0.05)
    run.client.post = post
    sample = run(miles.Sample(prompt="p"))
    assert (sample.tokens, sample.status, run.client.closed) == ([1, 2, 11], miles.Sample.Status.ABORTED, 1)
    rid = run.payloads[0]["rid"]
    assert told == ([] if how == "disconnect" else [("http://frontend:8000/abort_request", rid, 0)])


def test_a_finish_reason_wins(miles: Any) -> None:
    sample = Run(miles, finished(), aborted=True)(miles.Sample(prompt="p"))
    assert sample.status == miles.Sample.Status.COMPLETED


def test_nothing_came_before_the_abort(miles: Any) -> None:
    sample = Run(miles, lines_response([]), aborted=True)(miles.Sample(prompt="p"))
    assert (sample.tokens, sample.rollout_log_probs, sample.status) == ([1, 2], None, miles.Sample.Status.ABORTED)


def test_the_end_without_a_finish_reason(miles: Any) -> None:
    sample = miles.Sample(prompt="p")
    with pytest.raises(RuntimeError, match="without a terminal finish_reason"):
        Run(miles, lines_response(stream_of([11], incremental=True)))(sample)
    assert (sample.tokens, sample.response) == ([1, 2, 11], "<11>")


@pytest.mark.parametrize(
    ("chunks", "error", "message"),
    [
        ([{"error": {"message": "CUDA error", "code": 500}}], ServerError, "CUDA error"),
        ([{"error": {"message": "lost", "code": 500}, "index": 0}], ServerError, "lost"),
        ([chunk("a", [[None, 11, None]], 1)], PayloadError, "logprob of token 11 is null"),
        ([{"error": {"message": "no such adapter", "code": 400}}], ServerError, "no such adapter"),
        ([{**chunk("a", pairs_of([11]), 1), "index": 1}], ProtocolError, "index 1"),
        (
            [chunk("a", pairs_of([11]), 1, finish_reason={"type": "stop", "matched": "NaN happened"})],
            ServerError,
            "NaN",
        ),
        ([chunk("a", pairs_of([11]), 5)], ProtocolError, "output_token_logprobs"),
    ],
)
def test_failures_are_typed(miles: Any, chunks: list[Any], error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message) as raised:
        Run(miles, *(lines_response(chunks) for _ in range(60)))(miles.Sample(prompt="p"))
    assert isinstance(raised.value, ValueError)


def test_a_cancellation_keeps_what_came(miles: Any) -> None:
    seen = asyncio.Event()

    async def lines() -> AsyncIterator[str]:
        yield "data: " + json.dumps(stream_of([11], incremental=True)[0])
        seen.set()
        await asyncio.Event().wait()

    run = Run(miles, SimpleNamespace(raise_for_status=lambda: None, aiter_lines=lines))
    sample = miles.Sample(prompt="p")

    async def exercise() -> None:
        task = asyncio.create_task(run.call(sample))
        await seen.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert len(asyncio.all_tasks()) == 1

    asyncio.run(exercise())
    assert (sample.tokens, sample.response, run.client.closed) == ([1, 2, 11], "<11>", 1)


def test_what_miles_refuses_leaves_the_tokens(miles: Any) -> None:
    sample = resumable(miles, loss_mask=[1])
    with pytest.raises(AssertionError, match="no expert was ever chosen"):
        Run(miles, finished(11, 12, routed_experts=b64([0] * 16)))(sample)
    assert (sample.tokens, sample.response_length, sample.loss_mask) == ([1, 2, 5, 11, 12], 3, [1, 1, 1])
    assert (sample.rollout_log_probs, sample.response) == ([-0.5, -0.11, -0.12], "five<11><12>")
    assert sample.status == miles.Sample.Status.ABORTED


@pytest.mark.parametrize("finish", [None, STOP, {"type": "stop", "matched": "NaN happened"}])
def test_what_cannot_be_trained_on_leaves_what_came_before_it(miles: Any, finish: Any) -> None:
    chunks = stream_of([11, 12, 13], incremental=True)
    if finish is not STOP and finish is not None:
        chunks[2]["meta_info"]["finish_reason"] = finish
    else:
        chunks[2]["meta_info"].update(output_token_logprobs=[[None, 13, None]], finish_reason=finish)
    sample = miles.Sample(prompt="p")
    with pytest.raises(ValueError, match=r"null|NaN"):
        Run(miles, bytes_response(chunks))(sample)
    assert (sample.tokens, sample.rollout_log_probs, sample.response) == ([1, 2, 11, 12], [-0.11, -0.12], "<11><12>")
    assert sample.status == miles.Sample.Status.PENDING


def test_a_contradiction_leaves_what_came_before_it(miles: Any) -> None:
    chunks = stream_of([11, 12, 13], incremental=True)
    chunks[2]["meta_info"]["output_token_logprobs_length"] = 7
    sample = miles.Sample(prompt="p")
    with pytest.raises(ProtocolError):
        Run(miles, bytes_response(chunks))(sample)
    assert (sample.tokens, sample.response, sample.status) == ([1, 2, 11, 12], "<11><12>", miles.Sample.Status.PENDING)


def test_a_finish_reason_as_gateways_write_it(miles: Any) -> None:
    chunks = stream_of([11], incremental=True, finish=STOP)
    chunks[-1]["meta_info"]["finish_reason"] = "stop"
    assert Run(miles, lines_response(chunks))(miles.Sample(prompt="p")).status == miles.Sample.Status.COMPLETED


# ---- after the finish_reason


class ReadError(Exception):
    """The client's own."""


@pytest.mark.parametrize("what", ["silence", "comments", "reset"])
def test_nothing_is_a_failure_after_the_finish_reason(miles: Any, what: str) -> None:
    async def lines() -> AsyncIterator[str]:
        for item in stream_of([11, 12], incremental=True, finish=STOP):
            yield "data: " + json.dumps(item)
        if what == "reset":
            raise ReadError
        while what == "comments":
            yield ": still here"
            await asyncio.sleep(0)
        await asyncio.Event().wait()

    run = Run(miles, SimpleNamespace(raise_for_status=lambda: None, aiter_lines=lines), ssefold_abort_timeout=0.05)
    sample = run(miles.Sample(prompt="p"))
    assert (sample.tokens, sample.status) == ([1, 2, 11, 12], miles.Sample.Status.COMPLETED)
    assert run.client.closed == 1
