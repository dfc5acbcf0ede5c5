"""Checklist, parts 5 and 6: what comes out of ``Sample``, and which of its fields are touched."""

from __future__ import annotations

import copy
from dataclasses import fields
from typing import Any

import pytest

from ..fakes import STOP, lines_response, stream_of
from .runs import Run

ROWS: dict[str, Any] = {"top_p_token_ids": [7], "top_p_token_offsets": [0, 1]}


def run_with(slime: Any, sample: Any, *, replay: bool = True, **terminal: Any) -> Any:
    response = lines_response(stream_of([11], incremental=True, finish=STOP, **terminal))
    return Run(slime, response, use_rollout_routing_replay=replay)(sample)


@pytest.mark.parametrize(
    ("terminal", "message"),
    [
        ({"top_p_token_ids": [7]}, "top_p_token_offsets is missing"),
        ({"top_p_token_offsets": [0, 1]}, "top_p_token_ids is missing"),
        ({"top_p_token_ids": [7], "top_p_token_offsets": [1, 1]}, "start at 0"),
        ({"top_p_token_ids": [7], "top_p_token_offsets": [0, 2]}, "2.*1 elements"),
        ({"top_p_token_ids": [7], "top_p_token_offsets": [0, 0, 1]}, "describe either"),
        ({"routed_experts": [1, 2, 3]}, "element count does not match"),
    ],
)
def test_replay_arrays_that_do_not_fit_are_value_errors(slime: Any, terminal: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        run_with(slime, slime.Sample(prompt="p"), **terminal)


def test_existing_tokens_without_logprobs(slime: Any) -> None:
    sample = slime.Sample(prompt="p", tokens=[1, 2, 5], response_length=1)
    with pytest.raises(ValueError, match="Cannot append trainable rollout log probabilities"):
        run_with(slime, sample)


def test_a_loss_mask_of_another_length(slime: Any) -> None:
    sample = slime.Sample(prompt="p", tokens=[1, 2, 5], response_length=1, rollout_log_probs=[-0.5], loss_mask=[1, 1])
    with pytest.raises(ValueError, match="loss_mask length 3 != response_length 2"):
        run_with(slime, sample)


def test_a_finish_reason_without_a_type(slime: Any) -> None:
    chunks = stream_of([11], incremental=True, finish={"matched": 2})
    with pytest.raises(ValueError, match="finish_reason has no type"):
        Run(slime, lines_response(chunks))(slime.Sample(prompt="p"))


def test_these_fields_are_written_and_no_others(slime: Any) -> None:
    sample = slime.Sample(prompt="p", index=3, group_index=1, reward=0.5, metadata={"a": 1}, session_id="s")
    before = copy.deepcopy(sample)
    run_with(slime, sample, weight_version="w", cached_tokens=1, routed_experts=[8, 9], **ROWS)
    changed = {
        field.name for field in fields(sample) if repr(getattr(sample, field.name)) != repr(getattr(before, field.name))
    }
    assert changed == {
        "tokens", "response", "response_length", "rollout_log_probs", "loss_mask", "rollout_top_p_token_ids",
        "rollout_top_p_token_offsets", "rollout_routed_experts", "status", "weight_versions", "prefix_cache_info",
        "trace",
    }  # fmt: skip


def test_a_call_without_tokens_leaves_what_slime_leaves(slime: Any) -> None:
    sample = slime.Sample(prompt="p")
    Run(slime, lines_response(stream_of([], incremental=True, finish=STOP)))(sample)
    assert (sample.tokens, sample.rollout_log_probs, sample.loss_mask) == ([1, 2], [], None)
    assert (sample.status, sample.weight_versions) == (slime.Sample.Status.COMPLETED, [])
