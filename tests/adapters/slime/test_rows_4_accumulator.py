"""Checklist, part 4: the rules of the accumulator, and that old and new agree wherever the old one accepts."""

from __future__ import annotations

import copy
import dataclasses
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ssefold import PayloadError, ProtocolError, ReplayError, ServerError
from ssefold.adapters.slime import SGLangStreamAccumulator, SGLangStreamUpdate

from ..fakes import LENGTH, STOP, b64, chunk, pairs_of, stream_of

MODES = ["cumulative", "incremental"]


def text_of(accumulator: Any) -> tuple[str, list[list[int]]]:
    decoded: list[list[int]] = []

    def decode(token_ids: list[int]) -> str:
        decoded.append(token_ids)
        return "".join(f"({token})" for token in token_ids)

    return accumulator.response_text(decode), decoded


def test_the_length_must_be_reported() -> None:
    for meta in [{"output_token_logprobs": [[-0.1, 11, None]]}, {}, None]:
        accumulator = SGLangStreamAccumulator(output_mode="incremental")
        with pytest.raises(ValueError, match="SGLang streaming responses must include output_token_logprobs_length"):
            accumulator.add({"text": "x", "meta_info": meta})
        assert (accumulator.tokens, accumulator.output_length) == ([], 0)


@pytest.mark.parametrize("pairs", [None, []])
@pytest.mark.parametrize("mode", MODES)
def test_no_pairs_are_no_tokens(mode: Any, pairs: Any) -> None:
    accumulator = SGLangStreamAccumulator(output_mode=mode)
    assert accumulator.add(chunk("", pairs, 0)).tokens == []
    assert accumulator.add({"text": "", "meta_info": {"output_token_logprobs_length": 0}}).tokens == []


def test_cumulative_length_must_be_the_number_of_pairs() -> None:
    accumulator = SGLangStreamAccumulator(output_mode="cumulative")
    accumulator.add(chunk("a", pairs_of([11]), 1))
    with pytest.raises(
        ValueError,
        match="SGLang cumulative streaming output has inconsistent output_token_logprobs_length:"
        " received=1, previous=1, expected=1, reported=2",
    ):
        accumulator.add(chunk("b", pairs_of([12]), 2))
    assert (accumulator.tokens, accumulator.log_probs, text_of(accumulator)) == ([11], [-0.11], ("a", []))


def test_incremental_length_must_be_previous_plus_pairs() -> None:
    accumulator = SGLangStreamAccumulator(output_mode="incremental", output_length=1, tokens=[11])
    with pytest.raises(
        ValueError,
        match="SGLang incremental streaming output has inconsistent output_token_logprobs_length:"
        " received=2, previous=1, expected=3, reported=4",
    ):
        accumulator.add(chunk("bc", pairs_of([12, 13]), 4))
    assert accumulator.tokens == [11]


def test_a_cumulative_stream_under_the_incremental_flag_is_refused() -> None:
    accumulator = SGLangStreamAccumulator(output_mode="incremental")
    accumulator.add(chunk("a", pairs_of([11]), 1))
    with pytest.raises(ValueError, match="incremental streaming output has inconsistent"):
        accumulator.add(chunk("ab", pairs_of([11, 12]), 2))
    assert (accumulator.tokens, text_of(accumulator)[0]) == ([11], "a")


def test_a_length_that_falls() -> None:
    accumulator = SGLangStreamAccumulator(output_mode="cumulative")
    accumulator.add(chunk("ab", pairs_of([11, 12]), 2))
    with pytest.raises(ValueError, match="SGLang cumulative streaming output length decreased: previous=2, reported=1"):
        accumulator.add(chunk("a", pairs_of([11]), 1))


@pytest.mark.parametrize("length", [2, 1])
def test_goes_on_behind_what_was_accumulated_before(length: int) -> None:
    """In the cumulative mode the snapshot repeats it, with logprobs or without."""
    given_log_probs = [-0.11, -0.12][:length] if length == 2 else []
    cumulative = SGLangStreamAccumulator("cumulative", length, [11, 12][:length], given_log_probs)
    assert cumulative.add(chunk("abc", pairs_of([11, 12, 13]), 3)).tokens == [11, 12, 13][length:]
    incremental = SGLangStreamAccumulator("incremental", length, [11, 12][:length])
    assert incremental.add(chunk("c", pairs_of([13]), length + 1)).tokens == [13]
    assert incremental.tokens == [*[11, 12][:length], 13]
    assert incremental.output_length == length + 1


def test_a_snapshot_that_contradicts_what_was_accumulated_before() -> None:
    accumulator = SGLangStreamAccumulator("cumulative", 1, [11], [-0.11])
    with pytest.raises(ProtocolError, match=r"was logprob -0\.11, id 11 and is now logprob -0\.12, id 12"):
        accumulator.add(chunk("b", pairs_of([12]), 1))


@pytest.mark.parametrize("encoded", [False, True])
@pytest.mark.parametrize(
    "names", [("top_p_token_ids", "top_p_token_offsets"), ("top_p_kept_token_ids", "top_p_kept_token_offsets")]
)
def test_top_p_rows_of_the_chunk_and_of_the_call(names: tuple[str, str], encoded: bool) -> None:
    def rows(ids: list[int], offsets: list[int]) -> dict[str, Any]:
        return dict(zip(names, (b64(ids), b64(offsets)) if encoded else (ids, offsets), strict=True))

    accumulator = SGLangStreamAccumulator(output_mode="incremental")
    local = accumulator.add(chunk("ab", pairs_of([11, 12]), 2, **rows([1, 2, 3], [0, 1, 3])))
    assert (local.replace_call_state, local.tokens) == (False, [11, 12])
    whole = accumulator.add(chunk("c", pairs_of([13]), 3, **rows([1, 2, 3, 4], [0, 1, 3, 4])))
    assert (whole.replace_call_state, whole.tokens, whole.log_probs) == (True, [11, 12, 13], [-0.11, -0.12, -0.13])
    with pytest.raises(
        ReplayError, match=r"describe either this chunk's 1 new tokens \(2 entries\) or the whole call \(5"
    ):
        accumulator.add(chunk("d", pairs_of([14]), 4, **rows([1], [0, 0, 1])))
    assert accumulator.tokens == [11, 12, 13]


def test_top_p_rows_of_a_whole_answer_in_one_chunk_are_the_chunks_own() -> None:
    accumulator = SGLangStreamAccumulator(output_mode="incremental")
    update = accumulator.add(chunk("a", pairs_of([11]), 1, top_p_token_ids=[1], top_p_token_offsets=[0, 1]))
    assert not update.replace_call_state


@pytest.mark.parametrize(
    ("mode", "texts", "expected"),
    [
        ("cumulative", ["a", "ab"], ("ab", 0)),
        ("cumulative", ["a", None], ("(11)(12)", 1)),
        ("cumulative", [None, "ab"], ("(11)(12)", 1)),
        ("incremental", ["a", "b"], ("ab", 0)),
        ("incremental", ["a", ""], ("a", 0)),
        ("incremental", ["a", None], ("(11)(12)", 1)),
        ("incremental", [None, None], ("(11)(12)", 1)),
        ("cumulative", [], ("", 1)),
        ("incremental", [], ("", 0)),
    ],
)
def test_text(mode: Any, texts: list[str | None], expected: tuple[str, int]) -> None:
    accumulator = SGLangStreamAccumulator(output_mode=mode)
    for end, text in enumerate(texts, 1):
        start = 0 if mode == "cumulative" else end - 1
        accumulator.add(chunk(text, pairs_of([11, 12][start:end]), end))
    text, decoded = text_of(accumulator)
    assert (text, len(decoded)) == expected


@pytest.mark.parametrize(("mode", "expected"), [("incremental", ("(11)", 1)), ("cumulative", ("a", 0))])
def test_null_text_without_tokens(mode: Any, expected: tuple[str, int]) -> None:
    accumulator = SGLangStreamAccumulator(output_mode=mode)
    accumulator.add(chunk("a", pairs_of([11]), 1))
    accumulator.add(chunk(None, [] if mode == "incremental" else pairs_of([11]), 1))
    text, decoded = text_of(accumulator)
    assert (text, len(decoded)) == expected


def test_update_is_frozen_and_has_slimes_fields() -> None:
    update = SGLangStreamAccumulator(output_mode="incremental").add(chunk("a", pairs_of([11]), 1, key="value"))
    assert [field.name for field in dataclasses.fields(SGLangStreamUpdate)] == [
        "replace_call_state", "tokens", "log_probs", "meta_info",
    ]  # fmt: skip
    assert update.meta_info["key"] == "value"
    with pytest.raises(dataclasses.FrozenInstanceError):
        update.tokens = []  # type: ignore[misc]


@pytest.mark.parametrize("arguments", [{"output_mode": "sideways"}, {"output_length": -1}])
def test_arguments_are_checked(arguments: Any) -> None:
    with pytest.raises(ValueError, match=next(iter(arguments))):
        SGLangStreamAccumulator(**arguments)


@pytest.mark.parametrize(
    ("chunk_", "error"),
    [
        ({"error": {"message": "input too long", "code": 400}}, ServerError),
        (chunk("a", [["x", 11, None]], 1), PayloadError),
        (chunk("a", [[-0.1, 11, None]], "1"), PayloadError),  # type: ignore[arg-type]
    ],
)
def test_refusals_are_typed_and_change_nothing(chunk_: Any, error: type[Exception]) -> None:
    accumulator = SGLangStreamAccumulator(output_mode="incremental")
    before = copy.deepcopy(chunk_)
    with pytest.raises(error) as raised:
        accumulator.add(chunk_)
    assert isinstance(raised.value, ValueError)
    assert (accumulator.tokens, chunk_) == ([], before)


# ---- old and new

TOKENS = st.lists(st.integers(5, 30_000), min_size=1, max_size=12)


@st.composite
def streams(draw: st.DrawFn) -> tuple[str, list[dict[str, Any]]]:
    """Streams that slime's accumulator may or may not accept: honest ones, and ones with a chunk that is off."""
    mode = draw(st.sampled_from(MODES))
    tokens = draw(TOKENS)
    chunks = stream_of(
        tokens,
        incremental=mode == "incremental",
        step=draw(st.integers(1, 4)),
        finish=draw(st.sampled_from([STOP, LENGTH, None])),
        text=draw(st.booleans()),
    )
    if draw(st.booleans()):
        for item in chunks:
            del item["output_ids"], item["meta_info"]["completion_tokens"]
    if draw(st.booleans()):
        chunks.insert(draw(st.integers(1, len(chunks))), copy.deepcopy(chunks[draw(st.integers(0, len(chunks) - 1))]))
    last = chunks[-1]
    rows = len(tokens)
    if draw(st.booleans()):
        count = draw(st.sampled_from([rows, len(last["meta_info"]["output_token_logprobs"]), rows + 1]))
        last["meta_info"].update(top_p_token_ids=b64(range(count)), top_p_token_offsets=b64(range(count + 1)))
    if draw(st.integers(0, 3)) == 0:
        victim = draw(st.sampled_from(chunks))
        victim["meta_info"]["output_token_logprobs_length"] += draw(st.integers(-2, 2))
    return mode, chunks


@given(streams())
def test_old_and_new_accumulators_agree_on_every_stream_that_both_accept(
    case: tuple[Any, list[dict[str, Any]]],
) -> None:
    pytest.importorskip("numpy", reason="the restated rules decode with NumPy")
    from ..standins.slime.rollout.streaming_utils import ReferenceAccumulator

    mode, chunks = case
    old, new = ReferenceAccumulator(output_mode=mode), SGLangStreamAccumulator(output_mode=mode)
    for item in chunks:
        before = copy.deepcopy(item)
        try:
            theirs = old.add(item)
            ours = new.add(item)
        except ValueError:
            return  # ours is stricter: a snapshot may not change what was said, nor ids contradict rows
        assert item == before
        assert dataclasses.astuple(ours) == tuple(theirs)
        assert (new.tokens, new.log_probs, new.output_length) == (old.tokens, old.log_probs, old.length)
        if item["meta_info"].get("finish_reason"):
            break  # what comes behind the terminal chunk is nobody's
    assert text_of(new) == text_of(old)


@given(st.sampled_from(MODES), TOKENS, st.integers(1, 5), st.booleans(), st.sampled_from([STOP, LENGTH, None]))
def test_both_accept_what_a_server_sends(mode: Any, tokens: list[int], step: int, text: bool, finish: Any) -> None:
    """So that the agreement above is not one about nothing."""
    pytest.importorskip("numpy", reason="the restated rules decode with NumPy")
    from ..standins.slime.rollout.streaming_utils import ReferenceAccumulator

    rows = {"top_p_token_ids": b64(tokens), "top_p_token_offsets": b64(range(len(tokens) + 1))}
    chunks = stream_of(tokens, incremental=mode == "incremental", step=step, text=text, finish=finish, **rows)
    old, new = ReferenceAccumulator(output_mode=mode), SGLangStreamAccumulator(output_mode=mode)
    for item in chunks:
        theirs, ours = old.add(item), new.add(item)
        assert dataclasses.astuple(ours) == tuple(theirs)
    assert (new.tokens, new.log_probs, text_of(new)) == (old.tokens, old.log_probs, text_of(old))
    assert new.tokens == tokens
