"""What somebody new to the adapters gets wrong, or a server leaves out: said at once, typed, and nothing is changed."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from ssefold import FinishReason, PayloadError, ReplayArray, ReplayError, TopPReplay, Update
from ssefold.adapters.rollout import RolloutError, RolloutSample, run
from ssefold.adapters.slime import SGLangStreamAccumulator

from ..fakes import chunk, pairs_of

ABORT = FinishReason({"type": "abort", "message": "Aborted", "status_code": None})
STOP = FinishReason({"type": "stop", "matched": 2})
LENGTH = FinishReason({"type": "length", "length": 2})
ASKS = {"max_new_tokens": 9, "custom_params": {"return_top_p_token_ids": True}}
FILTERS: list[dict[str, Any]] = [{"top_p": 0.9}, {"top_k": 20}, {"min_p": 0.1}, {"temperature": 0}]


def update(start: int, ids: list[int], finish: FinishReason | None = None, **fields: Any) -> Update:
    return Update(start=start, token_ids=tuple(ids), logprobs=(-0.5,) * len(ids), finish_reason=finish, **fields)


def rows_of(count: int) -> TopPReplay:
    return TopPReplay([5] * count, range(count + 1))


def asking(**params: Any) -> RolloutSample:
    sample = RolloutSample([7, 8], sampling_params={**ASKS, **params})
    sample.next_payload()
    return sample


# ---- replay arrays that were asked for


@pytest.mark.parametrize("params", [{}, {"top_p": 0.9}])
def test_an_abort_without_the_rows_can_only_be_rolled_back(params: dict[str, Any]) -> None:
    sample = asking(**params)
    sample.apply(update(0, [11, 12], ABORT))
    before = sample.to_bytes()
    for go_on in (sample.next_payload, sample.begin_call, lambda: sample.extend([50])):
        with pytest.raises(RolloutError, match=r"ended \(abort\) without top-p rows for its 2 tokens.*rollback\(\)"):
            go_on()
    assert sample.to_bytes() == before
    sample.rollback()
    assert sample.next_payload()["input_ids"] == [7, 8]
    sample.apply(update(0, [11], STOP, top_p=rows_of(1)))
    assert sample.top_p is not None
    assert len(sample.top_p) == 1


def test_an_abort_with_rows_or_without_tokens_is_gone_on_with() -> None:
    sample = asking()
    sample.apply(update(0, [11], ABORT, top_p=rows_of(1)))
    sample.next_payload()
    sample.apply(update(0, [], ABORT))
    assert sample.next_payload()["input_ids"] == [7, 8, 11]


def test_run_samples_again_what_an_abort_left_without_rows() -> None:
    sample = asking()
    sample.apply(update(0, [11, 12], ABORT))
    asked: list[list[int]] = []

    @asynccontextmanager
    async def transport(url: str, payload: dict[str, Any]) -> AsyncIterator[AsyncIterator[Update]]:
        async def updates() -> AsyncIterator[Update]:
            yield update(0, [11, 12, 13], STOP, top_p=rows_of(3))

        asked.append(payload["input_ids"])
        yield updates()

    asyncio.run(run(sample, ["http://a"], transport))
    assert (asked, sample.token_ids, sample.status) == ([[7, 8]], [11, 12, 13], "completed")


@pytest.mark.parametrize("finish", [STOP, LENGTH])
@pytest.mark.parametrize("params", FILTERS)
def test_an_end_without_the_rows_is_refused(params: dict[str, Any], finish: FinishReason) -> None:
    for last in ([12], []):
        sample = asking(**params)
        sample.apply(update(0, [11]))
        before = sample.to_bytes()
        with pytest.raises(ReplayError, match=r"top_p_token_ids is missing.*slime's SGLang image.*custom_params"):
            sample.apply(update(1, last, finish))
        assert sample.to_bytes() == before


@pytest.mark.parametrize("params", [{}, {"top_p": 1.0, "top_k": -1, "min_p": 0.0, "temperature": 0.7}])
def test_without_a_filter_there_are_no_rows_to_miss(params: dict[str, Any]) -> None:
    sample = asking(**params)
    sample.apply(update(0, [11], STOP))
    sample.extend([50])
    assert (sample.top_p, sample.token_ids) == (None, [11, 50])


def test_a_request_of_ones_own_is_refused_only_when_it_is_built_on() -> None:
    sample = RolloutSample([7, 8], sampling_params={**ASKS, "top_p": 0.9})
    sample.begin_call()
    sample.apply(update(0, [11], STOP))
    with pytest.raises(RolloutError, match=r"ended \(stop\) without top-p rows"):
        sample.extend([50])
    assert sample.token_ids == [11]


@pytest.mark.parametrize("finish", [STOP, LENGTH])
def test_an_end_without_the_routing_is_refused(finish: FinishReason) -> None:
    sample = RolloutSample([7, 8], num_layers=2, top_k=1)
    sample.next_payload()
    with pytest.raises(ReplayError, match=r"routed_experts is missing.*--enable-return-routed-experts"):
        sample.apply(update(0, [11], finish))
    assert sample.token_ids == []
    sample.apply(update(0, [11], ABORT))
    sample.next_payload()
    sample.apply(update(0, [12], finish, routed_experts=ReplayArray([1] * 6)))
    assert sample.routed_experts is not None


# ---- arguments of a sample


@pytest.mark.parametrize("text", [None, b"tool", 3])
def test_extend_takes_all_or_nothing(text: Any) -> None:
    sample = RolloutSample([7, 8])
    sample.apply(update(0, [11], STOP))
    before = sample.to_bytes()
    with pytest.raises(RolloutError, match="text must be a string"):
        sample.extend([50], text)
    assert sample.to_bytes() == before


@pytest.mark.parametrize(
    ("name", "value"),
    [*(("routed_from", value) for value in [None, "x", [0], -1, True, 1.0]), ("rid", 3), ("source", object())],
)
def test_begin_call_takes_only_what_travels(name: str, value: Any) -> None:
    sample = RolloutSample([7, 8])
    with pytest.raises(RolloutError, match=f"{name} must be"):
        sample.begin_call(**{name: value})
    assert sample.calls == ()
    assert RolloutSample.from_bytes(sample.to_bytes()) == sample


@pytest.mark.parametrize(
    ("num_layers", "top_k"),
    [(True, 1), (1, True), ("2", 1), (2.0, 1), ([], 1), (0, 1), (1, -1), (2**12, 2**13), (10**400, 1)],
)
def test_the_shape_of_routing(num_layers: Any, top_k: Any) -> None:
    with pytest.raises(RolloutError, match=r"num_layers|top_k"):
        RolloutSample([7, 8], num_layers=num_layers, top_k=top_k)


def test_the_largest_shape_of_routing() -> None:
    assert RolloutSample([7, 8], num_layers=2**12, top_k=2**12).next_payload()["return_routed_experts"] is True


@pytest.mark.parametrize("value", [None, {}, "x", 3])
def test_apply_takes_updates(value: Any) -> None:
    with pytest.raises(RolloutError, match=r"takes an ssefold\.Update"):
        RolloutSample([7, 8]).apply(value)


@pytest.mark.parametrize("attempts", [None, "2", 1.5, True, 0, -1])
def test_attempts_is_a_number(attempts: Any) -> None:
    async def never(url: str) -> None: ...

    with pytest.raises(RolloutError, match="attempts must be a whole number"):
        asyncio.run(run(RolloutSample([7]), ["http://a"], never, attempts=attempts))  # type: ignore[arg-type]


def test_sampling_params_that_are_no_json() -> None:
    deep: Any = 1
    for _ in range(5000):
        deep = [deep]
    itself: dict[str, Any] = {}
    itself["a"] = itself
    for params in ({"stop": deep}, itself, {1: 2}, {"custom_params": {1: 2}}):
        with pytest.raises(RolloutError, match="sampling_params cannot be sent as JSON"):
            RolloutSample([7, 8], sampling_params=params)  # type: ignore[arg-type]


# ---- slime's accumulator


@pytest.mark.parametrize("value", [None, [], "x", 3])
def test_the_accumulator_takes_chunks(value: Any) -> None:
    with pytest.raises(PayloadError, match="a chunk must be a mapping"):
        SGLangStreamAccumulator().add(value)


@pytest.mark.parametrize("rows", ["abc", {"a": 1}, 7, [1], [None], ["ab"], [[-0.1]], [[-0.1, "x", None]]])
def test_rows_that_a_seeded_accumulator_can_not_read(rows: Any) -> None:
    accumulator = SGLangStreamAccumulator("cumulative", output_length=1)
    with pytest.raises(PayloadError, match="output_token_logprobs"):
        accumulator.add({"text": "a", "meta_info": {"output_token_logprobs": rows, "output_token_logprobs_length": 1}})
    accumulator.add(chunk("ab", pairs_of([11, 12]), 2, finish_reason={"type": "stop"}))
    assert (accumulator.tokens, accumulator.output_length) == ([12], 2)


@pytest.mark.parametrize(
    "arguments",
    [
        *({"output_length": value} for value in (None, "1", 1.0, True, -1)),
        {"output_length": 1, "tokens": 5},
        {"output_length": 1, "log_probs": None},
        {"output_length": 1, "tokens": [11, 12]},
        {"tokens": [11]},
        {"output_length": 1, "tokens": [11], "log_probs": [-0.1, -0.2]},
    ],
)
def test_what_a_seeded_accumulator_is_made_of(arguments: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=r"output_length|tokens|log_probs"):
        SGLangStreamAccumulator(**arguments)
