"""Queue aborts that a slow reader gets glued to pending deltas: each of these was folded wrongly or refused once.

SGLang ``managers/tokenizer_manager.py``: ``_handle_abort_req`` makes a snapshot with ``output_ids: [last]``, and
``_coalesce_streaming_chunks`` joins it to the deltas that were not delivered yet.
"""

from __future__ import annotations

from typing import Any

import pytest

from ssefold import Accumulator, ProtocolError

_ABORT = {"type": "abort", "message": "Abort in waiting queue"}


def _delivered(text: str, ids: list[int], *, rows: bool = False) -> Accumulator:
    accumulator = Accumulator()
    meta: dict[str, Any] = {"id": "r", "finish_reason": None, "prompt_tokens": 3, "completion_tokens": len(ids)}
    if rows:
        meta |= _rows(len(ids))
    accumulator.add({"text": text, "output_ids": ids, "meta_info": meta})
    return accumulator


def _rows(count: int) -> dict[str, Any]:
    """Rows of the ids from 6 on."""
    rows = [[-0.5, 6 + at, None] for at in range(count)]
    return {"output_token_logprobs": rows, "output_token_logprobs_length": count}


def _abort(text: str, ids: list[int], count: int, **rows: Any) -> dict[str, Any]:
    return {
        "text": text,
        "output_ids": ids,
        "meta_info": {"id": "r", "finish_reason": _ABORT, "e2e_latency": 0.5, **rows, "completion_tokens": count},
    }


def test_nothing_was_delivered_and_rows_are_whole() -> None:
    """0.5.10 incremental: text and ids are joined, rows come from the abort chunk alone; the text came out twice."""
    accumulator = Accumulator()
    rows = {"output_token_logprobs": [[-0.5, 6, None]], "output_token_logprobs_length": 1}
    update = accumulator.add(_abort("aa", [6, 6], 1, **rows))
    assert (update.token_ids, update.logprobs, update.text) == ((6,), (-0.5,), "a")


@pytest.mark.parametrize(
    ("text", "ids", "count", "wanted", "whole_text"),
    [
        ("bab", [9, 9], 2, [6, 9], "ab"),  # as many ids as the counter says, and not the whole list
        ("bcdabcd", [9, 12, 12, 12], 4, [6, 9, 12, 12], "abcd"),
        ("aaa", [6, 6], 2, [6, 6], "aa"),  # both readings of the ids agree; the text tells
        ("ab", [6, 9], 2, [6, 9], "ab"),  # cumulative: the whole list
        ("a", [6], 1, [6], "a"),
        ("ab", [9], 2, [6, 9], "ab"),  # the last id is the one that is new
        ("ab", [6, 6], 2, [6, 6], "ab"),  # both readings again, and the text is not glued
        ("a", [], 1, [6], "a"),
    ],
)
def test_one_token_was_delivered(text: str, ids: list[int], count: int, wanted: list[int], whole_text: str) -> None:
    accumulator = _delivered("a", [6])
    accumulator.add(_abort(text, ids, count))
    assert list(accumulator.token_ids) == wanted
    assert accumulator.text() == whole_text
    assert accumulator.finish_reason is not None


@pytest.mark.parametrize(
    ("ids", "count"),
    [([9], None), ([9, 9], None), ([12], 3), ([9, 12], 3), ([6, 9, 12], 3)],
)
def test_ids_that_are_known_or_not_counted_add_nothing(ids: list[int], count: Any) -> None:
    """The last one or more of those that came; or some, but not how many there are in all."""
    accumulator = _delivered("abc", [6, 9, 12])
    accumulator.add(_abort("abc", ids, count))
    assert list(accumulator.token_ids) == [6, 9, 12]
    assert accumulator.text() == "abc"
    assert accumulator.finish_reason is not None


def test_lost_ids_are_not_guessed() -> None:
    """0.5.5-0.5.19 cumulative without rows: the snapshot with the ids between was dropped for a slow reader."""
    accumulator = _delivered("a", [6])
    accumulator.add(_abort("abcd", [12], 4))
    assert list(accumulator.token_ids) == [6]
    assert accumulator.text() == "a"  # and no text without its ids


def test_text_that_can_not_be_taken_apart_is_refused() -> None:
    accumulator = _delivered("a", [6])
    before = accumulator.snapshot()
    with pytest.raises(ProtocolError, match="pending deltas"):
        accumulator.add(_abort("xyz", [9, 9], 2))
    assert accumulator.snapshot() == before


@pytest.mark.parametrize(("text", "whole_text"), [("aaa", "aa"), ("ab", "ab")])
def test_rows_may_not_tell_either(text: str, whole_text: str) -> None:
    """A second token like the first: ids are as long as the counter whether or not they are glued."""
    accumulator = _delivered("a", [6], rows=True)
    rows = {"output_token_logprobs": [[-0.5, 6, None]] * 2, "output_token_logprobs_length": 2}
    accumulator.add(_abort(text, [6, 6], 2, **rows))
    assert list(accumulator.token_ids) == [6, 6]
    assert accumulator.text() == whole_text


@pytest.mark.parametrize(
    ("ids", "count", "rows", "says"),
    [
        ([9, 12], 2, 0, r"output_ids\[0\] was 6 and is now 9"),  # a whole list that is another
        ([9, 12], 5, 0, "2 entries, 1 were known and the counter says 5 in all"),  # neither whole, nor last, nor glued
        ([9, 12], 3, 0, "2 entries, 1 were known and the counter says 3 in all"),  # the last id is not twice
        ([9, 9], 1, 0, "2 entries, 1 were known and the counter says 1 in all"),
        ([9, 7], 2, 2, r"output_ids \[9, 7\] and the ids of .* \[6, 7\] disagree"),  # not pending, though the last fits
        ([9, 6, 7, 7], 2, 2, r"output_ids \[9, 6, 7, 7\] and the ids of .* disagree"),  # more than there are
        ([6, 8], 2, 2, r"output_ids \[6, 8\] and the ids of .* disagree"),  # the last does not fit
    ],
)
def test_ids_of_an_abort_that_fit_nothing_are_refused(ids: list[int], count: int, rows: int, says: str) -> None:
    accumulator = _delivered("a", [6], rows=rows > 0)
    before = accumulator.snapshot()
    with pytest.raises(ProtocolError, match=says):
        accumulator.add(_abort("ab", ids, count, **_rows(rows) if rows else {}))
    assert accumulator.snapshot() == before


def test_ids_glued_to_rows_that_are_whole() -> None:
    """The rows are of the abort's snapshot alone; ids are the pending deltas and the last one again."""
    accumulator = _delivered("a", [6], rows=True)
    accumulator.add(_abort("bcabc", [7, 8, 8], 3, **_rows(3)))
    assert list(accumulator.token_ids) == [6, 7, 8]
    assert accumulator.text() == "abc"
