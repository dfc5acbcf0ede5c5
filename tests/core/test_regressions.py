"""Bugs that the properties found, each as small as it gets."""

from __future__ import annotations

import json
from typing import Any

import pytest

import ssefold
from ssefold import Accumulator, IncompleteStreamError, PayloadError, ServerError, SSEParser
from ssefold.transports.testing import (
    CUMULATIVE,
    INCREMENTAL,
    PROFILES,
    Finish,
    Profile,
    Schedule,
    Script,
    eager,
    encode,
)
from tests.core.by_hand import cut, each_byte, fold
from tests.core.corpus import finite, plain
from tests.core.fast.test_both_paths import same_as_long_way
from tests.core.mutations import event, payload_of

EVENTS = encode(
    Script(
        token_ids=tuple(range(1, 41)),
        pieces=(b"a",) * 40,
        logprobs=tuple(-0.5 - at for at in range(40)),
        finish=Finish.length(40),
    ),
    INCREMENTAL,
).events
FAILED = event(b'{"error":{"message":"out of memory","code":500},"index":0}')


def _with(at: int, old: bytes, new: bytes) -> list[bytes]:
    assert old in EVENTS[at]
    return [*EVENTS[:at], EVENTS[at].replace(old, new), *EVENTS[at + 1 :]]


@pytest.mark.parametrize("how", ["events", "run"])
def test_nothing_is_folded_behind_the_failure_of_an_output(how: str) -> None:
    """Settled streams went their short way on after an error event with their index."""
    body = encode(plain(14), INCREMENTAL, listed=True).events
    reads = [*body[:6], FAILED, *body[6:]]
    if how == "run":
        reads = [b"".join(reads[:5]), b"".join(reads[5:])]
    folded = fold(reads)
    assert len(folded.updates) == 6
    assert len(folded.outputs[0].token_ids) == 6
    assert folded.outputs[0].finish_reason is None
    assert isinstance(folded.error, ServerError)
    assert folded.error.index == 0


def test_nothing_is_folded_behind_an_error_that_was_added() -> None:
    output = Accumulator()
    payloads = encode(plain(14), INCREMENTAL).payloads
    for payload in payloads[:6]:
        output.add(payload)
    with pytest.raises(ServerError):
        output.add({"error": {"message": "out of memory"}})
    assert not output.add(payloads[6]).token_ids
    assert len(output.token_ids) == 6


def test_a_carriage_return_in_a_run_ends_the_line() -> None:
    """JSON takes it for white space beside a number; the norm of event streams does not."""
    events = _with(20, b"[[-20.5,", b"[[-20.5\r,")
    folded = fold([b"".join(events[:3]), b"".join(events[3:])])
    assert isinstance(folded.error, PayloadError)
    assert len(folded.outputs[0].token_ids) == 20
    same_as_long_way([b"".join(events[:3]), b"".join(events[3:])])


@pytest.mark.parametrize("index", [b"false", b"0.0", b'"0"', b"-1", b"[]", b"1e0"])
def test_an_index_is_a_whole_number(index: bytes) -> None:
    """``False == 0 == 0.0`` for a dict of outputs."""
    events = encode(plain(14), INCREMENTAL, listed=True).events
    events[8] = events[8].replace(b'"index":0}', b'"index":%s}' % index)
    folded = fold(events)
    assert isinstance(folded.error, PayloadError)
    assert "index must be a whole number from 0" in str(folded.error)
    assert len(folded.updates) == 8


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (b'"output_token_logprobs_length":8,', b'"output_token_logprobs_length":8.0,'),
        (b'"completion_tokens":8,', b'"completion_tokens":8.0,'),
        (b'"output_ids":[8]', b'"output_ids":[true]'),
        (b'"output_ids":[8]', b'"output_ids":["8"]'),
        (b"[[-7.5,8,null]]", b"[[-7.5,true,null]]"),
        (b"[[-7.5,8,null]]", b'[["-7.5",8,null]]'),
        (b"[[-7.5,8,null]]", b"[[true,8,null]]"),
        (b"[[-7.5,8,null]]", b"[[-7.5,8,7]]"),
        (b'"text":"a"', b'"text":7'),
    ],
)
def test_settled_streams_are_checked_as_all_others(old: bytes, new: bytes) -> None:
    events = _with(7, old, new)
    folded = fold(events)
    assert isinstance(folded.error, PayloadError)
    assert len(folded.outputs[0].token_ids) == 7
    same_as_long_way(events)


def test_keys_that_come_and_go_between_runs() -> None:
    """A pattern learned before them was still applied after them, and their last value was lost."""

    def with_key(data: bytes, value: bytes) -> bytes:
        return data.replace(b'"dp_rank"', b'"extra":' + value + b',"dp_rank"')

    middle = [with_key(EVENTS[15], b"1"), with_key(EVENTS[16], b"2")]
    reads = [b"".join(EVENTS[:3]), b"".join(EVENTS[3:15]), *middle, b"".join(EVENTS[17:])]
    assert fold(reads).outputs[0].meta_info["extra"] == 2
    same_as_long_way(reads)


def test_snapshots_of_equal_content_are_equal_whichever_way_it_came() -> None:
    body = b"".join(EVENTS[:30])
    cuttings = (EVENTS[:30], [body], each_byte(body), cut(body, 2000, 2001))
    snapshots = [fold(reads).outputs[0].snapshot() for reads in cuttings]
    alone = Accumulator()
    for payload in encode(plain(3), CUMULATIVE).payloads:
        alone.add(payload)
    assert len({snapshot.to_bytes() for snapshot in snapshots}) == 1
    assert snapshots[0] != alone.snapshot()


@pytest.mark.parametrize("done_at", [1, 10, 40])
def test_done_behind_a_failure_is_seen_in_any_read(done_at: int) -> None:
    """The rest of the read was not looked at when its first events had failed."""
    body = b"".join([*EVENTS[:2], event(b"nonsense"), *EVENTS[2 : 2 + done_at], event(b"[DONE]"), *EVENTS[20:30]])
    for reads in ([body], each_byte(body), cut(body, 30), cut(body, len(body) - 4500)):
        folded = fold(reads)
        assert folded.decoder.done
        assert isinstance(folded.error, PayloadError)
        assert len(folded.updates) == 2


def test_an_event_in_a_thousand_reads_keeps_each_byte() -> None:
    """A read of an event in many pieces lost its last byte."""
    value = bytes(range(48, 58)) * 210
    parser = SSEParser()
    events = [found for read in each_byte(b"data: " + value + b"\n\n") for found in parser.feed(read)]
    assert [found.data_bytes for found in events] == [value]


def test_ids_that_run_ahead_of_rows_and_counter() -> None:
    """0.4.6 with --skip-tokenizer-init serialises the live list of a batch (b.1, wire facts)."""
    script = Script(token_ids=(1, 3, 4), pieces=(b"a",) * 3, logprobs=(-0.5,) * 3, finish=Finish.length(3), rid="r_0")
    moments = "send take send write take write send take write"  # the second token comes between take and write
    schedule = Schedule(((1, 1, 1),), tuple((what, 0) for what in moments.split()))  # type: ignore[misc]
    body = encode(script, PROFILES["0.4.6-tokens_only"], schedule, listed=True)
    ahead = [p for p in body.payloads if len(p["output_ids"]) > len(p["meta_info"]["output_token_logprobs"])]
    folded = fold(body.events)
    assert ahead
    assert folded.error is None
    assert all(list(output.token_ids) == [1, 3, 4] for output in folded.outputs.values())


def test_deep_payloads_are_refused_at_once() -> None:
    """One that was taken made every snapshot and native response fail later."""
    events = list(EVENTS[:4])
    events[2] = events[2].replace(b'"dp_rank":null', b'"dp_rank":' + b"[" * 400 + b"]" * 400)
    folded = fold(events)
    assert isinstance(folded.error, PayloadError)
    assert "nested" in str(folded.error)
    assert folded.outputs[0].snapshot().to_bytes()
    assert folded.outputs[0].native_response()


def test_close_tells_each_time() -> None:
    decoder = ssefold.GenerateDecoder()
    decoder.feed(b"".join(EVENTS[:4]))
    for _ in range(2):
        with pytest.raises(IncompleteStreamError, match="4 tokens"):
            decoder.close()


@pytest.mark.parametrize("mode", ["auto", "cumulative", "incremental"])
@pytest.mark.parametrize("rows", [None, [], [[-0.5, 1, None], [-0.25, 2, None]]])
def test_beam_search_counts_the_tokens_of_all_beams(mode: Any, rows: Any) -> None:
    """Its one chunk (0.5.19 and later) has the best beam's ids, and a counter that is the sum over all beams."""
    beams = [
        {"output_ids": [1, 2], "text": "ab", "meta_info": {}},
        {"output_ids": [1, 3], "text": "ac", "meta_info": {}},
    ]
    meta: dict[str, Any] = {
        "finish_reason": {"type": "length", "length": 2},
        "prompt_tokens": 3,
        "completion_tokens": 4,
    }
    if rows is not None:
        meta |= {"output_token_logprobs": rows, "output_token_logprobs_length": len(rows)}
    chunk = {"text": "ab", "output_ids": [1, 2], "meta_info": {**meta, "beam_results": beams, "sequence_score": -0.5}}
    output = Accumulator(mode)
    output.add(chunk)
    assert list(output.token_ids) == [1, 2]
    assert output.text() == "ab"
    assert list(output.logprobs) == [row[0] for row in rows or []]
    assert output.native_response() == chunk


@pytest.mark.parametrize("profile", [CUMULATIVE, INCREMENTAL], ids=str)
def test_a_custom_list_that_is_empty_before_the_first_token(profile: Profile) -> None:
    """It was taken for a plain value, and the values of all tokens but the last were lost."""
    script = Script(token_ids=(5, 6), pieces=(b"a", b"b"), finish=Finish.length(2), custom={"confidence": (1.5, 2.5)})
    folded = fold(encode(script, profile, eager([(0, 1, 1, 0)])).events)
    output = folded.outputs[0]
    assert output.native_response()["meta_info"]["confidence"] == [1.5, 2.5]
    assert "confidence" not in output.meta_info
    assert [update.meta_info["confidence"] for update in folded.updates] == [[], [1.5], [2.5], []]


@pytest.mark.parametrize("name", ["0.5.6-incremental", "0.5.9-incremental"])
def test_text_of_old_servers_is_a_snapshot_under_either_flag(name: str) -> None:
    """A second chunk without a token gave no evidence but the mode, and its text was appended to itself."""
    script = Script(token_ids=(5,), pieces=(b"ab",), finish=Finish.length(1), logprobs=(-0.5,))
    body = encode(script, PROFILES[name], eager([(1, 0)]))
    assert [payload["text"] for payload in body.payloads] == ["ab", "ab"]
    for mode in ("auto", "incremental"):
        assert fold(body.events, mode=mode).outputs[0].text() == "ab"


@pytest.mark.parametrize("profile", [CUMULATIVE, INCREMENTAL], ids=str)
def test_a_value_that_is_a_list_for_one_chunk_leaves_the_same_state(profile: Profile) -> None:
    """A settled stream did not note that the list is no lane, and its snapshot differed from the long way's."""
    body = encode(finite(12), profile)
    odd = body.events[6].replace(b'"dp_rank":null', b'"dp_rank":[0]')
    assert odd != body.events[6]
    folded = fold([*body.events[:6], odd, *body.events[7:]])
    one_by_one = Accumulator()
    for event_bytes in [*body.events[:6], odd, *body.events[7:-1]]:
        one_by_one.add(json.loads(payload_of(event_bytes)))
    assert folded.outputs[0].snapshot().to_bytes() == one_by_one.snapshot().to_bytes()


def test_the_first_failure_of_an_output_stays() -> None:
    """A second error event for the same index took its place, although what comes after a failure is ignored."""
    failures = [b'data: {"error":{"message":"%s"},"index":1}\n\n' % words for words in (b"first", b"second")]
    decoder = fold(failures).decoder
    error = decoder.outputs[1].error
    assert error is not None
    assert error.message == "first"
    alone = Accumulator()
    for words in ("first", "second"):
        with pytest.raises(ServerError, match=words):
            alone.add({"error": {"message": words}})
    assert alone.error is not None
    assert alone.error.message == "first"
