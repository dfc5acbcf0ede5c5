"""RolloutSample by itself: what an update does, what is refused, and that a refusal changes nothing."""

from __future__ import annotations

from array import array
from typing import Any

import pytest

from ssefold import (
    FinishReason,
    ProtocolError,
    ReplayArray,
    ReplayError,
    StreamError,
    Update,
)
from ssefold.adapters.rollout import Call, RolloutError, RolloutSample

from .samples import ABORT, LENGTH, PROMPT, REFUSED, SHED, STOP, rows, sample_of, update

# ---- what an update does


def test_updates_append() -> None:
    sample = sample_of(update(0, [11, 12]), update(2, [13], STOP))
    assert sample.token_ids == [11, 12, 13]
    assert sample.logprobs == [-0.11, -0.12, -0.13]
    assert sample.loss_mask == (1, 1, 1)
    assert sample.text == "<11><12><13>"
    assert (sample.status, sample.done, sample.finish_reason) == ("completed", True, STOP)


def test_an_update_without_tokens() -> None:
    sample = sample_of(update(0, [11]), update(1, []), update(1, [], LENGTH))
    assert (sample.token_ids, sample.status) == ([11], "truncated")


def test_text_may_be_rewritten_from_behind() -> None:
    sample = sample_of(update(0, [11], text="ab"), update(1, [12], text="Xc", text_start=1))
    assert sample.text == "aXc"


def test_replace_drops_what_the_call_gave_and_no_more() -> None:
    sample = sample_of(update(0, [11, 12], STOP))
    sample.extend([50], text="tool")
    sample.begin_call()
    sample.apply(update(0, [13]))
    sample.apply(update(0, [13, 14], STOP, replace=True))
    assert sample.token_ids == [11, 12, 50, 13, 14]
    assert sample.loss_mask == (1, 1, 0, 1, 1)
    assert sample.text == "<11><12>tool<13><14>"


def test_null_logprobs_are_none_and_nan() -> None:
    sample = sample_of(update(0, [11, 12], STOP, logprobs=(None, -0.5)))
    assert sample.logprobs == [None, -0.5]
    values = sample.arrays().logprobs.tolist()
    assert values[0] != values[0]


@pytest.mark.parametrize(
    ("finish", "status"),
    [
        (STOP, "completed"),
        (LENGTH, "truncated"),
        (ABORT, "aborted"),
        (SHED, "aborted"),
        (REFUSED, "failed"),
        (None, "partial"),
    ],
)
def test_status(finish: FinishReason | None, status: str) -> None:
    assert sample_of(update(0, [11], finish)).status == status


def test_status_without_tokens() -> None:
    assert sample_of().status == "pending"
    assert sample_of(sampling_params={"max_new_tokens": 0}).status == "truncated"
    assert sample_of(update(0, [], ABORT)).status == "aborted"


def test_a_cut_with_the_budget_used_up_is_the_end() -> None:
    sample = sample_of(update(0, [11, 12]), sampling_params={"max_new_tokens": 2})
    assert (sample.status, sample.budget_left, sample.done) == ("truncated", 0, True)


# ---- several calls


def test_a_call_that_was_cut_is_gone_on_with() -> None:
    sample = sample_of()
    first = sample.next_payload(source="a")
    sample.apply(update(0, [11, 12]))
    second = sample.next_payload(source="b")
    sample.apply(update(0, [13], STOP))
    assert sample.token_ids == [11, 12, 13]
    assert sample.text == "<11><12><13>"
    assert second["input_ids"] == [*PROMPT, 11, 12]
    assert sample.calls == (
        Call(first["rid"], "a", 0, 2, None),
        Call(second["rid"], "b", 2, 3, "stop"),
    )


def test_a_new_call_without_saying_so_is_refused() -> None:
    sample = sample_of(update(0, [11, 12]))
    with pytest.raises(
        ProtocolError, match=r"starts at token 0 of its call .* but 2 are here.*next_payload or begin_call"
    ):
        sample.apply(update(0, [13]))


def test_several_turns() -> None:
    sample = sample_of(update(0, [11], STOP))
    sample.extend([50, 51], text="[tool]")
    assert (sample.status, sample.finish_reason, sample.done) == ("partial", None, False)
    assert sample.next_payload()["input_ids"] == [*PROMPT, 11, 50, 51]
    sample.apply(update(0, [12], STOP))
    assert sample.loss_mask == (1, 0, 0, 1)
    assert sample.logprobs == [-0.11, 0.0, 0.0, -0.12]
    assert sample.text == "<11>[tool]<12>"


def test_a_turn_may_be_ended_by_its_reader() -> None:
    """A tool call was seen in the text: the rest of the stream is not waited for."""
    sample = sample_of(update(0, [11]))
    sample.extend([50])
    assert (sample.token_ids, sample.loss_mask) == ([11, 50], (1, 0))


def test_the_rid_of_a_request_of_ones_own_is_the_one_that_was_seen() -> None:
    sample = sample_of(update(0, [11], STOP, meta_info={"id": "r7"}))
    assert sample.calls == (Call("r7", None, 0, 1, "stop"),)


# ---- what is refused


@pytest.mark.parametrize(
    ("bad", "error", "message"),
    [
        (update(1, [12]), ProtocolError, "starts at token 1 of its call .* but 2 are here"),
        (update(3, [12]), ProtocolError, "starts at token 3"),
        (update(1, [11, 12], replace=True), ProtocolError, r"starts at token 1 of its call \(replace=True\), but 0"),
        (update(2, [12], index=1), ProtocolError, "is of output 1, this call's was 0"),
        (update(2, [12], logprobs=(-0.1, -0.2)), ProtocolError, "2 logprobs came with 1 tokens"),
        (update(2, [12], STOP, logprobs=()), ProtocolError, "covers 2 of the call's 3 tokens"),
        (update(2, [12], text_start=9), ProtocolError, "text starts at 9, but 8 characters"),
        (update(2, [12], text_start=-1), ProtocolError, "text starts at -1"),
        (update(2, [12], top_p=rows([1], [2])), ReplayError, "2 rows for the update's 1 tokens"),
        (update(2, [12], top_p=rows([1])), ReplayError, "not for response token 0"),
        (update(2, [12], STOP, routed_experts=ReplayArray([1] * 5)), ReplayError, "no num_layers and top_k"),
        (update(2, [12], meta_info={"weight_version": 7}), ProtocolError, "weight_version must be a string"),
    ],
)
def test_refusals_change_nothing(bad: Update, error: type[StreamError], message: str) -> None:
    sample = sample_of(update(0, [11, 11]))
    before = sample.to_bytes()
    with pytest.raises(error, match=message) as raised:
        sample.apply(bad)
    assert isinstance(raised.value, ValueError)
    assert sample.to_bytes() == before


def test_nothing_comes_after_the_end_of_a_call() -> None:
    sample = sample_of(update(0, [11], STOP))
    sample.apply(update(1, [], text=None))
    with pytest.raises(ProtocolError, match="came after the call's finish_reason"):
        sample.apply(update(1, [12]))
    assert sample.token_ids == [11]


@pytest.mark.parametrize(
    "arguments",
    [
        {"prompt_ids": ["a"]},
        {"prompt_ids": [-1]},
        {"prompt_ids": [2**70]},
        {"prompt_ids": None},
        {"sampling_params": {"n": 2}},
        {"sampling_params": [1]},
        {"sampling_params": {"min_new_tokens": "few"}},
        {"sampling_params": {"max_new_tokens": -1}},
        {"sampling_params": {"max_new_tokens": "many"}},
        {"num_layers": 2},
        {"top_k": 2},
        {"num_layers": 0, "top_k": 2},
    ],
)
def test_arguments(arguments: dict[str, Any]) -> None:
    with pytest.raises(RolloutError):
        RolloutSample(**{"prompt_ids": PROMPT, **arguments})


def test_any_integers_are_token_ids() -> None:
    sample = RolloutSample(array("i", [1, 2]))
    sample.extend(memoryview(array("q", [3])))
    assert (sample.prompt_ids, sample.token_ids) == ([1, 2], [3])


def test_a_failed_sample_is_not_gone_on_with() -> None:
    sample = sample_of(update(0, [], REFUSED))
    for call in (sample.next_payload, lambda: sample.extend([1])):
        with pytest.raises(RolloutError, match="failed"):
            call()
