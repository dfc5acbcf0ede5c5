"""Logprob rows by hundreds are read as they are one by one, and compared to the last bit."""

from __future__ import annotations

import math
from array import array
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ssefold import PayloadError, ProtocolError
from ssefold.fold.rows import check_same, parse_rows
from tests.core.by_hand import exact

PLAIN = st.tuples(st.floats(-30, 0), st.integers(0, 200_000), st.none()).map(list)
VALUES: st.SearchStrategy[Any] = st.sampled_from(
    (-0.5, -0.0, 0.0, 0, -1, None, True, "x", 2**53, 2**63, 10**400, 1e308, -1e308, 5.0, 5.5, 2**70, [], {})
)
ODD = st.one_of(
    st.tuples(VALUES, VALUES, VALUES).map(list), st.lists(VALUES, max_size=4), VALUES,
    st.tuples(st.floats(-30, 0), st.floats(0, 9).map(math.floor).map(float)).map(list),
    st.tuples(st.none(), st.integers(0, 9), st.text(max_size=2)).map(list),
)  # fmt: skip


@st.composite
def many(draw: st.DrawFn) -> list[Any]:
    """Rows as a server sends them, with none or a few odd ones among them."""
    rows: list[Any] = draw(st.lists(PLAIN, min_size=1, max_size=40))
    for _ in range(draw(st.integers(0, 2))):
        rows.insert(draw(st.integers(0, len(rows))), draw(ODD))
    return rows


@given(many(), st.integers(0, 1000))
def test_many_are_read_as_one_by_one(rows: list[Any], first: int) -> None:
    ids, logprobs = array("q"), array("d")
    texts: list[str | None] = []
    for at, row in enumerate(rows):
        try:
            one = parse_rows([row], first + at)
        except PayloadError as error:
            with pytest.raises(PayloadError) as caught:
                parse_rows(rows, first)
            assert str(caught.value) == str(error)
            assert f"output_token_logprobs[{first + at}]" in str(error)
            return
        ids += one.ids
        logprobs += one.logprobs
        texts += one.texts or [None]
    parsed = parse_rows(rows, first)
    assert parsed.ids == ids
    assert exact(parsed.logprobs) == exact(logprobs)
    assert (parsed.texts or [None] * len(rows)) == texts
    assert (parsed.texts is None) == (set(texts) == {None})
    assert parsed.width == len(rows[-1])
    check_same(rows, ids, logprobs)


@pytest.mark.parametrize(
    "row", [[-0.5, -1, None], [-0.5, 2**63, None], [1e999, 1, None], [-0.5, 1.5, None], [-0.5, True, None]]
)
@pytest.mark.parametrize("count", [0, 1, 100])
def test_one_bad_row_among_many(row: list[Any], count: int) -> None:
    with pytest.raises(PayloadError, match=rf"output_token_logprobs\[{count}\]"):
        parse_rows([*[[-0.5, 1, None]] * count, row, *[[-0.5, 1, None]] * count], 0)


@pytest.mark.parametrize("count", [1, 5])
@pytest.mark.parametrize("logprob", [2**53, -(2**53), 2**70, True])
def test_a_logprob_that_no_float_holds_is_refused_among_few_and_many(count: int, logprob: Any) -> None:
    for others in ([[-0.5, 7, None]] * count, [[-1, 7, None]] * count):
        with pytest.raises(PayloadError, match="must be a finite number or null"):
            parse_rows([*others, [logprob, 7, None]], 0)
    assert parse_rows([[-1, 7, None], [1 - 2**53, 7, None]] * count, 0).logprobs.tolist() == [-1.0, 1.0 - 2**53] * count


def test_large_numbers_are_no_reason_to_refuse() -> None:
    """Their sum is not finite, they are."""
    parsed = parse_rows([[-1.5e308, 2**63 - 1, None]] * 50, 0)
    assert parsed.logprobs == array("d", [-1.5e308] * 50)
    assert parsed.ids == array("q", [2**63 - 1] * 50)


@given(st.lists(PLAIN, min_size=1, max_size=30), st.data())
def test_a_changed_row_is_named(rows: list[Any], data: st.DataObject) -> None:
    known = parse_rows(rows, 0)
    at = data.draw(st.integers(0, len(rows) - 1))
    logprob, token_id, _ = rows[at]
    other = data.draw(
        st.sampled_from(
            (
                [logprob, token_id + 1, None],
                [-logprob, token_id, None],
                [None, token_id, None],
                [math.nextafter(logprob, -40), token_id, None],
            )
        )
    )
    changed = [*rows[:at], other, *rows[at + 1 :]]
    with pytest.raises(ProtocolError, match=rf"output_token_logprobs\[{at}\] was logprob .* and is now"):
        check_same(changed, known.ids, known.logprobs)


def test_null_is_the_same_as_null() -> None:
    known = parse_rows([[None, 1, None], [-0.5, 2, None]], 0)
    check_same([[None, 1, "text"], [-0.5, 2.0]], known.ids, known.logprobs)
    check_same([[None, 1.0], [-0.5, 2.0]], known.ids, known.logprobs)
