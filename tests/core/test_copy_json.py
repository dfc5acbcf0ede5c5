"""Copying a caller's data: plain, unshared, bounded in depth, and in no need of the Python stack."""

from __future__ import annotations

import copy
from array import array
from collections import OrderedDict, deque
from http import HTTPStatus
from types import MappingProxyType
from typing import Any, NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ssefold.errors import PayloadError
from ssefold.views import MAX_DEPTH, Floats, Ints, copy_json, freeze

JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False)
    | st.text(max_size=3)
    | st.binary(max_size=3),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=3), inner, max_size=4),
    max_leaves=30,
)


def containers(value: Any) -> list[Any]:
    found: list[Any] = [value] if isinstance(value, (dict, list)) else []
    for inner in value.values() if isinstance(value, dict) else value if isinstance(value, list) else ():
        found += containers(inner)
    return found


def nested(depth: int, *, as_list: bool) -> Any:
    value: Any = 1
    for _ in range(depth):
        value = [value] if as_list else {"a": value}
    return value


@given(JSON)
def test_a_copy_is_equal_in_order_and_type_and_shares_no_container(value: Any) -> None:
    before = copy.deepcopy(value)
    made = copy_json(value)
    assert repr(made) == repr(value) == repr(before)
    assert not {id(inner) for inner in containers(made)} & {id(inner) for inner in containers(value)}


class _Row(NamedTuple):
    logprob: float
    token_id: int


def test_other_mappings_and_sequences_become_dicts_and_lists() -> None:
    mixed = OrderedDict(
        a=MappingProxyType({"b": (1, [2])}),
        c=deque([_Row(0.5, 3)]),
        d=freeze({"e": [{"f": ()}]}),
        g=Ints(array("q", [1, 2])),
        h=Floats(array("d", [0.5, float("nan")])),
        i=range(2),
        j=[freeze([1]), 2],
    )
    made = copy_json(mixed)
    assert repr(made) == repr(
        {
            "a": {"b": [1, [2]]},
            "c": [[0.5, 3]],
            "d": {"e": [{"f": []}]},
            "g": [1, 2],
            "h": [0.5, None],
            "i": [0, 1],
            "j": [[1], 2],
        }
    )


def test_what_is_no_container_goes_along_by_reference() -> None:
    for value in (HTTPStatus.OK, b"bytes", bytearray(b"x"), array("i", [1]), memoryview(b"x"), object(), 1 + 2j):
        assert copy_json(value) is value
        assert copy_json({"a": [value]})["a"][0] is value


@pytest.mark.parametrize("as_list", [True, False])
def test_the_depth_is_bounded_and_the_bound_itself_is_allowed(as_list: bool) -> None:
    deepest = nested(MAX_DEPTH, as_list=as_list)
    assert copy_json(deepest) == deepest
    for depth in (MAX_DEPTH + 1, 100_000):
        with pytest.raises(PayloadError, match=r"^meta_info is nested more than 200 levels deep, or contains itself$"):
            copy_json(nested(depth, as_list=as_list), field="meta_info")


def test_cycles_meet_the_bound_at_once() -> None:
    loop: list[Any] = []
    loop += [loop] * 1000
    mutual: dict[str, Any] = {}
    mutual["a"] = [mutual, mutual]
    for cyclic in (loop, mutual):
        with pytest.raises(PayloadError, match="contains itself"):
            copy_json(cyclic)


def test_keys_must_be_strings() -> None:
    class Text(str):
        __slots__ = ()

    assert copy_json({Text("a"): 1}) == {"a": 1}
    for key, name in ((1, "int"), (None, "NoneType"), (b"a", "bytes"), ((), "tuple")):
        with pytest.raises(PayloadError, match=f"^chunk has an object with a key of type {name}, not a string$"):
            copy_json([{"a": {"b": 1, key: 2}}])
