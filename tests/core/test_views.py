"""Frozen data and live number views: they read like what they show, and change nothing."""

from __future__ import annotations

import copy
import json
import math
import pickle
from array import array
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ssefold.views import Floats, FrozenDict, FrozenList, Ints, freeze, thaw

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=5), inner, max_size=4),
    max_leaves=15,
)
OBJECTS = st.dictionaries(st.text(max_size=5), JSON, max_size=5)
ARRAYS = st.lists(JSON, max_size=6)
INT64 = st.integers(-(2**63), 2**63 - 1)
SLICES = st.slices(8)


# ---- JSON-like data ------------------------------------------------------------------------------------------------


@given(OBJECTS)
def test_a_frozen_object_reads_like_the_dict(data: dict[str, Any]) -> None:
    view = freeze(data)
    assert isinstance(view, FrozenDict)
    assert isinstance(view, Mapping)
    assert view == data
    assert data == view
    assert view == MappingProxyType(data)
    assert view == freeze(copy.deepcopy(data))
    assert list(view) == list(data)
    assert len(view) == len(data)
    assert bool(view) == bool(data)
    assert dict(view) == data
    assert list(view.values()) == list(data.values())
    assert list(view.items()) == list(data.items())
    for key, value in data.items():
        assert key in view
        assert view[key] == value == view.get(key)
    assert "no such key" not in view
    assert view.get("no such key", 5) == 5
    with pytest.raises(KeyError):
        view["no such key"]


@given(ARRAYS, SLICES)
def test_a_frozen_array_reads_like_the_list(data: list[Any], part: slice) -> None:
    for source in (data, tuple(data)):
        view = freeze(source)
        assert isinstance(view, FrozenList)
        assert isinstance(view, Sequence)
        assert view == data
        assert data == view
        assert view == tuple(data)
        assert tuple(data) == view
        assert view == freeze(tuple(data))
        assert list(view) == data
        assert len(view) == len(data)
        assert view[part] == data[part]
        assert isinstance(view[part], FrozenList)
        assert [view[at] for at in range(-len(data), len(data))] == data + data
        assert list(reversed(view)) == data[::-1]
        assert all(value in view for value in data)
        assert view.count(1) == data.count(1)
        with pytest.raises(IndexError):
            view[len(data)]


@given(OBJECTS, OBJECTS)
def test_frozen_data_is_equal_exactly_when_the_data_is(a: dict[str, Any], b: dict[str, Any]) -> None:
    assert (freeze(a) == freeze(b)) == (freeze(a) == b) == (a == b)
    assert (freeze([a, b]) == freeze([b, a])) == (a == b)
    assert freeze(a) != list(a.items())
    assert freeze([a]) != "x"


@given(OBJECTS)
def test_thawing_gives_plain_data_that_shares_nothing(data: dict[str, Any]) -> None:
    before = copy.deepcopy(data)
    for plain in (thaw(freeze(data)), freeze(data).copy(), thaw({"x": freeze(data)})["x"], freeze([data]).copy()[0]):
        assert json.dumps(plain) == json.dumps(before)
        plain["new"] = 1
        for value in plain.values():
            if isinstance(value, dict):
                value["new"] = 1
            elif isinstance(value, list):
                value.append(1)
    assert data == before


@given(OBJECTS)
def test_frozen_data_pickles_and_copies_as_frozen_data(data: dict[str, Any]) -> None:
    for view in (freeze(data), freeze([data, data])):
        for again in (pickle.loads(pickle.dumps(view)), copy.deepcopy(view), copy.copy(view)):
            assert type(again) is type(view)
            assert again == view


def test_nothing_of_frozen_data_can_be_changed_at_any_depth() -> None:
    data = {"a": [1, {"b": [2, (3, {"c": 4})]}]}
    view: Any = freeze(data)
    inner: Any = view["a"][1]["b"][1][1]
    assert inner == {"c": 4}
    for target, key in ((view, "a"), (view["a"], 0), (view["a"][1:][0], "b"), (inner, "c")):
        with pytest.raises(TypeError):
            target[key] = 9
        with pytest.raises(TypeError):
            del target[key]
        with pytest.raises(AttributeError):
            target.other = 9
    of_dicts = ("__ior__", "clear", "pop", "popitem", "setdefault", "update")
    of_lists = ("__iadd__", "__imul__", "append", "clear", "extend", "insert", "pop", "remove", "reverse", "sort")
    for target, names in ((view, of_dicts), (inner, of_dicts), (view["a"], of_lists), (view["a"][1:], of_lists)):
        for name in names:
            with pytest.raises(TypeError, match=r"read-only: change a \.copy\(\) of it"):
                getattr(target, name)("a")
    for values in (view.values(), (value for _, value in view.items()), iter([view["a"]]), [view.get("a")]):
        assert all(isinstance(value, FrozenList) for value in values)
    assert all(isinstance(value, (int, FrozenDict)) for value in view["a"])
    assert all(isinstance(value, (int, FrozenDict)) for value in reversed(view["a"]))
    with pytest.raises(TypeError, match="unhashable"):
        hash(view)
    with pytest.raises(TypeError, match="unhashable"):
        hash(view["a"])


def test_plain_containers_made_of_frozen_data_hold_frozen_data() -> None:
    """Python's own containers read some of those that derive from them without asking."""
    view: Any = freeze({"a": [[1], {"b": 2}]})
    kinds = (FrozenList, FrozenDict)
    for made in (dict(view), {**view}, view | {}, {} | view, dict(view.items()), view.get("c", view)):
        assert type(made["a"]) is FrozenList
    rows = view["a"]
    added = (rows + [], [] + rows, rows * 1, 1 * rows)  # noqa: RUF005
    for made in (*added, list(rows), [*rows], tuple(rows), list(reversed(rows)), rows[:]):
        assert all(type(value) in kinds for value in made)
        assert len(made) == 2
    assert view != MappingProxyType({"a": []})
    assert rows != ([1], {"b": 3})


@given(OBJECTS)
def test_frozen_data_is_written_as_json_like_the_dict(data: dict[str, Any]) -> None:
    assert json.dumps(freeze(data)) == json.dumps(data)
    assert json.dumps(freeze([data, data]), indent=1, sort_keys=True) == json.dumps(
        [data, data], indent=1, sort_keys=True
    )
    try:
        import orjson
    except ImportError:
        return
    assert orjson.dumps(freeze({"a": [{"b": [1]}]})) == b'{"a":[{"b":[1]}]}'


def test_scalars_and_frozen_data_are_themselves() -> None:
    view = freeze({"a": 1})
    for value in (1, 1.5, "text", None, True, view):
        assert freeze(value) is value


def test_a_view_shows_subclasses_of_dict_and_list_too() -> None:
    assert freeze(OrderedDict(a=[1])) == {"a": [1]}
    assert isinstance(freeze(OrderedDict()), FrozenDict)


def test_reprs_show_the_data_and_stay_short() -> None:
    assert repr(freeze({"a": [1, {"b": None}]})) == "FrozenDict({'a': [1, {'b': None}]})"
    assert repr(freeze([1, "x"])) == "FrozenList([1, 'x'])"
    assert len(repr(freeze({"rows": [[0.5, 1, None]] * 10_000, "text": "x" * 10_000}))) < 1_000


# ---- numbers -------------------------------------------------------------------------------------------------------


@given(st.lists(INT64), SLICES, INT64)
def test_a_view_of_ints_reads_like_the_list(numbers: list[int], part: slice, other: int) -> None:
    view = Ints(array("q", numbers))
    assert isinstance(view, Sequence)
    assert view == numbers
    assert numbers == view
    assert view == tuple(numbers)
    assert tuple(numbers) == view
    assert view == array("q", numbers)
    assert view == Ints(array("q", numbers))
    assert view == freeze(numbers)
    assert (view == [*numbers, other]) is (view == Ints(array("q", [*numbers, other]))) is False
    assert list(view) == view.tolist() == numbers
    assert len(view) == len(numbers)
    assert view[part] == tuple(numbers[part])
    assert [view[at] for at in range(-len(numbers), len(numbers))] == numbers * 2
    assert list(reversed(view)) == numbers[::-1]
    assert (other in view) == (other in numbers)
    assert view.count(other) == numbers.count(other)
    assert pickle.loads(pickle.dumps(view)) == view
    assert copy.deepcopy(view) == view
    if numbers:
        assert view.index(numbers[-1]) == numbers.index(numbers[-1])


@given(st.lists(st.none() | st.floats(allow_nan=False)), SLICES)
def test_a_view_of_floats_reads_like_the_list_with_none_for_nan(numbers: list[float | None], part: slice) -> None:
    view = Floats(array("d", [math.nan if number is None else number for number in numbers]))
    assert isinstance(view, Sequence)
    assert view == numbers
    assert numbers == view
    assert view == tuple(numbers)
    assert view == freeze(numbers)
    assert view == Floats(array("d", [math.nan if number is None else number for number in numbers]))
    assert (view == [*numbers, None]) is False
    assert repr(list(view)) == repr(view.tolist()) == repr(numbers)  # tells -0.0 from 0.0
    assert len(view) == len(numbers)
    assert view[part] == tuple(numbers[part])
    assert [view[at] for at in range(-len(numbers), len(numbers))] == numbers * 2
    assert (None in view) == (None in numbers)
    assert all(number in view for number in numbers)
    assert all(not math.isnan(number) for number in view if number is not None)
    assert view.count(None) == numbers.count(None)
    assert pickle.loads(pickle.dumps(view)) == view
    assert copy.deepcopy(view) == view


def test_infinities_that_cancel_are_not_taken_for_null() -> None:
    assert Floats(array("d", [math.inf, -math.inf])) == [math.inf, -math.inf]


def test_number_views_are_live_and_slices_are_not() -> None:
    numbers, floats = array("q", [1, 2]), array("d", [0.5])
    ints_view, floats_view = Ints(numbers), Floats(floats)
    kept, kept_floats = ints_view[:], floats_view[:]
    numbers.append(3)
    floats.append(math.nan)
    assert ints_view == [1, 2, 3]
    assert floats_view == [0.5, None]
    assert (kept, kept_floats) == ((1, 2), (0.5,))


@pytest.mark.parametrize("view", [Ints(array("q", [1, 2])), Floats(array("d", [1.0, math.nan]))])
def test_number_views_can_not_be_changed(view: Any) -> None:
    with pytest.raises(TypeError):
        view[0] = 5
    with pytest.raises(TypeError):
        del view[0]
    with pytest.raises(AttributeError):
        view.other = 5
    assert not hasattr(view, "append")
    view.tolist().append(5)
    assert len(view) == 2
    with pytest.raises(TypeError, match="unhashable"):
        hash(view)
    with pytest.raises(IndexError):
        view[2]
    assert view != "12"
    assert view != b"\x01\x02"
    assert view != 5
    assert view != {1, 2}


def test_reprs_of_number_views_are_cut() -> None:
    assert repr(Ints(array("q", [1, 2]))) == "Ints([1, 2])"
    assert repr(Floats(array("d", [0.5, math.nan]))) == "Floats([0.5, None])"
    assert repr(Ints(array("q", range(8)))) == "Ints([0, 1, 2, 3, 4, 5, 6, 7])"
    assert repr(Ints(array("q", range(100)))) == "Ints([0, 1, 2, 3, 4, 5, 6, 7, ... 100 in all])"
