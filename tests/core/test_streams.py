"""The recorded bodies of every server shape, in every chunking, against the result written beside each."""

from __future__ import annotations

from itertools import accumulate
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ssefold import Accumulator, IncompleteStreamError, ServerError, SSEParser
from tests.core.by_hand import Folded, cut, each_byte, exact, fold
from tests.truth.recorded import Recorded, streams

STREAMS = {one.name: one for one in streams()}
every_stream = pytest.mark.parametrize("one", STREAMS.values(), ids=STREAMS)

_EVERY_OFFSET = 1200
"""A body up to this long is cut in two at every offset; a longer one near its line ends and here and there."""


@every_stream
def test_whole(one: Recorded) -> None:
    _is_as_recorded(fold([one.body]), one)


@every_stream
def test_byte_by_byte(one: Recorded) -> None:
    folded = fold(each_byte(one.body))
    _is_as_recorded(folded, one)
    assert folded.told == fold([one.body]).told


@every_stream
def test_in_two(one: Recorded) -> None:
    told = fold([one.body]).told
    size = len(one.body)
    places = set(range(size + 1)) if size <= _EVERY_OFFSET else set(range(0, size + 1, 61))
    for end in accumulate(len(line) for line in one.body.splitlines(keepends=True)):
        places.update(range(max(end - 2, 0), min(end + 3, size + 1)))
    for place in sorted(places):
        folded = fold(cut(one.body, place))
        assert folded.updates == told["updates"], place
        assert folded.decoder.done == told["done"], place
        assert (folded.error and str(folded.error)) == (told["error"] and told["error"][1]), place


@settings(max_examples=10)
@given(st.data())
@every_stream
def test_in_random_reads(one: Recorded, data: st.DataObject) -> None:
    places = data.draw(st.lists(st.integers(0, len(one.body)), max_size=30))
    assert fold(cut(one.body, *places)).told == fold([one.body]).told


@every_stream
def test_every_kind_of_buffer(one: Recorded) -> None:
    told = fold([one.body]).told
    assert fold([bytearray(one.body)]).told == told
    assert fold([memoryview(one.body)]).told == told
    reused = bytearray(one.body[:100])
    folded = fold(_reusing(reused, one.body))
    assert folded.told == told


def _reusing(buffer: bytearray, body: bytes) -> Any:
    """The reads of a transport that has one buffer for all of them."""
    for start in range(0, len(body), 100):
        part = body[start : start + 100]
        buffer[:] = part
        yield buffer


@pytest.mark.parametrize(
    "one", [one for name, one in STREAMS.items() if not name.startswith("39")], ids=lambda one: one.name
)
def test_accumulators_alone(one: Recorded) -> None:
    """Dicts parsed by somebody else give the same outputs as the bytes (39 is not framed as SGLang frames)."""
    folded = fold([one.body])
    alone: dict[int, Accumulator] = {}
    for payload in one.payloads:
        index = payload.get("index", 0)
        if "error" not in payload:
            alone.setdefault(index, Accumulator(index=index)).add(payload)
    assert {index: output.native_response() for index, output in alone.items()} == {
        index: output.native_response() for index, output in folded.outputs.items()
    }


def _is_as_recorded(folded: Folded, one: Recorded) -> None:
    facts = one.facts
    decoder = folded.decoder
    assert decoder.done == facts["done_seen"]
    assert decoder.cut != facts["clean_eof"]
    # An output that sent nothing cannot be among those that arrived.
    wanted = {int(index): fact for index, fact in facts["indices"].items()}
    assert set(folded.outputs) == {index for index, fact in wanted.items() if fact["complete"] or fact["text"]}
    for index, output in folded.outputs.items():
        _output_is(output, wanted[index])
    folded.agrees_with_updates()
    if facts["error"] is not None:
        assert isinstance(folded.error, ServerError)
        reported = facts["error"].get("error", facts["error"])
        assert folded.error.message == reported["message"]
        assert folded.error.code == reported.get("code")
        assert folded.error.type == reported.get("type")
        assert set(folded.error.partial) == set(folded.outputs)
    elif not wanted or not all(fact["complete"] for fact in wanted.values()):
        assert isinstance(folded.error, IncompleteStreamError)
    else:
        assert folded.error is None


def _output_is(output: Accumulator, fact: dict[str, Any]) -> None:
    rows = fact["output_token_logprobs"]
    assert output.text() == (fact["text"] or "")
    assert ("text" in output.native_response()) == (fact["text"] is not None)
    if fact["output_ids"] is not None:
        assert list(output.token_ids) == fact["output_ids"]
    assert exact(output.logprobs) == exact([row[0] for row in rows or ()])
    response = output.native_response()
    meta = response["meta_info"]
    assert exact(meta.get("output_token_logprobs") or []) == exact(rows or [])
    assert (output.finish_reason is not None) == fact["complete"]
    assert output.finish_reason is None or output.finish_reason.raw == fact["finish_reason"]
    for name in ("prompt_tokens", "completion_tokens"):
        assert fact.get(name) is None or output.meta_info[name] == fact[name]
    if "weight_versions" in fact:
        assert meta["weight_versions"] == fact["weight_versions"]
    if "sampling_mask" in fact:
        assert meta["output_token_sampling_mask"] == fact["sampling_mask"]
    for name, values in (fact.get("customized_info") or {}).items():
        assert meta[name] == values
    _replay_is(output, fact)


def _replay_is(output: Accumulator, fact: dict[str, Any]) -> None:
    assert (output.top_p is None) == ("top_p" not in fact)
    if output.top_p is not None:
        assert output.top_p.token_ids.tolist() == fact["top_p"]["ids"]
        assert output.top_p.offsets.tolist() == fact["top_p"]["offsets"]
    assert (output.routed_experts is None) == ("routed_experts" not in fact)
    if output.routed_experts is not None:
        experts = fact["routed_experts"]
        assert output.routed_experts.values.tolist() == experts["values"]
        total = output.meta_info["prompt_tokens"] + output.meta_info["completion_tokens"]
        rows, start, shape = output.routed_experts.reshape(
            experts["num_layers"], experts["topk"], total_tokens=total, start_len=experts["start_len"]
        )
        assert (rows, shape) == (experts["rows"], (experts["rows"], experts["num_layers"], experts["topk"]))
        assert start == experts["start_len"]


def test_noise_of_proxies_is_no_event() -> None:
    """A byte order mark, comments, ids, retry and CRLF: the third-party stream has two chunks and [DONE]."""
    noisy = STREAMS["39_generic_sse_noise"]
    comments: list[str] = []
    assert len(SSEParser(on_comment=comments.append).feed(noisy.body)) == 3
    assert comments
    assert len(fold([noisy.body]).updates) == 2
