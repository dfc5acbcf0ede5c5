"""The container of snapshots: exact, deterministic, and a SnapshotError for every byte that is not as written."""

from __future__ import annotations

import hashlib
import json
import math
import struct
import sys
import tracemalloc
from array import array
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ssefold.codec import container, pack, unpack
from ssefold.codec.container import VERSION
from ssefold.errors import SnapshotError
from ssefold.views import MAX_DEPTH

INT32, INT64 = st.integers(-(2**31), 2**31 - 1), st.integers(-(2**63), 2**63 - 1)
ANY_TEXT = st.text(st.characters(), max_size=6)  # lone surrogates included
SCALARS = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.integers(-(10**400), 10**400)
    | st.floats()
    | ANY_TEXT
    | st.binary(max_size=9)
    | st.lists(INT64, max_size=4).map(lambda numbers: array("q", numbers))
    | st.lists(INT32, max_size=4).map(lambda numbers: array("i", numbers))
    | st.lists(st.floats(), max_size=4).map(lambda numbers: array("d", numbers))
    | st.lists(INT32, max_size=4).map(lambda numbers: memoryview(array("i", numbers)))
)
KEYS = ANY_TEXT | st.sampled_from(["$", "$$", "$a"])
VALUES = st.recursive(
    SCALARS, lambda inner: st.lists(inner, max_size=4) | st.dictionaries(KEYS, inner, max_size=4), max_leaves=15
)
STATES = st.dictionaries(KEYS, VALUES, max_size=5)


def exact(value: Any) -> Any:
    """A form in which equal means equal in type, order, sign of zero and every bit of an array."""
    if isinstance(value, dict):
        return [(exact(key), exact(inner)) for key, inner in value.items()]
    if isinstance(value, (list, tuple)):
        return ["list", *map(exact, value)]
    if isinstance(value, (array, memoryview)):
        kind = value.typecode if isinstance(value, array) else "view"
        return (kind, value.tobytes())
    return (type(value).__name__, repr(value))


def sealed(tree: bytes, sections: bytes = b"", kind: bytes = b"k", version: int = VERSION) -> bytes:
    """A container as an adversary would make it, with a digest that holds."""
    body = struct.pack("<8sHHQQ", b"\x89ssefold", version, len(kind), len(tree), len(sections)) + kind + tree + sections
    return body + hashlib.sha256(body).digest()


@given(STATES)
def test_a_state_comes_back_exactly(state: dict[str, Any]) -> None:
    assert exact(unpack("k", pack("k", state))) == exact(state)


@given(STATES)
def test_the_same_state_gives_the_same_bytes(state: dict[str, Any]) -> None:
    once = pack("k", state)
    assert pack("k", state) == once
    assert pack("k", unpack("k", once)) == once


@given(STATES)
def test_packing_changes_nothing_and_holds_nothing(state: dict[str, Any]) -> None:
    before = exact(state)
    pack("k", state)
    assert exact(state) == before
    numbers = array("q", [1])
    pack("k", {"a": numbers})
    numbers.append(2)  # would be refused while somebody holds a view


def test_the_hard_values_one_by_one() -> None:
    state: dict[str, Any] = {
        "floats": [0.1, -0.0, 5e-324, 1.7976931348623157e308, math.inf, -math.inf, math.nan],
        "ints": [2**63, -(2**1024), 2**1024, 10**5000, -(10**5000), True, False],
        "text": ["\u2028", "\x00", "\ud83d", "\ud83d\ude00", "\U0001f600", "\udc80\ud800", '"\\'],
        "$": {"$": ["q", 1], "a": {"$": {"$": None}}, "$$": {"$a": [{"$": ["q", 1]}]}, "a$": 1},
        "": {"": b"\x00\xff"},
        "empty": [b"", array("q"), array("d"), array("i"), memoryview(array("i")), [], {}, ""],
        "nan bits": array("d", struct.unpack("<2d", struct.pack("<2Q", 0x7FF8000000000123, 0xFFF8000000000000))),
    }
    again = unpack("k", pack("k", state))
    assert again["ints"] == state["ints"]
    assert [type(value) for value in again["ints"]] == [int] * 5 + [bool] * 2
    assert [repr(value) for value in again["floats"]] == [repr(value) for value in state["floats"]]
    assert again["text"] == state["text"]
    assert again["$"] == state["$"]
    assert exact(again["empty"]) == exact(state["empty"])
    assert again["nan bits"].tobytes() == state["nan bits"].tobytes()


def test_tuples_come_back_as_lists_and_views_without_their_owner() -> None:
    owner = array("i", [1, 2, 3, 4])
    again = unpack("k", pack("k", {"t": (1, ("a",)), "v": memoryview(owner)[1::2]}))
    assert again["t"] == [1, ["a"]]
    assert isinstance(again["v"], memoryview)
    assert (again["v"].tolist(), again["v"].readonly, again["v"].format) == ([2, 4], True, "i")
    assert isinstance(again["v"].obj, bytes)


def test_the_layout_is_as_documented() -> None:
    packed = pack("output", {"a": array("i", [1]), "b": b"xy", "c": None})
    tree = b'{"a":{"$":["i",1]},"b":{"$":["bytes",2]},"c":null}'
    assert packed == sealed(tree, b"\x01\x00\x00\x00xy", b"output")
    assert packed[:8] == b"\x89ssefold"


def test_bytes_of_format_version_1_are_read_for_ever() -> None:
    kept = bytes.fromhex(
        "89737365666f6c6401000600690100000000000011000000000000006f75747075747b22696473223a7b2224223a5b227122"
        "2c325d7d2c2274657874223a22c3a9eda0bd222c226d6f7265223a7b222424223a5b6e756c6c2c2d302e302c7b2224223a5b"
        "22696e74222c2234303030303030303030303030303030303030303030303030303030303030303030303030303030303030"
        "3030303030303030303030303030303030303030303030303030303030303030303030303030303030303030303030303030"
        "3030303030303030303030303030303030303030303030303030303030303030303030303030303030303030303030303030"
        "3030303030303030303030303030303030303030303030303030303030303030303030303030303030303030303030303030"
        "3030303030303030303030303030303030303030303030303030303030303030303030303030303030303030303030303030"
        "303030303030303030303030303030225d7d5d7d2c22726177223a7b2224223a5b226279746573222c315d7d7d0100000000"
        "000000feffffffffffffff000d1021a501c029c061e9b386b6711c12993bed1cb11441807aa813de9324c742"
    )
    state = {"ids": array("q", [1, -2]), "text": "\u00e9\ud83d", "more": {"$": [None, -0.0, 2**1030]}, "raw": b"\x00"}
    assert exact(unpack("output", kept)) == exact(state)
    assert pack("output", state) == kept


@pytest.mark.parametrize("make", [bytes, bytearray, memoryview])
def test_any_bytes_are_taken(make: Any) -> None:
    assert unpack("k", make(pack("k", {"a": 1}))) == {"a": 1}


# ---- what cannot be packed ----------------------------------------------------------------------------------------


def nested(depth: int) -> dict[str, Any]:
    value: Any = 1
    for _ in range(depth):
        value = [value]
    return {"a": value}


def cyclic() -> dict[str, Any]:
    state: dict[str, Any] = {}
    state["again"] = [state]
    return state


@pytest.mark.parametrize(
    ("state", "says"),
    [
        ({"a": {1, 2}}, "the state holds a value of type set"),
        ({"a": [object()]}, "the state holds a value of type object"),
        ({"a": bytearray(b"x")}, "the state holds a value of type bytearray"),
        ({"a": array("f", [1])}, "the state holds a value of type array"),
        ({"a": memoryview(b"x")}, "the state holds a view of format 'B' and 1 dimensions, not flat int32"),
        ({"a": memoryview(bytes(8)).cast("i", (1, 2))}, "the state holds a view of format 'i' and 2 dimensions"),
        ({"a": {1: 2}}, "the state has an object with a key of type int, not str"),
        ({None: 2}, "the state has an object with a key of type NoneType, not str"),
        (nested(250), "the state is nested more than 216 levels deep, or contains itself"),
        (nested(50_000), "the state is nested more than 216 levels deep, or contains itself"),
        (cyclic(), "the state is nested more than 216 levels deep, or contains itself"),
    ],
)
def test_what_has_no_place_is_refused_by_type(state: Any, says: str) -> None:
    with pytest.raises(SnapshotError, match="^" + says):
        pack("k", state)


def test_everything_that_may_be_folded_may_be_packed_too() -> None:
    state = {"meta": nested(MAX_DEPTH)}
    assert unpack("k", pack("k", state)) == state


@pytest.mark.parametrize("key", [None, "a", "$"])
def test_the_depth_is_bounded_alike_in_lists_and_objects(key: str | None) -> None:
    def deep(levels: int) -> dict[str, Any]:
        value: Any = 1
        for _ in range(levels - 1):
            value = [value] if key is None else {key: value}
        return {"state": value}

    assert unpack("k", pack("k", deep(MAX_DEPTH + 16))) == deep(MAX_DEPTH + 16)
    with pytest.raises(SnapshotError, match=r"^the state is nested more than 216 levels deep"):
        pack("k", deep(MAX_DEPTH + 17))


def test_a_stack_that_is_nearly_used_up_is_a_snapshot_error() -> None:
    packed = pack("k", nested(200))

    def down(levels: int) -> None:
        if levels:
            down(levels - 1)
        else:
            with pytest.raises(SnapshotError):
                pack("k", nested(200))
            with pytest.raises(SnapshotError):
                unpack("k", packed)

    depth, frame = 0, sys._getframe()
    while frame is not None:
        depth, frame = depth + 1, frame.f_back  # type: ignore[assignment]
    down(sys.getrecursionlimit() - depth - 120)


# ---- what cannot be unpacked --------------------------------------------------------------------------------------

SAMPLE = {
    "token_ids": array("q", [1, -2, 3]),
    "logprobs": array("d", [-0.5, math.nan]),
    "text": "h\u00e9llo \ud83d",
    "meta": {"$": [1, {"a": None}], "big": 2**1030, "rows": [[0.1, 5, None]]},
    "replay": [memoryview(array("i", [7, 8])), array("i", [0, 2]), b"raw"],
}


def test_every_single_bit_counts() -> None:
    packed = pack("output", SAMPLE)
    for at in range(len(packed)):
        for bit in range(8):
            altered = bytearray(packed)
            altered[at] ^= 1 << bit
            with pytest.raises(SnapshotError):
                unpack("output", altered)


def test_every_truncation_and_every_extension_is_noticed() -> None:
    packed = pack("output", SAMPLE)
    for size in range(len(packed)):
        with pytest.raises(SnapshotError, match=r"truncated|not a snapshot"):
            unpack("output", packed[:size])
    for tail in (b"\x00", b"\n", packed):
        with pytest.raises(SnapshotError, match=r"longer than it says"):
            unpack("output", packed + tail)


@given(STATES, st.data())
def test_no_altered_bytes_are_taken(state: dict[str, Any], data: st.DataObject) -> None:
    packed = pack("k", state)
    start = data.draw(st.integers(0, len(packed)))
    stop = data.draw(st.integers(start, min(len(packed), start + 12)))
    altered = packed[:start] + data.draw(st.binary(max_size=12)) + packed[stop:]
    if altered == packed:
        return
    with pytest.raises(SnapshotError):
        unpack("k", altered)


@given(st.binary(max_size=200), st.booleans())
def test_garbage_is_a_snapshot_error(garbage: bytes, with_magic: bool) -> None:
    with pytest.raises(SnapshotError):
        unpack("k", b"\x89ssefold" + garbage if with_magic else garbage)


@pytest.mark.parametrize("other", ["text", None, 5, [1], {}, object()])
def test_what_is_no_bytes_is_a_snapshot_error(other: Any) -> None:
    with pytest.raises(SnapshotError, match=r"^expected the bytes of a snapshot, got "):
        unpack("k", other)


def test_another_version_is_named_beside_ours() -> None:
    for version in (0, VERSION + 1, 65535):
        with pytest.raises(SnapshotError, match=rf"format version {version}, this release reads version {VERSION}:"):
            unpack("k", sealed(b"{}", version=version))


def test_another_kind_is_named_beside_ours() -> None:
    with pytest.raises(SnapshotError, match=r"^the snapshot is of kind b'output', expected 'sample'$"):
        unpack("sample", pack("output", {}))


@pytest.mark.parametrize(
    ("size_field", "value"), [(10, 2**16 - 1), (12, 2**64 - 1), (12, 2**63), (20, 2**64 - 1), (20, 2**40)]
)
def test_lengths_that_lie_cost_nothing(size_field: int, value: int) -> None:
    packed = bytearray(sealed(b"{}"))
    packed[size_field : size_field + (2 if size_field == 10 else 8)] = value.to_bytes(
        2 if size_field == 10 else 8, "little"
    )
    packed[-32:] = hashlib.sha256(packed[:-32]).digest()
    with pytest.raises(SnapshotError, match=r"^the snapshot is truncated: 63 bytes where its header says \d+$"):
        unpack("k", packed)


@pytest.mark.parametrize(
    ("tree", "sections"),
    [
        (b"", b""),
        (b"{", b""),
        (b"[]", b""),
        (b"1", b""),
        (b"null", b""),
        (b'{"$":["int","5"]}', b""),
        (b'{"a":\xff}', b""),
        (b'{"a":' + b"[" * 100_000 + b"]" * 100_000 + b"}", b""),
        (b'{"a":' + b"[" * 250 + b"]" * 250 + b"}", b""),
        (b'{"a":' + b"9" * 10_000 + b"}", b""),
        (b'{"a":{"$":["q",1]}}', b"1234567"),
        (b'{"a":{"$":["q",-1]}}', b""),
        (b'{"a":{"$":["q",1.0]}}', b"12345678"),
        (b'{"a":{"$":["q","1"]}}', b"12345678"),
        (b'{"a":{"$":["q",99999999999999999999999999]}}', b"12345678"),
        (b'{"a":{"$":["bytes",1000000000000]}}', b"x"),
        (b'{"a":{"$":["bytes",1]}}', b""),
        (b'{"a":{"$":["bytes",1]}}', b"xy"),
        (b'{"a":1}', b"x"),
        (b'{"a":{"$":["f",1]}}', b"1234"),
        (b'{"a":{"$":["view",1]}}', b"123"),
        (b'{"a":{"$":["int","xyz"]}}', b""),
        (b'{"a":{"$":["int",5]}}', b""),
        (b'{"a":{"$":["bytes",0],"b":1}}', b""),
        (b'{"a":{"$a":1}}', b""),
        (b'{"$a":1,"b":2}', b""),
        (b'{"a":{"$":[]}}', b""),
        (b'{"a":{"$":null}}', b""),
        (b'{"a":{"$":"q"}}', b""),
        (b'{"a":{"$":["bytes",2,3]}}', b"xy"),
    ],
)
def test_a_container_forged_with_a_valid_digest_is_a_snapshot_error(tree: bytes, sections: bytes) -> None:
    with pytest.raises(SnapshotError, match=r"^the snapshot's digest holds, but "):
        unpack("k", sealed(tree, sections))


TREES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-3, 40)
    | st.floats()
    | st.sampled_from(["q", "d", "i", "view", "bytes", "f"]),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from(["$", "$$", "a"]), inner, max_size=3)
        | st.tuples(st.sampled_from(["q", "d", "i", "view", "bytes", "int"]), inner).map(lambda two: {"$": [*two]})
    ),
    max_leaves=8,
)


@settings(suppress_health_check=[HealthCheck.too_slow])
@given(TREES, st.binary(max_size=40))
def test_forged_trees_give_plain_data_or_a_snapshot_error(tree: Any, sections: bytes) -> None:
    try:
        state = unpack("k", sealed(json.dumps(tree).encode(), sections))
    except SnapshotError:
        return
    assert exact(unpack("k", pack("k", state))) == exact(state)


@given(st.binary(max_size=60))
def test_forged_bytes_of_a_tree_give_a_snapshot_error(tree: bytes) -> None:
    with suppress(SnapshotError):
        assert isinstance(unpack("k", sealed(tree)), dict)


def test_packing_copies_large_arrays_once() -> None:
    state = {
        "experts": memoryview(array("i", bytes(8_000_000))),
        "ids": array("q", bytes(4_000_000)),
        "raw": bytes(4_000_000),
    }
    tracemalloc.start()
    try:
        packed = pack("k", state)
        _, peak = tracemalloc.get_traced_memory()
        tracemalloc.reset_peak()
        before, _ = tracemalloc.get_traced_memory()
        again = unpack("k", packed)
        _, peak_back = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert exact(again) == exact(state)
    assert peak < 16_100_000
    # Each array is copied out of the container, and one of them at a time lies there twice.
    assert peak_back - before < 16_000_000 + 4_000_000 + 100_000


def test_the_other_byte_order_writes_the_same_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    here: dict[str, Any] = {
        "q": array("q", [1, -2]),
        "i": array("i", [3]),
        "d": array("d", [0.5]),
        "v": memoryview(array("i", [4, 5])),
    }
    there: dict[str, Any] = {}
    for name, numbers in here.items():
        swapped = array("i", numbers) if isinstance(numbers, memoryview) else numbers[:]
        swapped.byteswap()
        there[name] = memoryview(swapped) if isinstance(numbers, memoryview) else swapped
    packed = pack("k", here)
    # A host of the other order has the same numbers with their bytes the other way round.
    monkeypatch.setattr(container, "_LITTLE_ENDIAN", not container._LITTLE_ENDIAN)
    assert pack("k", there) == packed
    assert exact(unpack("k", packed)) == exact(there)
