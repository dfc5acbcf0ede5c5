"""Routed experts and indexer choices: the count of the numbers decides where they belong, or nothing does."""

from __future__ import annotations

import base64
import copy
import json
import pickle
from array import array
from pathlib import Path
from typing import Any
from unittest.mock import ANY

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ssefold.errors import ReplayError
from ssefold.replay import ReplayArray, TopPReplay

SMALL = st.integers(1, 4)


def numbers(count: int) -> array[int]:
    return array("i", range(count))


@given(SMALL, SMALL, st.integers(0, 8), st.integers(0, 12))
def test_a_full_array_starts_at_token_0_whatever_was_asked_for(layers: int, k: int, total: int, start_len: int) -> None:
    full = max(total - 1, 0)
    placed = ReplayArray(numbers(full * layers * k)).reshape(layers, k, total_tokens=total, start_len=start_len)
    # Zero rows are both: nothing was fed, or nothing was left over after the crop.
    assert placed.start == (0 if full else min(start_len, full))
    assert placed.shape == (full, layers, k)
    assert placed.values.tolist() == list(range(full * layers * k))


@given(SMALL, SMALL, st.integers(1, 8), st.integers(0, 12))
def test_a_cropped_array_starts_where_it_was_asked_to(layers: int, k: int, total: int, start_len: int) -> None:
    start = min(start_len, total - 1)  # clamped as the server does
    rows = total - 1 - start
    placed = ReplayArray(numbers(rows * layers * k)).reshape(layers, k, total_tokens=total, start_len=start_len)
    assert (placed.rows, placed.start, placed.shape) == (rows, start, (rows, layers, k))
    assert tuple(placed) == (rows, start, (rows, layers, k))
    assert placed.array.shape == (rows, layers, k)
    cube: Any = placed.array.tolist()
    assert cube == [[[(r * layers + y) * k + x for x in range(k)] for y in range(layers)] for r in range(rows)]


@given(SMALL, SMALL, st.integers(0, 8), st.integers(0, 9), st.integers(0, 130))
def test_every_other_count_is_refused_with_all_three_counts(
    layers: int, k: int, total: int, start_len: int, count: int
) -> None:
    full = max(total - 1, 0)
    cropped = full - min(start_len, full)
    experts = ReplayArray(numbers(count))
    if count in (full * layers * k, cropped * layers * k):
        assert experts.reshape(layers, k, total_tokens=total, start_len=start_len).rows * layers * k == count
        return
    with pytest.raises(ReplayError) as caught:
        experts.reshape(layers, k, total_tokens=total, start_len=start_len)
    message = str(caught.value)
    assert message.startswith(f"routed_experts has {count} elements, expected ")
    assert f"{full * layers * k} ({full} rows x {layers} layers x {k})" in message
    if cropped != full:
        assert f"{cropped * layers * k} ({cropped} rows x {layers} layers x {k}, cropped) or " in message
    else:
        assert "cropped" not in message
    for remedy in ("num_layers", "top_k", "total_tokens", "routed_experts_start_len"):
        assert remedy in message


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ({"num_layers": 0}, "num_layers must be an integer from 1 to"),
        ({"num_layers": -1}, "num_layers must be .* got -1"),
        ({"num_layers": 1.0}, "num_layers must be an integer, got float"),
        ({"top_k": 0}, "top_k must be an integer from 1 to"),
        ({"top_k": "2"}, "top_k must be an integer, got str"),
        ({"total_tokens": -1}, "total_tokens must be an integer from 0 to .* got -1"),
        ({"total_tokens": None}, "total_tokens must be an integer, got NoneType"),
        ({"start_len": -1}, "start_len must be an integer from 0 to"),
        ({"start_len": 10**6000}, "start_len must be .* got an integer of 19932 bits"),
        ({"total_tokens": 2**63}, "total_tokens must be .* got 9223372036854775808"),
        ({"num_layers": 2**20, "top_k": 2**20}, "num_layers=1048576 x top_k=1048576 is more than"),
    ],
)
def test_arguments_that_count_nothing_are_refused(arguments: dict[str, Any], says: str) -> None:
    usual: dict[str, Any] = {"num_layers": 2, "top_k": 2, "total_tokens": 1, "start_len": 0}
    with pytest.raises(ReplayError, match=says):
        ReplayArray("").reshape(**(usual | arguments))


def test_the_largest_counts_are_taken() -> None:
    assert ReplayArray("").reshape(2**12, 2**12, total_tokens=1).shape == (0, 2**12, 2**12)
    with pytest.raises(ReplayError, match=r"^num_layers=4097 x top_k=4096 is more than 16777216 numbers a token"):
        ReplayArray("").reshape(2**12 + 1, 2**12, total_tokens=1)
    with pytest.raises(ReplayError, match=r"has 0 elements, expected 9223372036854775806 "):
        ReplayArray("").reshape(1, 1, total_tokens=2**63 - 1)


def test_zero_rows_have_a_shape_too() -> None:
    placed = ReplayArray("").reshape(3, 2, total_tokens=7, start_len=6)
    assert (placed.rows, placed.start, placed.shape) == (0, 6, (0, 3, 2))
    assert placed.array.shape == (0, 3, 2)
    assert placed.array.tolist() == []
    assert placed.values.tolist() == []
    assert ReplayArray(placed.array) == ReplayArray("")


def test_masked_rows_pass_through() -> None:
    placed = ReplayArray([[[-1, -1]], [[3, 5]]]).reshape(1, 2, total_tokens=3)
    cube: Any = placed.array.tolist()
    assert cube == [[[-1, -1]], [[3, 5]]]


def test_a_regular_nested_list_is_taken_and_a_ragged_one_is_not() -> None:
    assert ReplayArray([[[1, 2], [3, 4]]]).values.tolist() == [1, 2, 3, 4]
    with pytest.raises(ReplayError, match=r"^routed_experts is ragged"):
        ReplayArray([[1, 2, 3], [4]])


def test_messages_name_the_field() -> None:
    with pytest.raises(ReplayError, match=r"^indexer_topk has 3 elements"):
        ReplayArray([1, 2, 3], field="indexer_topk").reshape(2, 2, total_tokens=3)
    with pytest.raises(ReplayError, match=r"^indexer_topk is not standard padded base64"):
        ReplayArray("?", field="indexer_topk")
    with pytest.raises(ReplayError, match=r"^routed_experts is null: the server sent no array"):
        ReplayArray(None)


@given(st.lists(st.integers(-(2**31), 2**31 - 1)), st.lists(st.integers(-1, 1)))
def test_equality_hash_and_pickle_go_by_the_numbers(a: list[int], b: list[int]) -> None:
    x, y = ReplayArray(a), ReplayArray(array("i", b), field="indexer_topk")
    assert (x == y) == (a == b)
    assert x != a
    assert hash(x) == hash(ReplayArray(array("q", a)))
    for protocol in range(pickle.HIGHEST_PROTOCOL + 1):
        again = pickle.loads(pickle.dumps(y, protocol))
        assert again == y
        assert again.field == "indexer_topk"
    assert copy.deepcopy(x) == copy.copy(x) == x
    assert len(x) == len(a)


def test_nothing_of_an_array_can_be_changed() -> None:
    experts = ReplayArray([1, 2])
    for name in ("values", "field", "other"):
        with pytest.raises(AttributeError, match="immutable"):
            setattr(experts, name, "x")
        with pytest.raises(AttributeError, match="immutable"):
            delattr(experts, name)
    assert experts.values.readonly
    assert experts.reshape(1, 2, total_tokens=2).array.readonly


def test_what_is_no_replay_is_not_equal() -> None:
    experts = ReplayArray([1, 2, 3, 4])
    placed = experts.reshape(1, 2, total_tokens=3)
    rows = TopPReplay([1], [0, 1])
    for one in (experts, placed, rows):
        assert one != [1, 2, 3, 4]
        assert one == ANY
    assert placed != experts
    assert experts != rows


def test_a_count_that_fits_neither_way_is_told_with_both() -> None:
    with pytest.raises(ReplayError, match=r"3 elements, expected 2 \(1 rows x 1 layers x 2, cropped\) or 4 \(2 rows x"):
        ReplayArray([1, 2, 3]).reshape(1, 2, total_tokens=3, start_len=1)
    with pytest.raises(ReplayError, match=r"3 elements, expected 4 \(2 rows x 1 layers x 2\) for total_tokens=3"):
        ReplayArray([1, 2, 3]).reshape(1, 2, total_tokens=3)


def test_reprs_are_short() -> None:
    experts = ReplayArray(range(6))
    assert repr(experts) == "ReplayArray(6 numbers, field='routed_experts')"
    assert repr(experts.reshape(1, 2, total_tokens=4)) == "ReplayRows(rows=3, start=0, shape=(3, 1, 2))"


def test_numpy_reads_the_decoded_bytes_without_a_copy() -> None:
    numpy = pytest.importorskip("numpy", reason="NumPy is not installed")
    experts = ReplayArray(base64.b64encode(numbers(12).tobytes()).decode())
    placed = experts.reshape(3, 2, total_tokens=3)
    flat, cube = numpy.frombuffer(experts.values, dtype=numpy.int32), numpy.asarray(placed.array)
    assert cube.shape == (2, 3, 2)
    assert cube.dtype == numpy.int32
    assert cube.ravel().tolist() == flat.tolist() == list(range(12))
    assert numpy.shares_memory(flat, cube)
    empty = numpy.asarray(ReplayArray("").reshape(3, 2, total_tokens=1).array)
    assert empty.shape == (0, 3, 2)
    assert empty.dtype == numpy.int32


def test_the_recorded_experts_of_real_servers_fall_into_place(repository: Path) -> None:
    found = 0
    for path in sorted((repository / "tests/data/streams").glob("2*.sse")):
        truth = json.loads(path.with_suffix(".json").read_bytes())["indices"]["0"].get("routed_experts")
        if truth is None:
            continue
        for line in path.read_bytes().split(b"\n"):
            if b'"routed_experts":"' not in line:
                continue
            meta = json.loads(line.removeprefix(b"data: "))["meta_info"]
            placed = ReplayArray(meta["routed_experts"]).reshape(
                truth["num_layers"],
                truth["topk"],
                total_tokens=meta["prompt_tokens"] + meta["completion_tokens"],
                start_len=truth["start_len"],
            )
            assert (placed.rows, placed.start) == (truth["rows"], truth["start_len"])
            assert placed.values.tolist() == truth["values"]
            found += 1
    assert found
