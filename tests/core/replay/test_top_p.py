"""Top-p rows: what is accepted, what is refused with which words, and that joining and padding keep every row."""

from __future__ import annotations

import base64
import copy
import json
import pickle
from array import array
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ssefold.errors import ReplayError, StreamError
from ssefold.replay import TopPReplay
from ssefold.replay import arrays as replay

ROWS = st.lists(st.lists(st.integers(0, 2**31 - 1), max_size=5), max_size=8)


def offsets_of(rows: list[list[int]]) -> list[int]:
    offsets = [0]
    for row in rows:
        offsets.append(offsets[-1] + len(row))
    return offsets


def replay_of(rows: list[list[int]]) -> TopPReplay:
    return TopPReplay([token for row in rows for token in row], offsets_of(rows))


def rows_of(top_p: TopPReplay) -> list[list[int]]:
    return [top_p.kept(i).tolist() for i in range(len(top_p))]


def base64_of(numbers: list[int]) -> str:
    return base64.b64encode(array("i", numbers).tobytes()).decode()


@given(ROWS)
def test_each_row_is_kept_as_it_was(rows: list[list[int]]) -> None:
    flat, offsets = [token for row in rows for token in row], offsets_of(rows)
    forms: list[tuple[Any, Any]] = [
        (flat, offsets),
        (array("i", flat), memoryview(array("i", offsets))),
        (base64_of(flat), base64_of(offsets)),
        (array("i", flat).tobytes(), array("q", offsets)),
    ]
    for token_ids, bounds in forms:
        top_p = TopPReplay(token_ids, bounds)
        assert rows_of(top_p) == rows
        assert top_p.rows == len(top_p) == len(rows)
        assert top_p.token_ids.tolist() == flat
        assert top_p.offsets.tolist() == offsets
        assert top_p.token_ids.format == top_p.offsets.format == "i"


@given(ROWS, ROWS, st.integers(0, 5))
def test_joining_and_padding_move_no_row(first: list[list[int]], second: list[list[int]], n: int) -> None:
    joined = replay_of(first).pad(n).concat(replay_of(second))
    assert rows_of(joined) == first + [[]] * n + second
    assert joined == replay_of(first + [[]] * n + second)


@given(ROWS, ROWS, ROWS)
def test_joining_is_associative_and_zero_rows_are_neutral(a: Any, b: Any, c: Any) -> None:
    x, y, z, nothing = replay_of(a), replay_of(b), replay_of(c), TopPReplay("", [0])
    assert x.concat(y).concat(z) == x.concat(y.concat(z))
    assert nothing.concat(x) == x == x.concat(nothing) == x.pad(0)


@given(ROWS, ROWS)
def test_equal_means_equal_rows_and_equal_replays_hash_alike(a: list[list[int]], b: list[list[int]]) -> None:
    x, y = replay_of(a), TopPReplay(base64_of([token for row in b for token in row]), offsets_of(b))
    assert (x == y) == (a == b)
    assert x != rows_of(x)
    assert hash(x) == hash(replay_of(a))
    assert len({x, replay_of(a)}) == 1


@given(ROWS)
def test_pickles_and_copies_are_equal(rows: list[list[int]]) -> None:
    top_p = replay_of(rows)
    for protocol in range(pickle.HIGHEST_PROTOCOL + 1):
        assert pickle.loads(pickle.dumps(top_p, protocol)) == top_p
    assert copy.copy(top_p) == copy.deepcopy(top_p) == top_p


def test_a_pickle_is_checked_when_it_is_read() -> None:
    pickled = pickle.dumps(TopPReplay([1, 2, 3], [0, 1, 3]), 0)
    assert b"TopPReplay" in pickled
    with pytest.raises(ReplayError, match="falls from"):
        pickle.loads(pickle.dumps(_Forged(), 0))


class _Forged:
    def __reduce__(self) -> tuple[Any, ...]:
        return TopPReplay, ([1, 2, 3], [0, 2, 1, 3])


@pytest.mark.parametrize(
    ("token_ids", "offsets", "says"),
    [
        ([1, 2], [1, 2], r"top_p_token_offsets starts at 1, must start at 0"),
        ([1, 2], [-1, 2], r"top_p_token_offsets starts at -1, must start at 0"),
        ([1, 2, 3], [0, 2, 1, 3], r"top_p_token_offsets\[2\] falls from 2 to 1: offsets never fall"),
        ([1, 2, 3], [0, 2, -1, 3], r"top_p_token_offsets\[2\] falls from 2 to -1"),
        ([1, 2, 3], [0, 0, 2, 1, 3], r"top_p_token_offsets\[3\] falls from 2 to 1"),
        ([1], [0, -1, 1], r"top_p_token_offsets\[1\] falls from 0 to -1"),
        ([1, 2, 3], [0, 5, 3], r"top_p_token_offsets\[2\] falls from 5 to 3"),
        ([1, 2, 3], [0, 2], r"top_p_token_offsets ends at 2, but top_p_token_ids has 3 elements"),
        ([1], [0, 2**31 - 1], r"top_p_token_offsets ends at 2147483647, but top_p_token_ids has 1 elements"),
        ([1], [0, 2**31], r"top_p_token_offsets\[1\] is 2147483648, outside int32"),
        ([1], [], r"top_p_token_offsets is empty: expected rows \+ 1 numbers, which is \[0\] for no rows"),
        ([1], "", r"top_p_token_offsets is empty"),
        ([-1], [0, 1], r"top_p_token_ids\[0\] is -1: a token id is never negative"),
        ([0, -5, 2], [0, 3], r"top_p_token_ids\[1\] is -5: a token id is never negative"),
        ([1, -5, 2], [0, 3], r"top_p_token_ids\[1\] is -5: a token id is never negative"),
        ([2**31], [0, 1], r"top_p_token_ids\[0\] is 2147483648, outside int32"),
        (None, [0], r"top_p_token_ids is missing: .* only come together"),
        ("", None, r"top_p_token_offsets is missing: .* only come together"),
        ([1], [[0, 1], [1]], r"top_p_token_offsets is ragged"),
        ([1.5], [0, 1], r"top_p_token_ids: element 0 is 1\.5"),
        ("AAA", [0, 1], r"top_p_token_ids is not standard padded base64"),
        ("AAAA", [0, 1], r"top_p_token_ids has 3 bytes"),
        ([1], "%%%%", r"top_p_token_offsets is not standard padded base64: character '%' at 0 of 4"),
    ],
)
def test_arrays_that_do_not_fit_are_named_with_their_numbers(token_ids: Any, offsets: Any, says: str) -> None:
    with pytest.raises(ReplayError, match="^" + says) as caught:
        TopPReplay(token_ids, offsets)
    assert isinstance(caught.value, StreamError)
    assert isinstance(caught.value, ValueError)


@given(st.lists(st.integers(-2, 6), max_size=6), st.lists(st.integers(-2, 6), max_size=6))
def test_exactly_the_fitting_pairs_are_taken(token_ids: list[int], offsets: list[int]) -> None:
    fits = (
        offsets[:1] == [0]
        and offsets == sorted(offsets)
        and offsets[-1] == len(token_ids)
        and all(token >= 0 for token in token_ids)
    )
    try:
        TopPReplay(token_ids, offsets)
    except ReplayError:
        assert not fits
    else:
        assert fits


@pytest.mark.parametrize("i", [-1, 2, 3, 2**70, pytest.param(10**6000, id="long")])
def test_a_row_that_is_not_there_is_a_replay_error(i: int) -> None:
    with pytest.raises(ReplayError, match=r"rows|must be an integer from 0"):
        TopPReplay([1, 2, 3], [0, 1, 3]).kept(i)


@pytest.mark.parametrize("i", ["0", None, 1.0, [0]])
def test_a_row_number_of_the_wrong_type_is_a_replay_error(i: Any) -> None:
    with pytest.raises(ReplayError, match=r"^i must be an integer, got "):
        TopPReplay([1], [0, 1]).kept(i)


def test_padding_takes_counts_only() -> None:
    top_p = TopPReplay([1], [0, 1])
    with pytest.raises(ReplayError, match=r"^n must be an integer from 0 to \d+, got -1$"):
        top_p.pad(-1)
    with pytest.raises(ReplayError, match=r"^pad\(2147483647\) to 1 rows: expected at most 2147483647 rows in all$"):
        top_p.pad(2**31 - 1)
    with pytest.raises(ReplayError, match=r"^n must be an integer, got float$"):
        top_p.pad(1.0)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]


def test_joining_refuses_what_int32_offsets_can_not_count(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(replay, "INT32_MAX", 5)
    three = TopPReplay([1, 2, 3], [0, 3])
    assert len(three.concat(TopPReplay([1, 2], [0, 2])).token_ids) == 5
    with pytest.raises(ReplayError, match=r"^3 \+ 3 kept token ids are more than int32 offsets can count \(5\)"):
        three.concat(three)


def test_joining_refuses_anything_else() -> None:
    with pytest.raises(ReplayError, match=r"^concat expects a TopPReplay, got tuple$"):
        TopPReplay([1], [0, 1]).concat(([1], [0, 1]))  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]


def test_nothing_of_a_replay_can_be_changed() -> None:
    top_p = TopPReplay(array("i", [1, 2]), array("i", [0, 2]))
    for name in ("token_ids", "offsets", "rows", "other"):
        with pytest.raises(AttributeError, match="immutable"):
            setattr(top_p, name, top_p.offsets)
        with pytest.raises(AttributeError, match="immutable"):
            delattr(top_p, name)
    for view in (top_p.token_ids, top_p.offsets, top_p.kept(0)):
        assert view.readonly
        with pytest.raises(TypeError):
            view[0] = 9


def test_base64_bytes_are_held_once() -> None:
    raw = array("i", [5, 6, 7]).tobytes()
    top_p = TopPReplay(raw, [0, 1, 3])
    assert top_p.token_ids.obj is raw
    assert top_p.kept(1).obj is raw
    assert top_p.pad(3).token_ids.obj is raw


def test_the_repr_is_short() -> None:
    assert repr(TopPReplay(range(5000), [0, 5000])) == "TopPReplay(1 rows, 5000 token ids)"


def test_the_recorded_rows_of_the_patched_server_are_read(repository: Path) -> None:
    found = 0
    for name in ("20_slime_replay_cumulative", "21_slime_replay_incremental"):
        stream = (repository / "tests/data/streams" / f"{name}.sse").read_bytes()
        truth = json.loads((repository / "tests/data/streams" / f"{name}.json").read_bytes())["indices"]["0"]["top_p"]
        for line in stream.split(b"\n"):
            if b'"top_p_token_ids"' not in line:
                continue
            meta = json.loads(line.removeprefix(b"data: "))["meta_info"]
            top_p = TopPReplay(meta["top_p_token_ids"], meta["top_p_token_offsets"])
            assert top_p.token_ids.tolist() == truth["ids"]
            assert top_p.offsets.tolist() == truth["offsets"]
            found += 1
    assert found == 2
