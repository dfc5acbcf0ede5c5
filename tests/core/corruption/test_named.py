"""Inputs that were once folded silently into something wrong, and right streams that were once refused, by name."""

from __future__ import annotations

import json
from typing import Any

import pytest

from ssefold import Accumulator, IncompleteStreamError, PayloadError, ProtocolError
from tests.core.by_hand import Folded, cut, each_byte, fold
from tests.core.mutations import event

ABORT = {"type": "abort", "message": "Abort in waiting queue"}
STOP = {"type": "stop", "matched": 2}
DONE = event(b"[DONE]")


def c(
    ids: Any = None,
    count: Any = None,
    text: Any = None,
    rows: Any = None,
    finish: Any = None,
    index: Any = None,
    **meta: Any,
) -> dict[str, Any]:
    """One chunk; ``rows`` are ids of logprob rows."""
    told: dict[str, Any] = {"id": "A", "finish_reason": finish, "prompt_tokens": 3}
    if count is not None:
        told["completion_tokens"] = count
    if rows is not None:
        told["output_token_logprobs"] = [[-token / 8, token, None] for token in rows]
        told["output_token_logprobs_length"] = count
    told |= meta
    chunk: dict[str, Any] = {"meta_info": {name: value for name, value in told.items() if value != "absent"}}
    if text is not None:
        chunk = {"text": text, **chunk}
    if ids is not None:
        chunk["output_ids"] = ids
    return chunk if index is None else {**chunk, "index": index}


def folded(*chunks: dict[str, Any], **options: Any) -> Folded:
    """The chunks as a body, on both paths."""
    return fold([*(event(json.dumps(chunk).encode()) for chunk in chunks), DONE], **options)


def refused(*chunks: dict[str, Any], says: str) -> Folded:
    """The body is refused, for this reason."""
    result = folded(*chunks)
    assert isinstance(result.error, ProtocolError)
    assert says in str(result.error)
    return result


# ---- 1. two requests in one output ----------------------------------------------------------------------------------


def test_1_two_requests_in_one_output() -> None:
    result = refused(
        c([101, 102], 2), c([503], 3, id="B"), c([104, 505], 5, finish=STOP),
        says="meta_info.id was 'A' and is now 'B' in output 0: this chunk belongs to another request",
    )  # fmt: skip
    assert list(result.outputs[0].token_ids) == [101, 102]


def test_1_a_prompt_does_not_change() -> None:
    refused(c([1], 1), c([2], 2, prompt_tokens=4), says="meta_info.prompt_tokens was 3 and is now 4")
    for abort in ({"prompt_tokens": "absent"}, {"prompt_tokens": 0}):
        assert folded(c([1], 1, text="a"), c([1], 1, text="a", finish=ABORT, **abort)).error is None


# ---- 2. doubled and dropped deltas ----------------------------------------------------------------------------------

PLAIN = {"weight_version": "v", "num_retractions": 0, "dp_rank": None}
CAT = [c([11], 1, "The", **PLAIN), c([12], 2, " cat", **PLAIN), c([13], 3, " sat", **PLAIN),
       c([14, 15], 5, " on mats", finish=STOP, **PLAIN)]  # fmt: skip
RUST = [c([11], 1, "The"), c([12], 2, " cat"), c([13], 3, " sat"), c([14, 15], 5, " on mats", finish=STOP)]


@pytest.mark.parametrize("chunks", [CAT, RUST], ids=["0.5.23", "rust"])
@pytest.mark.parametrize("at", range(3))
def test_2_a_doubled_delta_without_logprobs(chunks: list[dict[str, Any]], at: int) -> None:
    assert folded(*chunks).outputs[0].text() == "The cat sat on mats"
    result = folded(*chunks[: at + 1], chunks[at], *chunks[at + 1 :])
    assert isinstance(result.error, ProtocolError)
    assert result.outputs[0].text() == "The cat sat"[: [3, 7, 11][at]]


SNAPSHOTS = [
    c([11], 1, "The", [11]), c([12], 2, " cat", [11, 12]), c([13], 3, " sat", [11, 12, 13]),
    c([14, 15], 5, " on mats", [11, 12, 13, 14, 15], finish=STOP),
]  # fmt: skip


@pytest.mark.parametrize("at", range(3))
def test_2_deltas_beside_rows_that_are_snapshots(at: int) -> None:
    """0.5.10 incremental with logprobs: text and ids are deltas, rows are not."""
    assert folded(*SNAPSHOTS).outputs[0].text() == "The cat sat on mats"
    doubled = folded(*SNAPSHOTS[: at + 1], SNAPSHOTS[at], *SNAPSHOTS[at + 1 :])
    dropped = folded(*SNAPSHOTS[:at], *SNAPSHOTS[at + 1 :])
    assert isinstance(doubled.error, ProtocolError)
    assert isinstance(dropped.error, ProtocolError)
    assert doubled.outputs[0].text() == "The cat sat"[: [3, 7, 11][at]]
    assert not dropped.outputs or dropped.outputs[0].text() == "The cat"[: [0, 3, 7][at]]


def test_2_a_lost_delta_before_an_end_without_ids() -> None:
    """0.5.10 incremental: the last chunk has no new token, but rows of all; the text of the lost one was missing."""
    end = c([], 3, "", [11, 12, 13], finish=STOP)
    assert folded(*SNAPSHOTS[:3], end).outputs[0].text() == "The cat sat"
    refused(*SNAPSHOTS[:2], end, says="output_ids has 0 entries in a chunk of deltas, but 1 tokens are new")


def test_2_the_grpc_gateway_repeats_the_last_id() -> None:
    result = folded(c([11], 1, "a", weight_version="v"), c([12], 2, "ab", weight_version="v"),
                    c([12], 2, "ab", finish="stop", weight_version="v"))  # fmt: skip
    assert result.error is None
    assert result.outputs[0].text() == "ab"


# ---- 3. lanes that no version combines ------------------------------------------------------------------------------


def test_3_snapshots_of_text_beside_deltas_of_rows() -> None:
    chunks = [c(count=1, text=" one", rows=[1]), c(count=2, text=" one two", rows=[1, 2])]
    result = refused(*chunks, c(count=3, text=" three", rows=[3]), says="neither cumulative (it would have 3)")
    assert result.outputs[0].text() == " one two"


def test_3_snapshots_of_text_beside_deltas_of_ids() -> None:
    chunks = [c(None, at + 1, " one" * (at + 1)) for at in range(2)]
    result = refused(*chunks, c([7], 3, " two", rows=[7]), says="1 entries, 0 were known and the counter says 3 in all")
    assert result.outputs[0].text() == " one one"
    refused(c([1], 1, " one", **PLAIN), c([1, 2], 2, " one two", **PLAIN), c([3], 3, " three", **PLAIN),
            says="the output_ids lane was cumulative and is now incremental")  # fmt: skip


def test_3_a_snapshot_is_not_rewritten() -> None:
    refused(c([1], 1, " one"), c([1, 2], 2, " one two"), c([1, 2, 3], 3, " three"),
            says="text is cumulative and was changed at character 1")  # fmt: skip


# ---- 4. an abort glued behind deltas, equal tokens ------------------------------------------------------------------


@pytest.mark.parametrize("delivered", [1, 2, 3])
def test_4_an_abort_glued_behind_equal_tokens(delivered: int) -> None:
    """0.5.10 incremental with logprobs: 7, 9, 9, 9 is "A!!!"; some deltas are pending when the abort comes."""
    ids = [7, 9, 9, 9]
    chunks = [c([ids[at]], at + 1, "A!!!"[at], ids[: at + 1]) for at in range(delivered)]
    pending = ids[delivered:]
    abort = c([*pending, 9], 4, "A!!!"[delivered:] + "A!!!", ids, finish=ABORT, prompt_tokens="absent")
    result = folded(*chunks, abort)
    assert result.error is None
    assert result.outputs[0].text() == "A!!!"
    assert list(result.outputs[0].token_ids) == ids


# ---- 5. an end that is not the end ----------------------------------------------------------------------------------


@pytest.mark.parametrize("finish", [STOP, "stop", "null"])
def test_5_an_end_that_is_not_the_end(finish: Any) -> None:
    result = refused(c([1], 1, "a", finish=finish), c([2, 3, 4], 4, "bcd", finish=STOP), says="a later chunk goes on")
    assert list(result.outputs[0].token_ids) == [1]


def test_5_a_repeat_of_the_end_is_passed_over() -> None:
    end = c([1, 2], 2, "ab", finish=STOP)
    assert folded(end, end).error is None
    assert folded(c([1], 1, "a"), end, c([1], 1, "a")).error is None


# ---- 6. counted rows that are not there -----------------------------------------------------------------------------


@pytest.mark.parametrize("rows", ["absent", None])
def test_6_counted_rows_that_are_not_there(rows: Any) -> None:
    refused(
        c([1, 2, 3], 3, "abc", finish=STOP, output_token_logprobs=rows, output_token_logprobs_length=3),
        says="meta_info.output_token_logprobs_length is 3, but 0 rows",
    )


@pytest.mark.parametrize("name", ["output_top_logprobs", "output_token_ids_logprobs", "output_token_sampling_mask"])
def test_6_a_list_that_stops_before_the_end(name: str) -> None:
    """A trainer zips it with the tokens: a list that is shorter is refused, by name."""
    first, last = c([1], 1, "a", [1], **{name: [[1]]}), c([1, 2], 2, "ab", [1, 2], finish=STOP)
    refused(first, last, says=f"meta_info.{name} covers 1 of 2 tokens at the end of the output")


def test_6_a_mask_shorter_than_the_tokens() -> None:
    """By its own counter: a prefill-decode hand-over loses the first row."""
    mask = {"output_token_sampling_mask": [[1]], "output_token_sampling_mask_length": 1}
    refused(c([1, 2], 2, "ab", finish=STOP, **mask), says="output_token_sampling_mask covers 1 of 2 tokens")
    mask = {"output_token_sampling_mask": None, "output_token_sampling_mask_length": 2}
    refused(c([1, 2], 2, "ab", finish=STOP, **mask), says="output_token_sampling_mask covers 0 of 2 tokens")


def test_6_an_abort_out_of_the_queue_has_no_mask() -> None:
    mask = {"output_token_sampling_mask": [[1]], "output_token_sampling_mask_length": 1}
    abort = c([1, 2], 2, "ab", [1, 2], finish=ABORT, prompt_tokens="absent")
    assert folded(c([1], 1, "a", [1], **mask), abort).error is None


# ---- 7. an empty delta at the start ---------------------------------------------------------------------------------


def test_7_an_empty_list_is_no_sign() -> None:
    """0.5.10 incremental in a batch: the first chunk has no token yet, and its live rows have run ahead."""
    rows = [1, 2, 3, 4]
    chunks = [
        c([], 0, "", rows[:2], index=0), c([1, 2], 2, "ab", rows[:2], index=0), c([3], 3, "c", rows, index=0),
        c([4], 4, "d", rows, finish=STOP, index=0),
    ]  # fmt: skip
    result = folded(*chunks)
    assert result.error is None
    assert (list(result.outputs[0].token_ids), result.outputs[0].text()) == (rows, "abcd")
    assert dict(result.outputs[0].lanes) == {
        "text": "incremental",
        "output_ids": "incremental",
        "logprobs": "cumulative",
    }


# ---- 8. events that say nothing -------------------------------------------------------------------------------------

GOOD = [event(json.dumps(chunk).encode()) for chunk in CAT]


@pytest.mark.parametrize(
    "nothing",
    [b"data:\n\n", b"data:  \n\n", b"data\n\n", b"data:\ndata:\n\n", b"event: ping\ndata: 1700000000\n\n",
     b'event: ping\ndata: {"type":"ping"}\n\n', b"event: ping\ndata: still here\n\n", event(b'{"type":"keepalive"}'),
     event(b"{}"), b"event: heartbeat\ndata:\n\n"],
)  # fmt: skip
@pytest.mark.parametrize("at", range(5))
def test_8_events_that_say_nothing(nothing: bytes, at: int) -> None:
    result = fold([*GOOD[:at], nothing, *GOOD[at:], DONE])
    assert result.error is None
    assert result.decoder.skipped == 1
    assert result.outputs[0].text() == "The cat sat on mats"


def test_8_what_says_nothing_hides_no_lost_chunk() -> None:
    for lost in (b"data:\n\n", event(b'{"type":"keepalive"}')):
        assert isinstance(fold([*GOOD[:1], lost, *GOOD[2:]]).error, ProtocolError)
    # A named event with one of our fields that cannot be read is a chunk that was damaged.
    assert isinstance(fold([*GOOD[:1], b'event: chunk\ndata: {"text":"x\n\n', *GOOD[2:]]).error, PayloadError)


@pytest.mark.parametrize(
    ("payload", "says"),
    [(b'{"id":"c","choices":[{"delta":{}}]}', "This is the OpenAI route"), (b'{"candidates":[]}', "generateContent")],
)
def test_8_other_dialects_are_named(payload: bytes, says: str) -> None:
    result = fold([event(payload)])
    assert isinstance(result.error, PayloadError)
    assert says in str(result.error)
    assert "use /generate" in str(result.error)


def test_8_what_was_passed_over_is_said_when_nothing_came() -> None:
    result = fold([event(b'{"detail":"model not found"}')])
    assert isinstance(result.error, IncompleteStreamError)
    assert '1 events were passed over, the first begins with b\'{"detail":"model not found"}\'' in str(result.error)


# ---- 9. what is not an event stream ---------------------------------------------------------------------------------

HTML = b"<html>\r\n<head><title>502 Bad Gateway</title></head>\r\n\r\n</html>"


@pytest.mark.parametrize(
    ("body", "at", "begins"),
    [
        (HTML, 0, b"<html>"),
        (b"\x00\x01\x02\xff" * 100, 0, (b"\x00\x01\x02\xff" * 20)),
        (b"".join(GOOD[:1]).decode().encode("utf-16"), 0, None),
        (b"bash: line 1: sglang: command not found\n", 0, b"bash: line 1: sglang: command not found"),
        (b"2026-01-01 INFO x\n2026-01-01 INFO data: {}\n\n", 0, b"2026-01-01 INFO x"),
        (b"\xef\xbb\xbf: hello\n\n" + HTML, 12, b"<html>"),
        (b"\r\n\r\nid: 7\r\n" + HTML, 11, b"<html>"),
        (b'{"text":"a","meta_info":{}}\n', 0, b'{"text":"a","meta_info":{}}'),
    ],
)
def test_9_what_is_no_event_stream(body: bytes, at: int, begins: bytes | None) -> None:
    for reads in ([body], each_byte(body), cut(body, 3, 20)):
        result = fold(reads)
        assert isinstance(result.error, PayloadError)
        assert f"no event stream {f'from byte {at} on' if at else 'at all'}" in str(result.error)
        assert begins is None or repr(begins) in str(result.error)


def test_9_a_page_after_good_events() -> None:
    for good in (GOOD[:3], [one.replace(b"\n", b"\r\n") for one in GOOD[:3]]):
        at = len(b"".join(good))
        for reads in ([*good, HTML], [b"".join(good) + HTML], each_byte(b"".join(good) + HTML)):
            result = fold(reads)
            assert isinstance(result.error, PayloadError)
            assert f"no event stream from byte {at} on: b'<html>'" in str(result.error)
            assert list(result.error.partial[0].token_ids) == [11, 12, 13]


def test_9_fields_that_nobody_knows_are_allowed() -> None:
    unknown = b"x-trace: 7\n"
    assert fold([unknown, *GOOD, DONE]).error is None
    assert isinstance(fold([unknown, *GOOD[:2]]).error, IncompleteStreamError)


def test_9_blank_lines_that_are_missing() -> None:
    body = b"".join([*GOOD, DONE]).replace(b"\n\n", b"\n")
    for reads in ([body], [body + b"\n"], each_byte(body), [GOOD[0], body]):
        result = fold(reads)
        assert isinstance(result.error, PayloadError)
        assert "blank lines between events are missing; a gateway drops them" in str(result.error)


# ---- text that is null ----------------------------------------------------------------------------------------------


def test_text_null_in_a_chunk_that_replaces() -> None:
    """ "a" then null with tokens [11, 12] and stop: the text is not whole, and was given out as if it were."""
    output = Accumulator()
    output.add(c([11], 1, "a"))
    output.add(c([11, 12], 2, None, finish=STOP))
    assert output.text() == ""
    assert output.text(lambda ids: f"decoded {list(ids)}") == "decoded [11, 12]"


def test_text_null_in_an_update_that_replaces() -> None:
    """Rows that come late replace everything: the text before them is not handed out as all of it."""
    output = Accumulator()
    output.add(c([11], 1, "a"))
    update = output.add(c([11, 12], 2, None, [11, 12], finish=STOP))
    assert (update.replace, update.token_ids, update.text) == (True, (11, 12), None)
    assert output.text() == ""
