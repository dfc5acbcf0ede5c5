"""Whatever comes: only typed errors, nothing half applied, and never a wrong token for a lost or doubled event."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from ssefold import Accumulator, GenerateDecoder, PayloadError, ServerError, Snapshot, SnapshotError, StreamError
from ssefold.transports.testing import PROFILES, finite
from tests.core.by_hand import Folded, cut, exact, fold, shown
from tests.core.corpus import Case
from tests.core.mutations import ODD_VALUES, edited, mutated, reordered, respelled, some_cases

COUNTED = tuple(profile for profile in PROFILES.values() if not profile.family.startswith("grpc"))
SAID_TWICE = tuple(profile for profile in COUNTED if profile.has_ids and profile.family == "sglang")
_KEYS = st.sampled_from(
    ("text", "output_ids", "meta_info", "index", "error", "completion_tokens", "output_token_logprobs", "finish_reason",
     "output_token_logprobs_length", "output_top_logprobs", "routed_experts", "top_p_token_ids", "top_p_token_offsets",
     "prompt_tokens", "input_token_logprobs", "hidden_states", "$", "x")
)  # fmt: skip
JSON = st.recursive(
    st.sampled_from(ODD_VALUES) | st.integers() | st.floats() | st.text(max_size=4),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(_KEYS, inner, max_size=5),
    max_leaves=12,
)
CHUNKS = st.fixed_dictionaries({}, optional={
    "text": JSON | st.text(max_size=4), "output_ids": JSON | st.lists(st.integers(0, 9), max_size=4), "index": JSON,
    "meta_info": JSON | st.dictionaries(_KEYS, JSON, max_size=6), "error": JSON,
})  # fmt: skip


def _survives(folded: Folded) -> None:
    """What is left behind is whole: readable, consistent, and to be saved."""
    folded.agrees_with_updates()
    for output in folded.outputs.values():
        snapshot = output.snapshot()
        assert shown(Snapshot.from_bytes(snapshot.to_bytes())) == shown(snapshot)
        assert repr(output)
        assert len(output.logprobs) in (0, len(output.token_ids)) or output.finish_reason is None
        assert output.text(lambda ids: "".join(map(chr, (token_id % 256 for token_id in ids)))) is not None
    assert all(repr(update) for update in folded.updates)


# ---- nothing but StreamErrors ---------------------------------------------------------------------------------------


@given(st.lists(st.binary(max_size=60), max_size=6))
@example([b"data: \xff\n\n"])
@example([b"data: " + b"[" * 5000 + b"\n\n"])
@example([b"data: {}\n\n"])
@example([b'data: {"text":"a"}\n\n', b'data: {"text":"a"}\n\n'])
def test_bytes(reads: list[bytes]) -> None:
    _survives(fold(reads))


@given(st.lists(JSON | CHUNKS, max_size=5), st.sampled_from(("auto", "cumulative", "incremental")))
def test_json(payloads: list[Any], mode: str) -> None:
    reads = [b"data: " + json.dumps(payload).encode() + b"\n\n" for payload in payloads]
    _survives(fold(reads, mode=mode))


@given(st.data(), st.sampled_from(("auto", "cumulative", "incremental")), st.sampled_from(("raise", "skip")))
def test_streams_gone_wrong(data: st.DataObject, mode: str, on_bad_json: str) -> None:
    case = data.draw(some_cases())
    body = b"".join(data.draw(mutated(case.body.events)))
    places = data.draw(st.lists(st.integers(0, len(body)), max_size=4))
    folded = fold(cut(body, *places), mode=mode, on_bad_json=on_bad_json)
    _survives(folded)
    assert folded.decoder.skipped == 0 or on_bad_json == "skip"


@given(st.lists(JSON | CHUNKS, max_size=4))
def test_dicts(chunks: list[Any]) -> None:
    """An accumulator alone, given anything: it takes it or raises, and then it is as it was."""
    output = Accumulator()
    for chunk in chunks:
        _atomic(output, chunk)


# ---- atomic ---------------------------------------------------------------------------------------------------------


@given(st.data())
def test_a_refused_chunk_changes_nothing(data: st.DataObject) -> None:
    case = data.draw(some_cases("scored", "rich", "plain", "intervals", "glued", "aborted"))
    good, bad = case.body.events, data.draw(edited(case.body.events) | respelled(case.body.events))
    output = Accumulator()
    for one, other in zip(good, bad, strict=True):
        payload = _parsed(other)
        if one != other and payload is not None and _atomic(output, payload):
            return
        payload = _parsed(one)
        if payload is not None:
            _atomic(output, payload)


def _parsed(data: bytes) -> Any:
    try:
        return json.loads(data[6:])
    except ValueError:
        return None


def _atomic(output: Accumulator, chunk: Any) -> bool:
    """Add a chunk; True if it was taken.  It is never changed, and nothing is if it is refused."""
    before, shown_before = output.snapshot(), shown(output)
    text = exact(chunk)
    try:
        output.add(chunk)
    except ServerError as error:
        assert output.error is not None
        assert shown(output) | {"error": None} == shown_before | {"error": None}
        assert set(error.partial) == {output.index}
        taken = True
    except StreamError as error:
        assert output.snapshot() == before
        assert shown(output) == shown_before
        assert dict(error.partial) == {output.index: before}
        assert str(error)
        taken = False
    else:
        taken = True
    assert exact(chunk) == text
    return taken


@given(st.data())
def test_what_a_caller_does_to_its_chunk_later_is_its_own(data: st.DataObject) -> None:
    case = data.draw(some_cases("rich"))
    kept, spoilt = Accumulator(), Accumulator()
    for payload in case.body.payloads:
        copy = json.loads(json.dumps(payload))
        update, other = kept.add(payload), spoilt.add(copy)
        _spoil(copy)
        assert update == other
        assert exact(update.meta_info) == exact(other.meta_info)
    assert shown(kept) == shown(spoilt)


def _spoil(value: Any) -> None:
    for item in value.values() if isinstance(value, dict) else value:
        if isinstance(item, (dict, list)):
            _spoil(item)
    value.clear()


# ---- events lost, doubled, out of order -----------------------------------------------------------------------------


@given(st.data())
def test_counters_catch_every_lost_or_doubled_event(data: st.DataObject) -> None:
    """An exact prefix of the truth, or a refusal; and a whole answer is never short."""
    case = data.draw(some_cases(profiles=COUNTED))
    folded = fold(data.draw(reordered(case.body.events)))
    for index, output in folded.outputs.items():
        _is_a_prefix(output, case, index)
    _survives(folded)


@given(st.data())
def test_a_claim_that_contradicts_another_is_no_token(data: st.DataObject) -> None:
    """One number of one payload is wrong: an id, an id of a row, a counter.  With rows, ids are said twice."""
    case = data.draw(some_cases("scored", "finite", "intervals", "stop", profiles=SAID_TWICE))
    events = list(case.body.events)
    at = data.draw(st.integers(0, len(events) - 2))
    payload = json.loads(events[at][6:])
    meta = payload["meta_info"]
    step = data.draw(st.sampled_from((-2, -1, 1, 2, 7)))
    what = data.draw(st.sampled_from(("id", "row", "count", "length")))
    if what == "id" and payload["output_ids"]:
        payload["output_ids"][data.draw(st.integers(0, len(payload["output_ids"]) - 1))] += step
    elif what == "row" and meta["output_token_logprobs"]:
        data.draw(st.sampled_from(meta["output_token_logprobs"]))[1] += step
    elif what == "count" and case.profile.rows_length:
        # (Before that counter, one number can make two tokens of a snapshot of two, until the next chunk.)
        meta["completion_tokens"] += step
    elif "output_token_logprobs_length" in meta:
        meta["output_token_logprobs_length"] += step
    events[at] = b"data: " + json.dumps(payload).encode() + b"\n\n"
    folded = fold(events)
    for index, output in folded.outputs.items():
        _is_a_prefix(output, case, index)


def _is_a_prefix(output: Accumulator, case: Case, index: int) -> None:
    script = case.scripts[index]
    if script.finish.how == "rejected":
        assert not output.token_ids
        return
    known = tuple(output.token_ids)
    assert known == script.token_ids[: len(known)]
    logprobs = [finite(value) for value in script.logprobs or ()]
    assert exact(output.logprobs) == exact(logprobs[: len(output.logprobs)])
    if output.finish_reason is not None and script.finish.how != "queued" and not case.body.held[index].lost:
        # (A queue abort may name its last id only, and then what was lost before it stays unknown.)
        assert known == case.body.held[index].token_ids, "a whole answer is short"


# ---- the container of snapshots -------------------------------------------------------------------------------------


@given(st.data())
def test_altered_snapshots_are_refused(data: st.DataObject) -> None:
    case = data.draw(some_cases("rich", "scored", "batch-1"))
    output = next(iter(fold(case.body.events[: data.draw(st.integers(1, 8))]).outputs.values()))
    raw = output.snapshot().to_bytes()
    at = data.draw(st.integers(0, len(raw) - 1))
    altered = raw[:at] + bytes([raw[at] ^ data.draw(st.integers(1, 255))]) + raw[at + 1 :]
    for bad in (altered, raw[:at], raw + b"\x00", b""):
        with pytest.raises(SnapshotError):
            Snapshot.from_bytes(bad)


def test_usage_errors_are_value_errors() -> None:
    with pytest.raises(ValueError, match="mode"):
        GenerateDecoder(mode="delta")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="on_bad_json"):
        GenerateDecoder(on_bad_json="ignore")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="max_event_size"):
        GenerateDecoder(max_event_size=0)
    decoder = GenerateDecoder()
    with pytest.raises(StreamError):
        decoder.close()
    with pytest.raises(ValueError, match="after close"):
        decoder.feed(b"")
    with pytest.raises(PayloadError, match="mapping"):
        Accumulator().add([1])  # type: ignore[arg-type]
