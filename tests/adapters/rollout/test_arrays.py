"""What a RolloutSample keeps beside its tokens: late logprobs, top-p rows, routed experts, weight versions."""

from __future__ import annotations

from typing import Any

import pytest

from ssefold import (
    ProtocolError,
    ReplayError,
)
from ssefold.adapters.rollout import RolloutError, WeightSpan

from .samples import ABORT, PROMPT, STOP, WANTS_ROWS, kept_of, routing, rows, sample_of, update

# ---- logprobs that come late, or never


def test_logprobs_may_come_late_and_then_all_at_once() -> None:
    """Some versions leave the rows out of some chunks; the core then gives everything again with the next rows."""
    sample = sample_of()
    sample.next_payload()
    sample.apply(update(0, [11, 12], logprobs=()))
    assert sample.logprobs == []
    sample.apply(update(0, [11, 12, 13], replace=True))
    assert sample.logprobs == [-0.11, -0.12, -0.13]


def test_logprobs_that_were_asked_for_must_come() -> None:
    sample = sample_of()
    sample.next_payload()
    sample.apply(update(0, [11], logprobs=()))
    with pytest.raises(ProtocolError, match="covers 0 of the call's 2 tokens"):
        sample.apply(update(1, [12], STOP, logprobs=()))


def test_logprobs_that_were_not_asked_for_need_not() -> None:
    sample = sample_of(update(0, [11], STOP, logprobs=()))
    assert (sample.logprobs, sample.arrays().logprobs.shape, sample.status) == ([], (0,), "completed")


def test_logprobs_of_some_calls_only() -> None:
    sample = sample_of(update(0, [11], STOP))
    sample.extend([50])
    sample.begin_call()
    with pytest.raises(ProtocolError, match="covers 0 of the call's 1 tokens"):
        sample.apply(update(0, [12], STOP, logprobs=()))
    other = sample_of(update(0, [11], STOP, logprobs=()))
    other.extend([50])
    other.begin_call()
    with pytest.raises(ProtocolError, match="after 1 sampled tokens that have none"):
        other.apply(update(0, [12], STOP))


def test_a_cut_call_without_logprobs_can_only_be_rolled_back() -> None:
    sample = sample_of()
    sample.next_payload()
    sample.apply(update(0, [11, 12], logprobs=()))
    for go_on in (sample.next_payload, sample.begin_call, lambda: sample.extend([50])):
        with pytest.raises(RolloutError, match=r"2 of the cut call's 2 tokens came without logprobs: rollback\(\)"):
            go_on()
    sample.rollback()
    assert (sample.token_ids, sample.status) == ([], "pending")
    assert sample.next_payload()["input_ids"] == PROMPT


# ---- top-p rows


def test_rows_of_chunks_and_of_calls() -> None:
    sample = sample_of(update(0, [11], top_p=rows([1, 2])), update(1, [12], STOP, top_p=rows([])))
    sample.extend([50, 51])
    assert kept_of(sample.top_p) == [[1, 2], [], [], []]
    sample.begin_call()
    sample.apply(update(0, [13]))
    assert kept_of(sample.top_p) == [[1, 2], []]  # as far as they came
    sample.apply(update(0, [13, 14], STOP, replace=True, top_p=rows([3], [4, 5])))
    assert kept_of(sample.top_p) == [[1, 2], [], [], [], [3], [4, 5]]


def test_tool_tokens_first() -> None:
    sample = sample_of()
    sample.extend([50])
    assert sample.top_p is None
    sample.begin_call()
    sample.apply(update(0, [11], STOP, top_p=rows([1])))
    assert kept_of(sample.top_p) == [[], [1]]


def test_a_call_without_rows_behind_one_with() -> None:
    sample = sample_of(update(0, [11], STOP, top_p=rows([1])))
    sample.extend([50])
    sample.begin_call()
    with pytest.raises(ReplayError, match="not for response token 2"):
        sample.apply(update(0, [12], STOP))
    sample.apply(update(0, [], STOP))


def test_a_cut_call_that_asked_for_rows_can_only_be_rolled_back() -> None:
    sample = sample_of(sampling_params=WANTS_ROWS)
    sample.next_payload()
    sample.apply(update(0, [11, 12]))
    for go_on in (sample.next_payload, sample.begin_call, lambda: sample.extend([50])):
        with pytest.raises(RolloutError, match=r"cut before the top-p rows of its 2 tokens came.*rollback\(\)"):
            go_on()
    sample.rollback()
    sample.next_payload()
    sample.apply(update(0, [11], STOP, replace=True, top_p=rows([1])))
    assert kept_of(sample.top_p) == [[1]]
    assert [(call.start, call.end) for call in sample.calls] == [(0, 0), (0, 1)]


def test_a_finished_call_without_a_filter_has_no_rows() -> None:
    sample = sample_of(sampling_params=WANTS_ROWS)
    sample.next_payload()
    sample.apply(update(0, [11], STOP))
    sample.extend([50])
    assert sample.top_p is None


# ---- routed experts


def test_routing_is_asked_for_from_where_it_ends() -> None:
    sample = sample_of(num_layers=2, top_k=1)
    assert sample.next_payload()["routed_experts_start_len"] == 0
    sample.apply(update(0, [11, 12], ABORT, routed_experts=routing(0, 4)))
    payload = sample.next_payload()
    assert (payload["return_routed_experts"], payload["routed_experts_start_len"]) == (True, 4)
    sample.apply(update(0, [13], STOP, routed_experts=routing(4, 1)))
    placed = sample.routed_experts
    assert placed is not None
    assert placed.shape == (5, 2, 1)
    found: Any = placed.array.tolist()
    assert found == [[[row], [row + 100]] for row in range(5)]


def test_a_server_may_send_all_rows_whatever_was_asked() -> None:
    sample = sample_of(num_layers=2, top_k=1)
    sample.next_payload()
    sample.apply(update(0, [11, 12], ABORT, routed_experts=routing(0, 4)))
    sample.next_payload()
    sample.apply(update(0, [13], STOP, routed_experts=routing(0, 5)))
    placed = sample.routed_experts
    assert placed is not None
    found: Any = placed.array.tolist()
    assert found == [[[row], [row + 100]] for row in range(5)]


def test_routing_that_was_lost_by_a_cut_comes_with_the_next_call() -> None:
    sample = sample_of(num_layers=2, top_k=1)
    sample.next_payload()
    sample.apply(update(0, [11, 12]))
    assert sample.next_payload()["routed_experts_start_len"] == 0
    sample.apply(update(0, [13], STOP, routed_experts=routing(0, 5)))
    assert sample.arrays().routed_experts is not None


def test_an_image_is_many_tokens_to_the_server() -> None:
    sample = sample_of(num_layers=2, top_k=1)
    sample.apply(update(0, [11], STOP, routed_experts=routing(0, 10), meta_info={"prompt_tokens": 10}))
    placed = sample.routed_experts
    assert placed is not None
    assert placed.rows == 10


def test_routing_of_the_wrong_size() -> None:
    sample = sample_of(num_layers=2, top_k=1)
    with pytest.raises(ReplayError, match="routed_experts has 4 elements, expected 6"):
        sample.apply(update(0, [11], STOP, routed_experts=routing(0, 2)))


# ---- weight versions


def test_weight_versions_by_chunk() -> None:
    sample = sample_of(
        update(0, [11, 12], meta_info={"weight_version": "a"}),
        update(2, [13], meta_info={"weight_version": "b"}),
        update(3, [14], STOP, meta_info={"weight_version": "b"}),
    )
    assert sample.weight_versions == (WeightSpan("a", 0, 2), WeightSpan("b", 2, 4))


def test_the_terminal_chunk_knows_better() -> None:
    spans = [{"version": "a", "start": 0, "end": 1}, {"version": "b", "start": 1, "end": 3}]
    sample = sample_of(update(0, [11], STOP, meta_info={"weight_version": "z"}))
    sample.extend([50])
    sample.begin_call()
    sample.apply(update(0, [12, 13], meta_info={"weight_version": "z"}))
    sample.apply(update(2, [14], STOP, meta_info={"weight_version": "b", "weight_versions": spans}))
    assert sample.weight_versions == (WeightSpan("z", 0, 1), WeightSpan("a", 2, 3), WeightSpan("b", 3, 5))


def test_a_replacing_update_keeps_what_the_chunks_said() -> None:
    sample = sample_of(
        update(0, [11], meta_info={"weight_version": "a"}),
        update(1, [12], meta_info={"weight_version": "b"}),
        update(0, [11, 12, 13], STOP, replace=True, top_p=rows([1], [2], [3]), meta_info={"weight_version": "c"}),
    )
    assert sample.weight_versions == (WeightSpan("a", 0, 1), WeightSpan("b", 1, 2), WeightSpan("c", 2, 3))


def test_an_abort_may_count_tokens_that_never_arrived() -> None:
    spans = [{"version": "a", "start": 0, "end": 2}, {"version": "b", "start": 2, "end": 5}]
    sample = sample_of(update(0, [11], ABORT, meta_info={"weight_versions": spans}))
    assert sample.weight_versions == (WeightSpan("a", 0, 1),)


@pytest.mark.parametrize(
    "spans",
    [
        [{"version": "a", "start": 0, "end": 2}],
        [{"version": "a", "start": 1, "end": 1}],
        [{"version": 7, "start": 0, "end": 1}],
        [{"start": 0, "end": 1}],
        ["a"],
        [],
        7,
        {"version": "a"},
    ],
)
def test_spans_that_are_none(spans: Any) -> None:
    with pytest.raises(ProtocolError, match="weight_versions"):
        sample_of(update(0, [11], STOP, meta_info={"weight_versions": spans}))
