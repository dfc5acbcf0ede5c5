"""One array of the wire in every encoding -> one int32 view, or a ReplayError that names the field."""

from __future__ import annotations

import base64
import binascii
import gc
import random
import re
import sys
import tracemalloc
from array import array
from collections import deque
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from ssefold.errors import ReplayError
from ssefold.replay import int32
from ssefold.replay.int32 import INT32_MAX, INT32_MIN, decode_int32, has_negative, little_endian
from ssefold.views import freeze

INT32 = st.integers(INT32_MIN, INT32_MAX)
ALPHABET = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/"


def raw_bytes(numbers: list[int]) -> bytes:
    return b"".join(number.to_bytes(4, "little", signed=True) for number in numbers)


def text(numbers: list[int]) -> str:
    return base64.b64encode(raw_bytes(numbers)).decode()


def decoded(value: object) -> list[int]:
    view = decode_int32(value, field="f")
    assert view is not None
    assert (view.format, view.ndim, view.readonly) == ("i", 1, True)
    return view.tolist()


def is_strict_base64(candidate: str) -> bool:
    """The grammar of RFC 4648 section 4, with the unused bits zero, and whole int32s."""
    if not re.fullmatch(r"(?:[A-Za-z0-9+/]{4})*(?:[A-Za-z0-9+/]{2}==|[A-Za-z0-9+/]{3}=)?", candidate):
        return False
    padding = candidate.count("=")
    if padding and ALPHABET.index(candidate[-padding - 1]) % (1 << 2 * padding):
        return False
    return (len(candidate) // 4 * 3 - padding) % 4 == 0


@given(st.lists(INT32))
def test_every_encoding_of_the_same_numbers_gives_the_same_numbers(numbers: list[int]) -> None:
    raw = raw_bytes(numbers)
    encodings: list[Any] = [
        text(numbers),
        raw,
        bytearray(raw),
        memoryview(raw),
        memoryview(bytearray(raw)),
        numbers,
        tuple(numbers),
        array("i", numbers),
        array("q", numbers),
        memoryview(array("i", numbers)),
        freeze(numbers),
        deque(numbers),
        decode_int32(numbers, field="f"),
    ]
    for encoding in encodings:
        assert decoded(encoding) == numbers


@given(st.lists(INT32))
def test_little_endian_is_the_inverse_of_decoding(numbers: list[int]) -> None:
    view = decode_int32(numbers, field="f")
    assert view is not None
    assert little_endian(view) == raw_bytes(numbers)


@given(st.lists(INT32, min_size=1), st.data())
def test_has_negative_sees_what_min_sees(numbers: list[int], data: st.DataObject) -> None:
    view = decode_int32(numbers, field="f")
    assert view is not None
    start = data.draw(st.integers(0, len(numbers) - 1))
    assert has_negative(view) == (min(numbers) < 0)
    assert has_negative(view[start:]) == (min(numbers[start:]) < 0)
    assert has_negative(view[::2]) == (min(numbers[::2]) < 0)


def test_none_is_none_and_empty_text_is_zero_elements() -> None:
    assert decode_int32(None, field="f") is None
    forms: list[Any] = ["", b"", [], (), [[]], [[], []], array("i"), array("q"), memoryview(b""), range(0)]
    for nothing in forms:
        assert decoded(nothing) == []


@given(st.integers(0, 3), st.integers(0, 3), st.integers(0, 3))
def test_nested_lists_are_read_in_c_order(rows: int, layers: int, width: int) -> None:
    flat = list(range(rows * layers * width))
    nested = [[flat[(r * layers + y) * width :][:width] for y in range(layers)] for r in range(rows)]
    assert decoded(nested) == flat
    assert decoded([tuple(tuple(layer) for layer in row) for row in nested]) == flat


def test_ragged_rows_are_refused() -> None:
    with pytest.raises(ReplayError, match=r"^f is ragged: its rows have 0 to 2 elements"):
        decoded([[1, 2], [], [3]])


# ---- base64 --------------------------------------------------------------------------------------------------------


@given(st.text(ALPHABET + "== \n-_\u00e9", max_size=24) | st.from_regex(r"\A[A-Za-z0-9+/]{2,8}={0,3}\Z"))
@example("AAAAAA==")
@example("AAAAAB==")  # unused bits set
@example("AAAAA===")
@example("AA=AAA==")
@example("=AAAAAA=")
@example("AAAA\nAA==")
@example("AAAAAA==AAAAAA==")
@example("====")
@example("AAAAAA")
@example("A")
def test_text_is_decoded_if_and_only_if_it_is_strict_base64_of_whole_int32s(candidate: str) -> None:
    if is_strict_base64(candidate):
        assert decoded(candidate) == array("i", base64.b64decode(candidate)).tolist()
    else:
        with pytest.raises(ReplayError, match=r"^f "):
            decoded(candidate)


@given(st.lists(INT32, min_size=1, max_size=6), st.data())
def test_any_changed_character_changes_the_numbers_or_is_refused(numbers: list[int], data: st.DataObject) -> None:
    good = text(numbers)
    at = data.draw(st.integers(0, len(good) - 1))
    other = data.draw(st.sampled_from(ALPHABET + "= \n-_\u00e9\ud800").filter(lambda c: c != good[at]))
    try:
        found = decoded(good[:at] + other + good[at + 1 :])
    except ReplayError:
        return
    assert found != numbers


@pytest.mark.parametrize(
    ("bad", "says"),
    [
        ("AAAA AAAA", r"f is not standard padded base64: character ' ' at 4 of 9"),
        ("AAAA-AA=", r"character '-' at 4 of 8"),
        ("AAA\u00e9AAA=", r"character '\\xe9' at 3 of 8"),
        ("\ud800AAAAA==", r"character '\\ud800' at 0 of 8"),
        ("AAAAA", r"5 characters do not make whole groups of four"),
        ("AAAAAB==", r"its last group 'AB==' has stray bits set"),
        ("AAAA", r"f has 3 bytes, not a multiple of 4"),
        (b"12345", r"f has 5 bytes, not a multiple of 4"),
        (memoryview(b"12345"), r"f has 5 bytes, not a multiple of 4"),
        (bytearray(b"12345"), r"f has 5 bytes, not a multiple of 4"),
    ],
)
def test_the_message_says_where_the_bytes_are_wrong(bad: object, says: str) -> None:
    with pytest.raises(ReplayError, match=says):
        decode_int32(bad, field="f")


def test_decoding_a_17_mb_text_holds_it_once_as_text_and_once_as_bytes() -> None:
    numbers = random.Random(1).randbytes(4 * 3_200_000)
    wire = base64.b64encode(numbers).decode()
    gc.collect()
    tracemalloc.start()
    try:
        view = decode_int32(wire, field="f")
        kept, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert view is not None
    assert view.nbytes == len(numbers)
    assert kept < len(numbers) + 10_000
    # The decoder reserves whole groups of three bytes, no more.
    assert peak < len(numbers) + 10_000


# ---- buffers -------------------------------------------------------------------------------------------------------


def test_bytes_are_not_copied() -> None:
    raw = bytes(range(16))
    for given_buffer in (raw, memoryview(raw), memoryview(raw).cast("i"), memoryview(raw).cast("i", (2, 2))):
        view = decode_int32(given_buffer, field="f")
        assert view is not None
        assert view.obj is raw
    part = decode_int32(memoryview(raw)[4:12], field="f")
    assert part is not None
    assert part.obj is raw
    assert part.nbytes == 8


@pytest.mark.parametrize("format", ["B", "b", "c"])
def test_views_of_bytes_are_bytes_whatever_they_call_them(format: Any) -> None:
    raw = raw_bytes([1, -2, INT32_MAX])
    for view in (memoryview(raw).cast(format), memoryview(bytearray(raw)).cast(format)):
        assert decoded(view) == [1, -2, INT32_MAX]
    with pytest.raises(ReplayError, match="x has 11 bytes, not a multiple of 4"):
        decode_int32(memoryview(raw[:-1]).cast(format), field="x")


def test_what_the_caller_can_still_change_is_copied() -> None:
    numbers = array("i", [1, 2, 3])
    shared = bytearray(raw_bytes([1, 2, 3]))
    views = [decode_int32(numbers, field="f"), decode_int32(memoryview(numbers).toreadonly(), field="f")]
    views += [decode_int32(shared, field="f"), decode_int32(memoryview(shared).toreadonly(), field="f")]
    numbers[0] = 7
    shared[0] = 7
    numbers.append(4)  # would be refused while somebody holds a view
    for view in views:
        assert view is not None
        assert view.tolist() == [1, 2, 3]


def test_strided_and_wider_buffers_are_read_by_value() -> None:
    assert decoded(memoryview(raw_bytes([1, 2, 3, 4])).cast("i")[::2]) == [1, 3]
    assert decoded(memoryview(bytes([1, 9, 0, 9, 0, 9, 0, 9]))[::2]) == [1]
    assert decoded(array("b", [-1, 2])) == [-1, 2]
    assert decoded(array("Q", [5])) == [5]
    assert decoded(memoryview(bytes(24)).cast("i", (2, 3))[:0]) == []
    assert decoded(memoryview(bytes(6)).cast("B", (2, 3))[:0]) == []
    assert decoded(memoryview(array("q", range(6))).cast("B").cast("q", (2, 3))) == list(range(6))


def test_numpy_arrays_go_in_and_come_out_without_loss() -> None:
    numpy = pytest.importorskip("numpy", reason="NumPy is not installed")
    numbers = [[0, -1, INT32_MAX], [INT32_MIN, 5, 6]]
    flat = [*numbers[0], *numbers[1]]
    for dtype in ("int32", "int64"):
        assert decoded(numpy.array(numbers, dtype=dtype)) == flat
        assert decoded(numpy.array(numbers, dtype=dtype, order="F")) == flat
        assert decoded(numpy.array(numbers, dtype=dtype)[:, ::2]) == [0, INT32_MAX, INT32_MIN, 6]
        assert decoded([numpy.dtype(dtype).type(7)]) == [7]
    assert decoded(numpy.zeros((0, 3), dtype="int32")) == []
    for wrong in ("float32", "bool", ">i4", "object", "complex64"):
        with pytest.raises(ReplayError, match=r"^f is a buffer of format .*astype\('int32'\)"):
            decode_int32(numpy.ones(3, dtype=wrong), field="f")
    for scalar in (numpy.array(3, dtype="int32"), numpy.int32(3)):
        with pytest.raises(ReplayError, match=r"^f is a single number"):
            decode_int32(scalar, field="f")
    for mixed in ([numpy.float32(1)], [numpy.True_], [numpy.arange(2)], [numpy.arange(2), 1]):
        with pytest.raises(ReplayError, match=r"^f: element 0 is of type \w+, not an integer"):
            decode_int32(mixed, field="f")
    view = decode_int32(text(flat), field="f")
    assert view is not None
    out = numpy.frombuffer(view, dtype=numpy.int32)
    assert out.tolist() == flat
    assert numpy.shares_memory(out, numpy.asarray(view))


def test_the_other_byte_order_is_swapped_wherever_bytes_come_in_or_go_out(monkeypatch: pytest.MonkeyPatch) -> None:
    numbers = [1, -2, 2**30 + 3]
    foreign = b"".join(
        number.to_bytes(4, "big" if sys.byteorder == "little" else "little", signed=True) for number in numbers
    )
    monkeypatch.setattr(int32, "_LITTLE_ENDIAN", sys.byteorder != "little")
    for raw in (foreign, bytearray(foreign), memoryview(foreign), base64.b64encode(foreign).decode()):
        view = decode_int32(raw, field="f")
        assert view is not None
        assert view.tolist() == numbers
        assert little_endian(view) == foreign
    # On such a host the sign lies in the first byte of each number.
    assert has_negative(memoryview(foreign).cast("i"))
    assert not has_negative(memoryview(foreign[:4]).cast("i"))
    assert decoded(numbers) == decoded(array("i", numbers)) == numbers


# ---- lists ---------------------------------------------------------------------------------------------------------


def cyclic() -> list[Any]:
    loop: list[Any] = []
    loop += [loop, loop]
    return loop


def long_cycle() -> list[Any]:
    first: list[Any] = []
    second = [first] * 1000
    first += [second] * 1000
    return first


def nested(depth: int) -> list[Any]:
    value: list[Any] = [1]
    for _ in range(depth):
        value = [value]
    return value


@pytest.mark.parametrize(
    ("bad", "says"),
    [
        ([1, 2.0], r"f: element 1 is 2\.0, not an integer"),
        ([1, float("nan")], r"f: element 1 is nan"),
        ([True], r"f: element 0 is True"),
        ([None, 1], r"f: element 0 is None"),
        (["1"], r"f: element 0 is of type str"),
        ([b"1"], r"f: element 0 is of type bytes"),
        ([{}], r"f: element 0 is of type dict"),
        ([1, [2]], r"f: element 1 is of type list"),
        ([[1], 2], r"f: element 0 is of type list"),
        ([[1], [2.5]], r"f: element 1 is 2\.5"),
        ([0, 2**31], r"f\[1\] is 2147483648, outside int32"),
        ([-(2**31) - 1], r"f\[0\] is -2147483649, outside int32"),
        ([INT32_MIN, INT32_MAX, 2**31], r"f\[2\] is 2147483648, outside int32"),
        ([[1, 2], [3, 2**40]], r"f\[3\] is 1099511627776, outside int32"),
        ([10**6000], r"f\[0\] is an integer of 19932 bits, outside int32"),
        (array("q", [2**31]), r"f\[0\] is 2147483648, outside int32"),
        (array("d", [1.0]), r"f is a buffer of format 'd'"),
        (array("d"), r"f is a buffer of format 'd'"),
        (memoryview(b"a").cast("B", ()), r"f is a single number"),
        (cyclic(), r"f is nested more than 3 deep"),
        (long_cycle(), r"f is nested more than 3 deep"),
        (nested(3), r"f is nested more than 3 deep"),
        (nested(100_000), r"f is nested more than 3 deep"),
        ({"0": 1}, r"f is of type dict: expected base64 text"),
        ({1, 2}, r"f is of type set"),
        (5, r"f is of type int"),
        (5.5, r"f is 5\.5"),
        (True, r"f is True"),
        (object(), r"f is of type object"),
        (iter([1]), r"f is of type list_iterator"),
    ],
)
def test_anything_else_is_a_replay_error_that_says_what_came(bad: object, says: str) -> None:
    with pytest.raises(ReplayError, match="^" + says):
        decode_int32(bad, field="f")


def test_a_released_buffer_is_a_replay_error() -> None:
    gone = memoryview(b"abcd")
    gone.release()
    with pytest.raises(ReplayError, match=r"^f is a buffer that cannot be read"):
        decode_int32(gone, field="f")


JUNK = st.recursive(
    st.none() | st.booleans() | st.floats() | st.text(max_size=4) | st.binary(max_size=8) | st.integers() | INT32,
    lambda inner: st.lists(inner, max_size=3) | st.tuples(inner, inner) | st.dictionaries(st.text(max_size=1), inner),
    max_leaves=10,
)


@given(JUNK)
def test_arbitrary_values_give_int32_or_a_replay_error(value: object) -> None:
    try:
        view = decode_int32(value, field="f")
    except ReplayError:
        return
    assert view is None or all(INT32_MIN <= number <= INT32_MAX for number in view)


def test_the_oracle_of_these_tests_agrees_with_the_strict_mode_of_newer_pythons() -> None:
    strict: dict[str, Any] = {"strict_mode": True}
    try:
        binascii.a2b_base64(b"", **strict)
    except TypeError:
        pytest.skip("binascii has no strict_mode before Python 3.11")
    draw = random.Random(2)
    for _ in range(3000):
        candidate = "".join(draw.choices("AQgw==", k=draw.choice([4, 8])))
        try:
            length = len(binascii.a2b_base64(candidate.encode(), **strict))
        except binascii.Error:
            assert not is_strict_base64(candidate)
        else:
            stray = base64.b64encode(binascii.a2b_base64(candidate)).decode() != candidate
            assert is_strict_base64(candidate) == (length % 4 == 0 and not stray)
