"""The requests of a RolloutSample, its rollback, and its way through bytes and pickles."""

from __future__ import annotations

import copy
import pickle
from array import array
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ssefold import (
    SnapshotError,
)
from ssefold.adapters.rollout import Call, RolloutError, RolloutSample
from ssefold.codec import pack

from .samples import PROMPT, STOP, WANTS_ROWS, kept_of, routing, rows, sample_of, update

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
