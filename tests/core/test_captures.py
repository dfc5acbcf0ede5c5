"""Bodies of the real server over a socket against what its scheduler emitted, and against its non-streaming answers."""

from __future__ import annotations

import json
import random
from itertools import accumulate, chain
from typing import Any

import pytest

from ssefold import Accumulator, ServerError
from tests.core.by_hand import Folded, cut, each_byte, exact, fold
from tests.truth.recorded import Recorded, captures

CAPTURES = {one.name: one for one in captures()}
ANSWERS = {one.name: one for one in captures(nonstream=True)}
every_capture = pytest.mark.parametrize("one", CAPTURES.values(), ids=CAPTURES)
every_answer = pytest.mark.parametrize("one", ANSWERS.values(), ids=ANSWERS)

_SMALL = 30_000
PER_RUN = ("id", "e2e_latency", "response_sent_to_client_ts")


@every_capture
def test_truth(one: Recorded) -> None:
    folded = fold([one.body])
    _is_true(folded, one)
    folded.agrees_with_updates()


@every_capture
def test_reads_of_the_socket(one: Recorded) -> None:
    """The HTTP chunks that the server sent, and any other reads, give the same."""
    folded = fold([one.body])
    told = folded.told
    # A count stands in place of the sizes of long ones.
    sizes = [size for size in one.facts["http_chunk_sizes"] if isinstance(size, int)]
    assert sum(sizes) == len(one.body) or len(sizes) < len(one.facts["http_chunk_sizes"])
    assert fold(cut(one.body, *list(accumulate(sizes))[:-1])).told == told
    chance = random.Random(one.name)
    for reads in (3, 40):
        places = [chance.randrange(len(one.body)) for _ in range(reads)]
        assert fold(cut(one.body, *places)).told == told, places
    if len(one.body) <= _SMALL:
        assert fold(each_byte(one.body)).told == told


@every_capture
def test_right_mode_and_wrong_mode(one: Recorded) -> None:
    """The server's own flag gives the same; the other one is refused, or has nothing to be wrong about."""
    incremental = "--incremental-streaming-output" in one.facts["server_flags"]
    right, wrong = ("incremental", "cumulative") if incremental else ("cumulative", "incremental")
    want = fold([one.body])
    assert fold([one.body], mode=right).told | {"lanes": None} == want.told | {"lanes": None}
    got = fold([one.body], mode=wrong)
    for index, output in got.outputs.items():
        known = list(output.token_ids)
        assert known == list(want.outputs[index].token_ids)[: len(known)]
    chunks = [u for u in want.updates if u.token_ids and u.finish_reason is None]
    if len(chunks) > 2 * len(want.outputs):
        assert type(got.error).__name__ == "ProtocolError"
        assert f"mode='{wrong}'" in str(got.error)
        assert f"mode='{right}'" in str(got.error)


def _is_true(folded: Folded, one: Recorded) -> None:
    truths = {truth["index"]: truth for truth in one.facts["ground_truth"]}
    assert folded.decoder.done == one.facts["ends_with_done"]
    if not truths:
        assert isinstance(folded.error, ServerError)
        assert folded.error.code == 400
        assert not folded.outputs
        return
    assert folded.error is None
    assert set(folded.outputs) == set(truths)
    for index, truth in truths.items():
        assert truth["on_the_wire"]
        output = folded.outputs[index]
        mine = [payload for payload in one.payloads if payload.get("index", 0) == index]
        if truth["prompt_ids"] == [0]:
            _is_rejected(output, truth)
        else:
            _output_is(output, truth, mine)


def _is_rejected(output: Accumulator, truth: dict[str, Any]) -> None:
    """A validation abort: the one token that came was sampled from a prompt that nobody sent."""
    assert len(truth["output_ids"]) == 1
    assert list(output.token_ids) == []
    assert list(output.logprobs) == []
    assert output.text() == ""
    assert output.finish_reason is not None
    assert output.finish_reason.raw == truth["finish_reason"]
    assert output.finish_reason.is_failure
    assert not output.finish_reason.retryable


def _output_is(output: Accumulator, truth: dict[str, Any], payloads: list[dict[str, Any]]) -> None:
    ids, logprobs = truth["output_ids"], truth.get("output_token_logprobs") or []
    assert list(output.token_ids) == ids
    assert exact(output.logprobs) == exact(logprobs)
    assert output.finish_reason is not None
    if truth["finish_reason"] is None:  # the scheduler did not end it: it was aborted while retracted
        assert output.finish_reason.raw == {"type": "abort", "message": "Abort in waiting queue"}
    else:
        assert output.finish_reason.raw == truth["finish_reason"]
    assert output.finish_reason.is_failure == ((truth["finish_reason"] or {}).get("status_code") is not None)
    assert output.text() == _text_of(output, payloads)
    meta = output.native_response()["meta_info"]
    rows = meta.get("output_token_logprobs") or []
    assert exact([row[:2] for row in rows]) == exact([list(pair) for pair in zip(logprobs, ids, strict=False)])
    tops = truth.get("output_top_logprobs") or []
    told = meta.get("output_top_logprobs") or []
    assert exact([[entry[:2] for entry in row] for row in told]) == exact(tops)
    prompt = truth.get("input_token_logprobs") or []
    assert exact([row[0] for row in meta.get("input_token_logprobs") or []]) == exact([row[0] for row in prompt])
    if "routed_experts" in truth:
        _experts_are(output, truth)
    else:
        assert output.routed_experts is None


def _text_of(output: Accumulator, payloads: list[dict[str, Any]]) -> str:
    """The server's own text, put together by the mode that is known here."""
    texts = [payload.get("text") for payload in payloads]
    if output.lanes["text"] is None and len(texts) > 1:
        assert texts[-1] in (None, "")
        return ""
    if output.lanes["text"] == "cumulative" or "prompt_tokens" not in payloads[-1]["meta_info"]:
        return texts[-1] or ""
    return "".join(text or "" for text in texts)


def _experts_are(output: Accumulator, truth: dict[str, Any]) -> None:
    _, layers, top_k = truth["routed_experts_shape"]
    assert output.routed_experts is not None
    total = len(truth["prompt_ids"]) + len(truth["output_ids"])
    start = total - 1 - len(truth["routed_experts"])
    placed = output.routed_experts.reshape(layers, top_k, total_tokens=total, start_len=start)
    assert placed.start == start
    assert list(placed.shape) == truth["routed_experts_shape"]
    assert placed.array.tolist() == truth["routed_experts"]
    if start:  # a full array is placed by the same call
        values = [0] * (start * layers * top_k) + output.routed_experts.values.tolist()
        full = type(output.routed_experts)(values).reshape(layers, top_k, total_tokens=total, start_len=start)
        assert full.start == 0


def test_captures_hold_what_they_are_for() -> None:
    """The corpus shows each of these, so that the checks above are not empty."""
    truths = list(chain.from_iterable(one.facts["ground_truth"] for one in CAPTURES.values()))
    assert any("-0.0" in exact(truth.get("output_token_logprobs") or []) for truth in truths)
    assert any(truth.get("output_top_logprobs") for truth in truths)
    assert any("routed_experts" in truth for truth in truths)
    assert any(truth["finish_reason"] is None for truth in truths)
    assert any(truth["prompt_ids"] == [0] for truth in truths)
    assert {len(one.facts["ground_truth"]) for one in CAPTURES.values()} == {0, 1, 2}


# ---- the same request with stream=false -----------------------------------------------------------------------------


@every_answer
def test_answer_is_a_chunk_like_any_other(one: Recorded) -> None:
    """A non-streaming answer is the cumulative terminal chunk: folded, it is its own native response."""
    answers = json.loads(one.body)
    for answer in answers if isinstance(answers, list) else [answers]:
        output = Accumulator()
        output.add(answer)
        response = output.native_response()
        assert exact(_sorted(response)) == exact(_sorted(answer))
        assert list(response) == list(answer)


@pytest.mark.parametrize("conf", sorted({name.partition("__")[0] for name in ANSWERS}))
def test_native_response_of_the_same_script(conf: str) -> None:
    answer: dict[str, Any] = json.loads(ANSWERS[f"{conf}__nonstream"].body)
    stream = CAPTURES[f"{conf}__unicode"]
    response = fold([stream.body]).outputs[0].native_response()
    meta, answered = response["meta_info"], answer["meta_info"]
    assert list(response) == list(answer)
    # Only this answer was asked for more than its stream, and these are another run's.
    asked = {"input_top_logprobs", "output_top_logprobs", "routed_experts"}
    assert set(answered) - set(meta) == asked
    assert set(meta) <= set(answered)
    for name in set(meta) - set(PER_RUN):
        assert exact(meta[name]) == exact(answered[name]), name
    assert response["output_ids"] == answer["output_ids"]
    if _sends(stream) == _sends(ANSWERS[f"{conf}__nonstream"]):
        # The detokenizer works per send, and its text of broken characters shows it.
        assert response.get("text") == answer.get("text")


def _sends(one: Recorded) -> list[int]:
    return [len(send["output_ids"]) for send in one.facts["ground_truth"][0]["sends_to_detokenizer"]]


def _sorted(response: dict[str, Any]) -> dict[str, Any]:
    """Order of keys is no promise of the server's."""
    return {**response, "meta_info": dict(sorted(response["meta_info"].items()))}
