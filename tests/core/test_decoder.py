"""The decoder's account of a body: [DONE], failures of one output and of all, what is too large, what is the end."""

from __future__ import annotations

import json
from typing import Any

import pytest

from ssefold import (
    Accumulator,
    EventTooLargeError,
    GenerateDecoder,
    IncompleteStreamError,
    PayloadError,
    ProtocolError,
    ServerError,
    StreamError,
)
from ssefold.transports.testing import CUMULATIVE, INCREMENTAL, encode
from tests.core.by_hand import each_byte, fold
from tests.core.corpus import plain
from tests.core.mutations import event
from tests.core.test_errors import chunk

ONE = encode(plain(6), INCREMENTAL).events
TWO = encode([plain(6, rid="a"), plain(5, first=301, rid="b")], INCREMENTAL).events
DONE = event(b"[DONE]")


def _of(index: int) -> list[bytes]:
    return [data for data in TWO if b'"index":%d}' % index in data]


# ---- [DONE] ---------------------------------------------------------------------------------------------------------


def test_data_behind_done_is_folded() -> None:
    folded = fold([*ONE[:3], DONE, *ONE[3:]])
    assert folded.error is None
    assert len(folded.outputs[0].token_ids) == 6


def test_done_does_not_mean_success() -> None:
    folded = fold([*ONE[:3], DONE])
    assert folded.decoder.done
    assert isinstance(folded.error, IncompleteStreamError)
    assert "3 tokens" in str(folded.error)
    assert "[DONE] seen" in str(folded.error)


@pytest.mark.parametrize(
    "end",
    [b"data:[DONE]\n\n", b"data: [DONE]\r\n\r\n", b"id: 7\ndata: [DONE]\n\n", b"event: message\ndata: [DONE]\r\r"],
)
def test_done_is_the_whole_data_field(end: bytes) -> None:
    folded = fold([*ONE[:-1], end])
    assert folded.decoder.done
    assert folded.error is None


@pytest.mark.parametrize("data", [b"[DONE] ", b" [DONE]", b"[done]", b"[DONE]x", b'"[DONE]"', b"[DONE]\ndata: "])
def test_what_only_looks_like_done_is_not(data: bytes) -> None:
    folded = fold([*ONE[:-1], event(data)])
    assert not folded.decoder.done
    assert isinstance(folded.error, PayloadError)


def test_a_text_may_say_done() -> None:
    body = encode(plain(1), INCREMENTAL).data.replace(b'"text":"Hel"', b'"text":"data: [DONE]\\n\\n"')
    for reads in ([body], each_byte(body)):
        folded = fold(reads)
        assert folded.outputs[0].text() == "data: [DONE]\n\n"
        assert folded.error is None


# ---- failures in the band -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", [b"", b"event: error\n"])
def test_an_error_with_an_index_fails_that_output_alone(name: bytes) -> None:
    failure = name + event(b'{"error":{"message":"no memory","code":500,"type":"oom"},"index":1}')
    folded = fold([*TWO[:4], failure, *_of(0)[2:], *_of(1)[2:], DONE])
    good, bad = folded.outputs[0], folded.outputs[1]
    assert good.finish_reason is not None
    assert len(good.token_ids) == 6
    assert good.error is None
    assert len(bad.token_ids) == 2
    assert bad.finish_reason is None
    assert isinstance(folded.error, ServerError)
    assert folded.error is bad.error
    assert (folded.error.message, folded.error.code, folded.error.type, folded.error.index) == (
        "no memory",
        500,
        "oom",
        1,
    )
    assert {index: len(one.token_ids) for index, one in folded.error.partial.items()} == {0: 6, 1: 2}


def test_an_error_without_an_index_fails_all() -> None:
    folded = fold([*TWO[:4], event(b'{"error":{"message":"no memory"}}'), *TWO[4:]])
    assert isinstance(folded.error, ServerError)
    assert folded.error.index is None
    assert folded.decoder.done
    assert [len(output.token_ids) for output in folded.outputs.values()] == [2, 2]
    assert all(output.error is None for output in folded.outputs.values())


def test_an_error_for_an_output_that_never_came() -> None:
    folded = fold([*_of(0), event(b'{"error":{"message":"too long","code":400},"index":1}'), DONE])
    assert set(folded.outputs) == {0, 1}
    assert folded.outputs[0].finish_reason is not None
    assert isinstance(folded.error, ServerError)
    assert folded.error.index == 1
    assert not folded.outputs[1].token_ids


def test_an_error_for_an_output_that_is_over_is_too_late() -> None:
    folded = fold([*ONE[:-1], event(b'{"error":{"message":"late"},"index":0}'), DONE])
    assert folded.error is None
    assert folded.outputs[0].error is None


@pytest.mark.parametrize(
    ("payload", "message", "code", "kind"),
    [
        ({"error": {"message": "m", "code": 400, "type": "t", "retryable": False}}, "m", 400, "t"),
        ({"error": {"message": "m", "code": "bad", "type": 7}}, "m", "bad", None),
        ({"error": {"message": "m"}}, "m", None, None),
        ({"error": "m"}, "m", None, None),
        ({"error": {"detail": "m"}}, "{'detail': 'm'}", None, None),
        ({"error": ["m"]}, "['m']", None, None),
        ({"error": True}, "True", None, None),
        ({"error": {"message": "m"}, "text": "a", "meta_info": {}}, "m", None, None),
    ],
)
def test_shapes_of_errors(payload: dict[str, Any], message: str, code: Any, kind: Any) -> None:
    for raw in (event(json.dumps(payload).encode()), b"event: error\n" + event(json.dumps(payload).encode())):
        error = fold([raw]).error
        assert isinstance(error, ServerError)
        assert (error.message, error.code, error.type) == (message, code, kind)
        noted = [f"code {code}"] * (code is not None) + [f"type {kind}"] * (kind is not None)
        said = f"the server reported inside the stream: {message}"
        assert str(error) == said + (f" ({', '.join(noted)})" if noted else "")


@pytest.mark.parametrize("data", [b"boom", b'{"message":"boom"}', b"[1]", b"\xff", b'"boom"', b"[DONE]x"])
def test_an_error_event_is_a_failure_whatever_it_says(data: bytes) -> None:
    error = fold([*ONE[:2], b"event: error\n" + event(data)]).error
    assert isinstance(error, ServerError)
    assert len(error.partial[0].token_ids) == 2


def test_error_null_is_none() -> None:
    events = [data.replace(b'"meta_info":', b'"error":null,"meta_info":') for data in ONE]
    folded = fold(events)
    assert folded.error is None
    assert len(folded.outputs[0].token_ids) == 6


# ---- updates are never lost -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("bad", [b"nonsense", b"[]", b'{"error":{"message":"m"}}', b'{"output_ids":[-1]}'])
@pytest.mark.parametrize("good", [0, 1, 5])
def test_updates_before_a_failure_are_returned(bad: bytes, good: int) -> None:
    decoder = GenerateDecoder()
    body = b"".join([*ONE[:good], event(bad), *ONE[good:]])
    if good:
        assert len(decoder.feed(body)) == good
        assert decoder.error is not None
    for _ in range(2):
        with pytest.raises(StreamError) as caught:
            decoder.feed(body)
        assert caught.value is decoder.error
    assert sum(len(output.token_ids) for output in decoder.outputs.values()) == good
    assert decoder.done
    with pytest.raises(StreamError) as caught:
        decoder.close()
    assert caught.value is decoder.error


def test_skipped_payloads_are_counted_and_their_tokens_missed() -> None:
    cumulative = encode(plain(6), CUMULATIVE).events
    folded = fold([*cumulative[:2], event(b"nonsense"), *cumulative[3:]], on_bad_json="skip")
    assert folded.error is None
    assert folded.decoder.skipped == 1
    assert len(folded.outputs[0].token_ids) == 6
    lost = fold([*ONE[:2], event(b"nonsense"), *ONE[3:]], on_bad_json="skip")
    assert lost.decoder.skipped == 1
    assert lost.error is not None
    assert "2 were known" in str(lost.error)


def test_an_event_too_large() -> None:
    limit = max(map(len, ONE))
    large = event(b'{"text":"%s"}' % (b"a" * limit))
    for reads in ([b"".join([*ONE[:3], large, *ONE[3:]])], each_byte(b"".join([*ONE[:3], large, *ONE[3:]]))):
        folded = fold(reads, max_event_size=limit)
        assert isinstance(folded.error, EventTooLargeError)
        assert str(limit) in str(folded.error)
        assert "max_event_size" in str(folded.error)
        assert len(folded.updates) == 3
        assert len(folded.error.partial[0].token_ids) == 3
    assert fold([b"".join(ONE)], max_event_size=limit).error is None


def test_an_event_too_large_is_known_at_once() -> None:
    limit = max(map(len, ONE))
    decoder = GenerateDecoder(max_event_size=limit)
    updates = decoder.feed(b"".join([*ONE[:3], event(b'{"text":"%s"}' % (b"a" * limit))]))
    assert len(updates) == 3
    assert isinstance(decoder.error, EventTooLargeError)
    assert len(decoder.error.partial[0].token_ids) == 3


# ---- the end --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("reads", "words"),
    [
        ([], "no output came"),
        ([b""], "no output came"),
        ([b":\n\n"], "no output came"),
        ([DONE], "only [DONE]"),
        (ONE[:1], "index 0: 1 tokens"),
        ([*ONE[:2], ONE[2][:30]], "cut inside an event"),
        (TWO[:4], "2 of 2 outputs"),
        ([*_of(0), *_of(1)[:3]], "1 of 2 outputs (index 1: 3 tokens"),
    ],
)
def test_incomplete(reads: list[bytes], words: str) -> None:
    folded = fold(reads)
    assert isinstance(folded.error, IncompleteStreamError)
    assert words in str(folded.error)
    assert {i: len(one.token_ids) for i, one in folded.error.partial.items()} == {
        i: len(output.token_ids) for i, output in folded.outputs.items()
    }


def test_complete_without_done() -> None:
    folded = fold(ONE[:-1])
    assert folded.error is None
    assert not folded.decoder.done
    assert not folded.decoder.cut


def test_close_again() -> None:
    decoder = GenerateDecoder()
    decoder.feed(b"".join(ONE))
    decoder.close()
    decoder.close()
    with pytest.raises(ValueError, match="after close"):
        decoder.feed(b"")


def test_outputs_are_read_only_and_live() -> None:
    decoder = GenerateDecoder()
    outputs = decoder.outputs
    assert dict(outputs) == {}
    decoder.feed(b"".join(TWO[:3]))
    assert set(outputs) == {0, 1}
    with pytest.raises(TypeError):
        outputs[0] = Accumulator()  # type: ignore[index]
    ids = outputs[0].token_ids
    seen = list(ids)
    decoder.feed(b"".join(TWO[3:]))
    assert list(ids)[: len(seen)] == seen
    assert len(ids) == 6


def test_a_repeat_after_the_end_is_passed_over() -> None:
    """wire.md d.15: the gRPC gateway's last event repeats the last id; a gateway may repeat any."""
    folded = fold([*ONE[:-1], ONE[-2], ONE[0], DONE])
    assert folded.error is None
    assert len(folded.updates) == 6
    alone = Accumulator()
    payloads = encode(plain(6), INCREMENTAL).payloads
    for payload in payloads:
        alone.add(payload)
    late = alone.add(payloads[-1])
    assert (late.token_ids, late.text, late.start, late.finish_reason) == ((), None, 6, None)


@pytest.mark.parametrize(
    "late",
    [
        {"text": "", "output_ids": [], "meta_info": {"completion_tokens": 7}},
        {"text": "", "output_ids": [999], "meta_info": {"completion_tokens": 6}},
        {"text": "more", "meta_info": {}},
        {"text": "", "output_ids": [106, 107], "meta_info": {"finish_reason": {"type": "stop"}}},
    ],
)
def test_what_goes_on_after_the_end_is_refused(late: dict[str, Any]) -> None:
    """The end came too early: 1 of 4 tokens came out as completed."""
    alone = Accumulator()
    for payload in encode(plain(6), INCREMENTAL).payloads:
        alone.add(payload)
    with pytest.raises(
        ProtocolError, match=r"output 0 ended with .* after 6 tokens, and a later chunk goes on"
    ) as caught:
        alone.add(late)
    assert list(caught.value.partial[0].token_ids) == list(alone.token_ids)


@pytest.mark.parametrize("finish", ["stop", "null", {"type": "stop", "matched": 5}])
def test_an_end_that_is_not_the_end(finish: Any) -> None:
    chunks = [chunk(5, finish=finish), *(chunk(5 + at, count=at + 1) for at in range(1, 4))]
    folded = fold([event(json.dumps(one).encode()) for one in chunks])
    assert isinstance(folded.error, ProtocolError)
    assert list(folded.outputs[0].token_ids) == [5]
