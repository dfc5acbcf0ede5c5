"""RolloutSample by itself: what an update does, what is refused, and that a refusal changes nothing."""

from __future__ import annotations

import copy
import pickle
from array import array
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ssefold import (
    FinishReason,
    ProtocolError,
    ReplayArray,
    ReplayError,
    SnapshotError,
    StreamError,
    TopPReplay,
    Update,
)
from ssefold.adapters.rollout import Call, RolloutError, RolloutSample, WeightSpan
from ssefold.codec import pack

PROMPT = [7, 8, 9]
STOP = FinishReason({"type": "stop", "matched": 2})
LENGTH = FinishReason({"type": "length", "length": 9})
ABORT = FinishReason({"type": "abort", "message": "Aborted", "status_code": None})
SHED = FinishReason({"type": "abort", "message": "queue full", "status_code": 503})
REFUSED = FinishReason({"type": "abort", "message": "bad grammar", "status_code": 400})
WANTS_ROWS = {"max_new_tokens": 99, "custom_params": {"return_top_p_token_ids": True}}


def update(start: int, ids: list[int], finish: FinishReason | None = None, **fields: Any) -> Update:
    given_fields = {
        "text": "".join(f"<{token}>" for token in ids),
        "text_start": 4 * start,
        "logprobs": tuple(-token / 100 for token in ids),
        **fields,
    }
    return Update(start=start, token_ids=tuple(ids), finish_reason=finish, **given_fields)


def sample_of(*updates: Update, **arguments: Any) -> RolloutSample:
    sample = RolloutSample(PROMPT, **{"sampling_params": {"max_new_tokens": 99}, **arguments})
    for one in updates:
        sample.apply(one)
    return sample


def rows(*kept: list[int]) -> TopPReplay:
    offsets = [0]
    for row in kept:
        offsets.append(offsets[-1] + len(row))
    return TopPReplay([token for row in kept for token in row], offsets)


def kept_of(replay: TopPReplay | None) -> list[list[int]] | None:
    return None if replay is None else [replay.kept(i).tolist() for i in range(len(replay))]


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
    with pytest.raises(ProtocolError, match="behind 1 sampled tokens that have none"):
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


def routing(first: int, count: int) -> ReplayArray:
    return ReplayArray([value for row in range(first, first + count) for value in (row, row + 100)])


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


# ---- the request


def test_payload() -> None:
    params = {"max_new_tokens": 10, "min_new_tokens": 4, "temperature": 0.5, "stop": ["x"]}
    before = copy.deepcopy(params)
    sample = RolloutSample(PROMPT, sampling_params=params)
    sample.next_payload()
    sample.apply(update(0, [11, 12, 13]))
    payload = sample.next_payload()
    assert len(payload.pop("rid")) == 32
    assert payload == {
        "input_ids": [*PROMPT, 11, 12, 13],
        "sampling_params": {"max_new_tokens": 7, "min_new_tokens": 1, "temperature": 0.5, "stop": ["x"]},
        "return_logprob": True,
        "stream": True,
    }
    payload["sampling_params"]["stop"].append("y")
    payload["input_ids"].append(0)
    assert (params, sample.sampling_params, sample.token_ids) == (before, before, [11, 12, 13])


def test_rids_are_new_and_of_one_length() -> None:
    sample = sample_of()
    rids = {sample.next_payload()["rid"] for _ in range(20)}
    assert len(rids) == 20
    assert {len(rid) for rid in rids} == {32}


def test_budget() -> None:
    assert RolloutSample(PROMPT).next_payload()["sampling_params"] == {"max_new_tokens": 128}
    endless = RolloutSample(PROMPT, sampling_params={"max_new_tokens": None})
    endless.extend([1] * 1000)
    assert (endless.budget_left, endless.next_payload()["sampling_params"]) == (None, {"max_new_tokens": None})
    tight = RolloutSample(PROMPT, sampling_params={"max_new_tokens": 3})
    tight.extend([1, 2, 3, 4])
    assert (tight.budget_left, tight.status) == (0, "truncated")


def test_a_finished_sample_is_not_gone_on_with() -> None:
    sample = sample_of(update(0, [11], STOP))
    with pytest.raises(RolloutError, match=r"the sample is completed \(1 tokens, budget left 98.*extend\(\)"):
        sample.next_payload()


@pytest.mark.parametrize("grammar", ["json_schema", "regex", "ebnf", "structural_tag"])
def test_a_grammar_is_not_gone_on_with_in_the_middle(grammar: str) -> None:
    sample = sample_of(sampling_params={"max_new_tokens": 9, grammar: "x"})
    sample.next_payload()
    sample.apply(update(0, [11]))
    with pytest.raises(RolloutError, match=f"sampling_params.{grammar}"):
        sample.next_payload()
    sample.rollback()
    sample.next_payload()
    sample.apply(update(0, [11], STOP))
    sample.extend([50])
    assert grammar in sample.next_payload()["sampling_params"]


# ---- rollback


def test_rollback_forgets_the_last_call_and_no_more() -> None:
    sample = sample_of(
        update(0, [11], STOP, top_p=rows([1]), routed_experts=routing(0, 3), meta_info={"weight_version": "a"}),
        num_layers=2,
        top_k=1,
    )
    sample.extend([50], text="t")
    before = sample.to_bytes()
    sample.begin_call(rid="r", routed_from=3)
    sample.apply(update(0, [12]))
    sample.apply(
        update(
            0,
            [12],
            STOP,
            replace=True,
            top_p=rows([2]),
            routed_experts=routing(3, 2),
            meta_info={"weight_version": "b"},
        )
    )
    assert sample.token_ids == [11, 50, 12]
    sample.rollback()
    again = RolloutSample.from_bytes(before)
    assert (sample.token_ids, sample.text, sample.loss_mask) == (again.token_ids, again.text, again.loss_mask)
    assert (kept_of(sample.top_p), sample.weight_versions) == (kept_of(again.top_p), again.weight_versions)
    assert sample.routed_experts is not None
    assert sample.routed_experts.rows == 3
    assert sample.calls[-1] == Call("r", None, 2, 2, None)
    sample.rollback()
    assert sample.token_ids == [11, 50]


# ---- how it travels


def full_sample() -> RolloutSample:
    sample = sample_of(num_layers=2, top_k=1, sampling_params=WANTS_ROWS)
    sample.next_payload(source="a")
    sample.apply(
        update(0, [11], STOP, top_p=rows([1]), routed_experts=routing(0, 3), meta_info={"weight_version": "a"})
    )
    sample.extend([50, 51], text="\u2028tool\ud800")
    sample.next_payload(source="b")
    sample.apply(update(0, [12, 13], logprobs=(None, -0.5)))
    return sample


def test_bytes_and_back_in_the_middle_of_a_call() -> None:
    sample = full_sample()
    for other in (
        RolloutSample.from_bytes(sample.to_bytes()),
        pickle.loads(pickle.dumps(sample)),
        copy.deepcopy(sample),
    ):
        assert other == sample
        assert other.calls == sample.calls
        other.apply(update(2, [14]))
        assert other != sample
        sample_again = RolloutSample.from_bytes(sample.to_bytes())
        sample_again.apply(update(2, [14]))
        assert sample_again == other


def test_arrays_are_frozen_buffers() -> None:
    numpy = pytest.importorskip("numpy", reason="buffers are read with NumPy")
    sample = full_sample()
    arrays = sample.arrays()
    sample.apply(update(2, [14]))
    assert numpy.asarray(arrays.prompt_ids).tolist() == PROMPT
    assert numpy.asarray(arrays.token_ids).tolist() == [11, 50, 51, 12, 13]
    assert numpy.asarray(arrays.token_ids).dtype == numpy.int64
    assert numpy.asarray(arrays.logprobs).dtype == numpy.float64
    assert numpy.asarray(arrays.loss_mask).tolist() == [1, 0, 0, 1, 1]
    assert numpy.asarray(arrays.loss_mask).dtype == numpy.uint8
    assert numpy.asarray(arrays.routed_experts).shape == (3, 2, 1)
    assert numpy.asarray(arrays.top_p_offsets).dtype == numpy.int32
    assert all(view is None or view.readonly for view in arrays)


@given(st.integers(0, 10**6), st.binary(min_size=1, max_size=4))
def test_altered_bytes_are_refused(at: int, junk: bytes) -> None:
    data = bytearray(full_sample().to_bytes())
    at %= len(data)
    if data[at : at + len(junk)] == junk:
        return
    data[at : at + len(junk)] = junk
    with pytest.raises(SnapshotError):
        RolloutSample.from_bytes(data)


@pytest.mark.parametrize(
    "change",
    [
        {"format": 2},
        {"format": None},
        {"mask": b"\x01"},
        {"token_ids": [1, 2]},
        {"token_ids": array("d", [1.0])},
        {"base": [9, 0, 0, 0, 0]},
        {"base": [0, 99, 0, 0, 0]},
        {"base": [0, 0, 0, 0, -1]},
        {"base": 7},
        {"scores": [9, 0, 0]},
        {"top_p": [array("i", [1]), array("i", [0, 2])]},
        {"shape": None},
        {"shape": [4, 1]},
        {"finish": {"type": 7}},
        {"calls": []},
        {"prompt_ids": None},
        {"params": 3},
    ],
)
def test_bytes_with_a_right_checksum_and_wrong_content(change: dict[str, Any]) -> None:
    from ssefold.codec import unpack

    plain = unpack("rollout", full_sample().to_bytes())
    with pytest.raises(SnapshotError):
        RolloutSample.from_bytes(pack("rollout", {**plain, **change}))


def test_missing_fields() -> None:
    with pytest.raises(SnapshotError):
        RolloutSample.from_bytes(pack("rollout", {"format": 1}))
    with pytest.raises(SnapshotError, match="kind"):
        RolloutSample.from_bytes(pack("output", {}))


def test_repr() -> None:
    assert repr(sample_of(update(0, [11]))) == "RolloutSample(3 + 1 tokens, partial)"


def test_equality() -> None:
    assert sample_of() == sample_of()
    assert sample_of() != sample_of(update(0, [1]))
    assert sample_of() != 7
    with pytest.raises(TypeError):
        hash(sample_of())
