"""Bodies that the short ways read otherwise than the long one, or that were read wrongly by both: one test each."""

from __future__ import annotations

import json
from array import array

import pytest

from ssefold import PayloadError, ProtocolError, StreamError
from tests.core.by_hand import fold
from tests.core.fast.test_both_paths import same_as_long_way

ABORT = b'{"type":"abort","message":"m"}'
PROMPT = b'"prompt_tokens":3,'


def events(*payloads: bytes) -> list[bytes]:
    return [b"data: {%s}\n\n" % payload for payload in payloads]


def ends(reads: list[bytes]) -> StreamError | None:
    """Hold both ways against each other, and give how it ends."""
    same_as_long_way(reads)
    same_as_long_way([b"".join(reads)])
    return fold(reads).error


@pytest.mark.parametrize("pad", [b"", b"p" * 2000], ids=["short", "long"])
def test_an_abort_of_which_the_text_was_cut_keeps_the_text(pad: bytes) -> None:
    """Its lists were empty, and what was left of its text was taken for all of it: 2,003 characters became one."""
    one = b'"text":"%s","meta_info":{"finish_reason":%s,"completion_tokens":%d}'
    reads = events(
        *(one % (pad + b"abcd"[:count], b"null", count) for count in (1, 2, 3)), one % (pad + b"abcd", ABORT, 0)
    )
    same_as_long_way(reads)
    assert fold(reads).outputs[0].text() == (pad + b"abcd").decode()


def test_text_of_a_cut_abort_does_not_run_ahead_of_the_ids() -> None:
    one = (
        b'"text":"%s","output_ids":[%d],"meta_info":{"finish_reason":%s,%s"weight_version":"d","completion_tokens":%d}'
    )
    growing = [one % (b"abc"[:count], count, b"null", PROMPT, count) for count in (1, 2, 3)]
    reads = events(*growing, one % (b"abcde", 5, ABORT, b"", 5))
    ends(reads)
    output = fold(reads).outputs[0]
    assert (list(output.token_ids), output.text()) == ([1, 2, 3], "abc")


@pytest.mark.parametrize("last", [b"1,2,", b"1,2,,3", b"1,2 ,"])
def test_a_comma_with_nothing_behind_it_is_no_json(last: bytes) -> None:
    one = b'"text":"%s","output_ids":[%s],"meta_info":{"finish_reason":null,"completion_tokens":%d}'
    assert isinstance(
        ends(events(one % (b"a", b"1", 1), one % (b"ab", b"1,2", 2), one % (b"ab", last, 2))), PayloadError
    )


def test_ids_that_ran_ahead_are_compared_with_their_rows() -> None:
    def one(ids: list[int], rows: list[int], count: int) -> bytes:
        listed = [[-0.5, token_id, None] for token_id in rows]
        meta = {"output_token_logprobs": listed, "completion_tokens": count}
        return json.dumps({"output_ids": ids, "meta_info": meta}, separators=(",", ":")).encode()[1:-1]

    reads = events(one([1], [1], 1), one([1, 2], [1, 2], 2), one([1, 2, 9], [1, 2], 2), one([1, 2, 9], [1, 2, 3], 3))
    assert isinstance(ends(reads), ProtocolError)


def test_every_number_of_a_run_is_one_that_can_be_read() -> None:
    """A count of 400 digits, which no parser takes, was passed over with the payload that it stood in."""
    one = (
        b'"text":"a","output_ids":[7],"meta_info":{"finish_reason":null,"dp_rank":0,"reasoning_tokens":%s,'
        b'"output_token_logprobs":[[-0.5,7,null]],"output_token_logprobs_length":%d,"completion_tokens":%d}'
    )
    reads = events(*(one % (b"9" * 400 if at == 15 else b"0", at, at) for at in range(1, 41)))
    same_as_long_way([b"".join(reads)])
    folded = fold([b"".join(reads)])
    assert isinstance(folded.error, PayloadError)
    assert len(folded.updates) == 14
    assert all(update.meta_info["completion_tokens"] for update in folded.updates)


def test_deltas_of_rows_beside_snapshots_of_ids_are_refused_although_these_were_cut() -> None:
    one = (
        b'"text":"","output_ids":[%s],"meta_info":{"output_token_logprobs":%s,"output_token_logprobs_length":%s,'
        b'"completion_tokens":%d}'
    )
    reads = events(
        one % (b"1", b"null", b"null", 1), one % (b"1,2", b"null", b"null", 2),
        one % (b"1,2", b"[[-0.5,1,null]]", b"1", 2), one % (b"1,2", b"[[-0.5,2,null]]", b"2", 2),
    )  # fmt: skip
    assert isinstance(ends(reads), ProtocolError)


@pytest.mark.parametrize(
    ("text", "ids", "whole"),
    [
        (b"bcabc", (8, 8, 7), "abc"),
        (b"abc", (8, 7, 7), "abc"),
        (b"aaa", None, None),
        (b"xbyz", None, None),
        (b"", None, None),
    ],
    ids=["glued", "whole", "both", "neither", "no text"],
)
def test_ids_of_an_abort_that_can_be_read_in_two_ways(
    text: bytes, ids: tuple[int, ...] | None, whole: str | None
) -> None:
    """Known [8], then 8,7,7 of 3: all of them, or the pending 8,7 and the last again.  They were taken for all."""
    one = b'"text":"%s","output_ids":[%s],"meta_info":{"finish_reason":%s,%s"completion_tokens":%d}'
    reads = events(one % (b"a", b"8", b"null", PROMPT, 1), one % (text, b"8,7,7", ABORT, b"", 3))
    error = ends(reads)
    output = fold(reads).outputs[0]
    if ids is None:
        assert isinstance(error, ProtocolError)
        assert "its text tells neither" in str(error)
        assert output.token_ids[:] == (8,)
    else:
        assert error is None
        assert (output.token_ids[:], output.text()) == (ids, whole)
        assert array("q", ids) == array("q", output.token_ids)
