"""The encoder agrees with itself: its bytes and the truth beside them tell the same story.

No decoder is involved: where a test folds, it folds with the few lines that a certain mode makes right.
"""

from __future__ import annotations

import json
from itertools import chain
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ssefold.transports.testing import (
    DONE,
    INCREMENTAL,
    PROFILES,
    Finish,
    HTTPFailureError,
    Script,
    eager,
    encode,
    finite,
    interval_sends,
    late,
    nonstream,
    sglang,
)
from tests.truth.strategies import Run, runs


@given(runs(lossy=True))
def test_events_are_framed_and_parse(run: Run) -> None:
    for one in run.body.sent:
        assert one.data.startswith(b"data: ")
        assert one.data.endswith(b"\n\n")
        assert one.data.count(b"\n") == 2
        assert (one.payload is None) == (one.data == DONE)
        if one.payload is not None:
            assert json.loads(one.data[6:]) == one.payload
            assert ("index" in one.payload) == (run.listed or run.profile.family.startswith("grpc")) or run.body.error


@given(runs(lossy=True))
def test_truth_only_grows(run: Run) -> None:
    for before, after in zip(
        [run.body.start, *(one.held for one in run.body.sent)], (one.held for one in run.body.sent), strict=False
    ):
        for old, new in zip(before, after, strict=True):
            assert old.tokens <= new.tokens <= len(new.script.token_ids)
            assert new.text.startswith(old.text)
            assert old.finish_reason is None or old == new


@given(runs())
def test_everything_arrives(run: Run) -> None:
    for held in run.body.held:
        if held.script.finish.how == "rejected" or run.body.torn or held.error or run.body.error:
            continue
        assert held.complete
        if not run.profile.has_ids and held.script.logprobs is None:
            assert held.tokens == 0
        elif run.profile.queue_abort != "bare" or held.script.finish.how != "queued":
            assert held.token_ids == held.script.token_ids
            # The gRPC gateway has no logprobs, asked for or not.
            asked = () if run.profile.family == "grpc" else held.script.logprobs or ()
            assert held.logprobs == tuple(map(finite, asked))
    assert run.body.done != run.body.torn


@given(runs([profile for profile in PROFILES.values() if profile.family == "sglang"]))
def test_last_chunk_agrees_with_the_whole_response(run: Run) -> None:
    """Whatever is cumulative in the last chunk is what the non-streaming call gives for the same steps."""
    if run.body.error or run.body.torn:
        return
    for index, script in enumerate(run.scripts):
        steps = [run.schedule.sends[index]]
        if script.finish.abort_status is not None:
            with pytest.raises(HTTPFailureError) as failure:
                nonstream(script, run.profile, sends=steps)
            assert failure.value.status == script.finish.abort_status
            continue
        whole = nonstream(script, run.profile, sends=steps)
        last = [p for p in run.body.payloads if p.get("index", 0) == index][-1]
        held = run.body.held[index]
        assert held.finish_reason == whole["meta_info"]["finish_reason"]
        if run.profile.queue_abort != "bare" or script.finish.how != "queued":
            assert held.text == whole.get("text", "")
        skipped = {"response_sent_to_client_ts", "response_sent_ts"}
        if run.profile.incremental:
            skipped |= set(script.custom) | {key for key in whole["meta_info"] if key.startswith("output_")}
        if script.finish.how == "queued":
            skipped |= set(script.custom) | {"output_token_sampling_mask", "output_token_sampling_logprobs"}
        for key, value in whole["meta_info"].items():
            if key not in skipped:
                assert last["meta_info"][key] == _jsonable(value), key


def _jsonable(value: Any) -> Any:
    return json.loads(json.dumps(value), parse_constant=lambda _: None)


@given(runs([INCREMENTAL], lossy=True))
def test_deltas_add_up(run: Run) -> None:
    """Incremental 0.5.23, but for queue aborts: every lane is the concatenation of what came."""
    for index, script in enumerate(run.scripts):
        if script.finish.how in ("queued", "rejected"):
            continue
        mine = [p for p in run.body.payloads if p.get("index", 0) == index]
        assert tuple(chain.from_iterable(p["output_ids"] for p in mine)) == script.token_ids
        assert "".join(p["text"] for p in mine) == run.body.held[index].text
        if script.logprobs is not None:
            rows = chain.from_iterable(p["meta_info"]["output_token_logprobs"] for p in mine)
            assert tuple(row[0] for row in rows) == tuple(map(finite, script.logprobs))


@given(runs(), st.integers(0))
def test_cut_bodies_hold_what_arrived(run: Run, seed: int) -> None:
    data = run.body.data
    length = seed % (len(data) + 1)
    cut = run.body.cut(length)
    assert cut.data == data[:length]
    assert cut.held == run.body.held_after(run.body.events_in(length))
    assert b"".join(run.body.events[: run.body.events_in(length)]) + cut.tail == data[:length]


def test_other_ends() -> None:
    script = Script(token_ids=(1, 2), pieces=(b"a", b"b"), finish=Finish.length(2))
    body = encode(script, INCREMENTAL)
    assert not body.without_done().done
    stopped = body.stopped(1)
    assert stopped.done
    assert not stopped.held[0].complete
    failed = body.failed(1, {"message": "no"})
    assert failed.events[1:] == [b'data: {"error":{"message":"no"}}\n\n', DONE]
    assert body.failed(1, {"message": "no"}, done=False).torn
    assert body.with_keep_alives([0, 1]).data.count(b":\n\n") == 2


def test_slow_reader_loses_ids_of_old_servers() -> None:
    script = Script(token_ids=(1, 2, 3), pieces=(b"a", b"b", b"c"), finish=Finish.length(3))
    schedule = late([(1, 1, 1)])
    assert [moment for moment, _ in schedule.moments] == ["send", "send", "send", "take", "write"]
    for name in ("0.5.3", "0.5.5", "0.5.9-incremental"):
        held = encode(script, PROFILES[name], schedule).held[0]
        assert held.lost
        assert held.tokens == 0
        assert held.text == "abc"
    for name in ("0.5.6", "0.5.10-incremental", "0.5.23", "0.5.23-incremental"):
        held = encode(script, PROFILES[name], schedule).held[0]
        assert not held.lost
        assert held.token_ids == (1, 2, 3)


def test_queue_abort_glued_to_pending_deltas() -> None:
    script = Script(token_ids=(1, 2), pieces=(b"a", b"b"), finish=Finish.queue_abort(), logprobs=(-1.0, -2.0))
    body = encode(script, INCREMENTAL, late([(1, 1)], [0]))
    payload = body.payloads[0]
    assert payload["output_ids"] == [1, 2, 2]
    assert payload["text"] == "abab"
    assert [row[1] for row in payload["meta_info"]["output_token_logprobs"]] == [1, 2, 1, 2]
    assert payload["meta_info"]["output_token_logprobs_length"] == 2
    assert "prompt_tokens" not in payload["meta_info"]
    held = body.held[0]
    assert (held.tokens, held.rows, held.text) == (2, 2, "ab")


def test_queue_abort_glued_without_texts_tears_the_stream() -> None:
    script = Script(token_ids=(1, 2), pieces=(b"a", b"b"), finish=Finish.queue_abort())
    body = encode(script, PROFILES["0.5.23-incremental-tokens_only"], late([(1, 1)], [0]))
    assert body.torn
    assert body.data == b""


def test_dropped_chunk_before_a_queue_abort() -> None:
    """Up to 0.5.19 the abort chunk says the last id only: a dropped snapshot takes its other ids with it."""
    script = Script(token_ids=(1, 2, 3), pieces=(b"a", b"b", b"c"), finish=Finish.queue_abort())
    schedule = late([(1, 1, 1)], [0], after=1)
    old, new = (encode(script, PROFILES[name], schedule).held[0] for name in ("0.5.12", "0.5.23"))
    assert (old.tokens, old.counted, old.lost) == (1, 3, True)
    assert (new.tokens, new.counted, new.lost) == (3, 3, False)


def test_interval() -> None:
    assert interval_sends(20, 8) == (1, 8, 8, 3)
    assert interval_sends(9, 8) == (1, 8)
    assert interval_sends(1, 8) == (1,)
    assert interval_sends(3, 1) == (1, 1, 1)
    assert interval_sends(0, 1) == (0,)


def test_abort_with_status_before_0_5_6() -> None:
    rejected = Script(token_ids=(5,), pieces=(b"?",), finish=Finish.rejected("too long"))
    body = encode(rejected, sglang("0.5.5"))
    assert body.data == b'data: {"error":{"message":"too long"}}\n\n' + DONE
    shed = Script(token_ids=(), pieces=(), finish=Finish.overloaded())
    assert encode(shed, sglang("0.5.5")).data == b""


def test_rust_server_fails_one_output_only() -> None:
    good = Script(token_ids=(1,), pieces=(b"a",), finish=Finish.length(1), rid="a")
    bad = Script(token_ids=(5,), pieces=(b"?",), finish=Finish.rejected("no"), rid="b")
    body = encode([good, bad], PROFILES["rust"])
    assert body.payloads[-1] == {"error": {"message": "no", "code": 400}, "index": 1}
    assert body.held[0].complete
    assert body.held[1].error == {"message": "no", "code": 400}
    assert body.done


def test_gateway_rewrites_what_it_can_parse() -> None:
    script = Script(
        token_ids=(1, 2),
        pieces=(b"a", b"b"),
        finish=Finish.length(2),
        logprobs=(-1.0, -2.0),
        input_logprobs=((None, 7),),
    )
    body = encode(script, PROFILES["http-gateway-pd"], passed_through=[0])
    assert [p["meta_info"]["input_token_logprobs"] for p in body.payloads] == [[], [[None, 7, None]]]


def test_rows_beyond_the_ids() -> None:
    """``max_new_tokens=0`` has a row and no token; before 0.5.10 speculative decoding left rows over."""
    none = Script(token_ids=(), pieces=(), finish=Finish.length(0), logprobs=(), extra_rows=((-1.0, 5),))
    meta = encode(none, INCREMENTAL).payloads[0]["meta_info"]
    assert meta["output_token_logprobs"] == [[-1.0, 5, None]]
    assert (meta["output_token_logprobs_length"], meta["completion_tokens"]) == (1, 0)
    over = Script(
        token_ids=(1,), pieces=(b"a",), finish=Finish.length(1), logprobs=(-2.0,), extra_rows=((-1.0, 5), (-3.0, 6))
    )
    for version, rows in (("0.5.9", 3), ("0.5.10", 1)):
        body = encode(over, sglang(version))
        assert len(body.payloads[0]["meta_info"]["output_token_logprobs"]) == rows
        assert (body.held[0].tokens, body.held[0].rows) == (1, rows)


def test_grpc_gateway_of_a_pair() -> None:
    script = Script(token_ids=(7, 8), pieces=(b"\xf0\x9f", b"\x98\x80"), finish=Finish.length(2), logprobs=(-0.5, -1.5))
    first, second, last = encode(script, PROFILES["grpc-gateway-pd"]).payloads
    assert first["meta_info"]["output_token_logprobs"] == [[-0.5, 7.0]]
    assert second["text"] == last["text"] == "\ufffd\ufffd\ufffd"
    assert last["output_ids"] == [8]
    assert last["meta_info"]["finish_reason"] == {"type": "length", "length": 2}
    assert last["index"] == 0


def test_error_events_by_version() -> None:
    assert sglang("0.5.12").error("no") == {"message": "no"}
    assert sglang("0.5.13").error("no") == {
        "message": "no",
        "type": "invalid_request_error",
        "code": 400,
        "retryable": False,
    }
    assert PROFILES["rust"].error("no", status_code=503) == {"message": "no", "code": 503}


def test_whole_response_of_a_shed_request() -> None:
    shed = Script(token_ids=(), pieces=(), finish=Finish.overloaded())
    with pytest.raises(HTTPFailureError) as failure:
        nonstream(shed, INCREMENTAL)
    assert failure.value.status == 503
    assert failure.value.body["message"] == "The request queue is full."


def test_mistakes_are_named() -> None:
    with pytest.raises(ValueError, match="logprobs has 1 entries for 2 token ids"):
        Script(token_ids=(1, 2), pieces=(b"a", b"b"), finish=Finish.length(2), logprobs=(-1.0,))
    script = Script(token_ids=(1, 2), pieces=(b"a", b"b"), finish=Finish.length(2))
    with pytest.raises(ValueError, match="1 tokens are sent of 2"):
        encode(script, INCREMENTAL, eager([(1,)]))
    with pytest.raises(ValueError, match="the schedule has 2 outputs for 1 scripts"):
        encode(script, INCREMENTAL, eager([(2,), (0,)]))
