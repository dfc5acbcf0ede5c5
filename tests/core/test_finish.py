"""The finish reason: every shape a server sends, typed; every other shape, refused with the field's name."""

from __future__ import annotations

import copy
import json
import pickle
from http import HTTPStatus
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ssefold.errors import PayloadError
from ssefold.fold.finish import FinishReason
from ssefold.views import freeze, thaw


def parsed(raw: object) -> FinishReason:
    reason = FinishReason.parse(raw)
    assert reason is not None
    return reason


# Raw value, and (type, matched, length, message, status_code, err_type).
SHAPES: list[tuple[Any, tuple[Any, ...]]] = [
    ({"type": "stop", "matched": 2}, ("stop", 2, None, None, None, None)),
    ({"type": "stop", "matched": [2, 3]}, ("stop", (2, 3), None, None, None, None)),
    ({"type": "stop", "matched": "\n\nQ"}, ("stop", "\n\nQ", None, None, None, None)),
    ({"type": "stop", "matched": "NaN happened"}, ("stop", "NaN happened", None, None, None, None)),
    ({"type": "stop"}, ("stop", None, None, None, None, None)),
    ({"type": "length", "length": 300}, ("length", None, 300, None, None, None)),
    (
        {"type": "abort", "message": "Aborted", "status_code": None, "err_type": None},
        ("abort", None, None, "Aborted", None, None),
    ),
    (
        {"type": "abort", "message": "Abort in waiting queue"},
        ("abort", None, None, "Abort in waiting queue", None, None),
    ),
    ({"type": "abort", "message": "Abort before prefill"}, ("abort", None, None, "Abort before prefill", None, None)),
    ({"type": "abort", "status_code": 503, "message": "full"}, ("abort", None, None, "full", 503, None)),
    (
        {"type": "abort", "message": "bad", "status_code": 400, "err_type": "BadRequestError"},
        ("abort", None, None, "bad", 400, "BadRequestError"),
    ),
    ("stop", ("stop", None, None, None, None, None)),
    ("length", ("length", None, None, None, None, None)),
    ({"type": "of tomorrow", "extra": [{"a": 1}]}, ("of tomorrow", None, None, None, None, None)),
]


@pytest.mark.parametrize(("raw", "facts"), SHAPES)
def test_every_shape_becomes_facts_and_keeps_its_raw_value(raw: Any, facts: tuple[Any, ...]) -> None:
    reason = parsed(raw)
    found = (reason.type, reason.matched, reason.length, reason.message, reason.status_code, reason.err_type)
    assert found == facts
    assert reason.raw == raw
    assert thaw(reason.raw) == raw


def test_null_is_no_reason_yet() -> None:
    assert FinishReason.parse(None) is None


@pytest.mark.parametrize(
    ("raw", "is_failure", "retryable"),
    [
        ({"type": "stop", "matched": 2}, False, False),
        ("stop", False, False),
        ({"type": "stop", "matched": "NaN happened"}, True, False),
        ({"type": "stop", "matched": "nan happened"}, False, False),
        ({"type": "length", "length": 3}, False, False),
        ({"type": "length", "matched": "NaN happened"}, False, False),
        ({"type": "abort", "message": "Aborted", "status_code": None, "err_type": None}, False, False),
        ({"type": "abort", "message": "Abort in waiting queue"}, False, False),
        ("abort", False, False),
        ({"type": "abort", "status_code": 200}, False, False),
        ({"type": "abort", "status_code": 399}, False, False),
        ({"type": "abort", "status_code": 400}, True, False),
        ({"type": "abort", "status_code": 400, "err_type": "BadRequestError"}, True, False),
        ({"type": "abort", "status_code": None, "err_type": "InternalServerError"}, True, False),
        ({"type": "abort", "status_code": 500}, True, False),
        ({"type": "abort", "status_code": 503}, True, True),
        ({"type": "abort", "status_code": 429}, True, True),
        ({"type": "abort", "status_code": HTTPStatus.SERVICE_UNAVAILABLE}, True, True),
        ({"type": "stop", "status_code": 503, "err_type": "x"}, False, False),
    ],
)
def test_failures_and_second_chances(raw: Any, is_failure: bool, retryable: bool) -> None:
    reason = parsed(raw)
    assert (reason.is_failure, reason.retryable) == (is_failure, retryable)


def test_an_enum_that_is_an_int_becomes_the_int() -> None:
    reason = parsed({"type": "abort", "status_code": HTTPStatus.BAD_REQUEST})
    assert type(reason.status_code) is int
    assert "status_code=400" in repr(reason)


@pytest.mark.parametrize(
    ("raw", "says"),
    [
        (5, r"meta_info\.finish_reason must be an object, a string or null, got int"),
        (True, r"meta_info\.finish_reason must be an object, a string or null, got True"),
        (["stop"], r"meta_info\.finish_reason must be an object, a string or null, got list"),
        ({}, r"meta_info\.finish_reason has no type"),
        ("", r"meta_info\.finish_reason has no type"),
        ({"type": ""}, r"meta_info\.finish_reason has no type"),
        ({"type": None}, r"meta_info\.finish_reason has no type"),
        ({"type": 3}, r"meta_info\.finish_reason\.type must be a string or null, got int"),
        ({"type": ["stop"]}, r"meta_info\.finish_reason\.type must be a string or null, got list"),
        ({"type": "stop", "matched": 1.5}, r"meta_info\.finish_reason\.matched must be an id, .* got 1\.5"),
        ({"type": "stop", "matched": True}, r"meta_info\.finish_reason\.matched must be .* got True"),
        ({"type": "stop", "matched": {}}, r"meta_info\.finish_reason\.matched must be .* got dict"),
        ({"type": "stop", "matched": [1, "a"]}, r"meta_info\.finish_reason\.matched must be .* got list"),
        ({"type": "stop", "matched": [True]}, r"meta_info\.finish_reason\.matched must be .* got list"),
        ({"type": "length", "length": "3"}, r"meta_info\.finish_reason\.length must be an integer or null, got str"),
        (
            {"type": "length", "length": False},
            r"meta_info\.finish_reason\.length must be an integer or null, got False",
        ),
        ({"type": "abort", "status_code": "503"}, r"meta_info\.finish_reason\.status_code must be .* got str"),
        ({"type": "abort", "status_code": 503.0}, r"meta_info\.finish_reason\.status_code must be .* got 503\.0"),
        ({"type": "abort", "status_code": True}, r"meta_info\.finish_reason\.status_code must be .* got True"),
        ({"type": "abort", "message": {"a": 1}}, r"meta_info\.finish_reason\.message must be .* got dict"),
        ({"type": "abort", "err_type": 5}, r"meta_info\.finish_reason\.err_type must be a string or null, got int"),
        ({"type": "stop", 5: 5}, r"meta_info\.finish_reason has an object with a key of type int"),
    ],
)
def test_other_shapes_are_refused_by_name(raw: Any, says: str) -> None:
    with pytest.raises(PayloadError, match="^" + says):
        FinishReason.parse(raw)


def test_a_deep_or_cyclic_value_is_refused() -> None:
    cyclic: dict[str, Any] = {"type": "stop"}
    cyclic["again"] = cyclic
    with pytest.raises(
        PayloadError, match=r"^meta_info\.finish_reason is nested more than 200 levels deep, or contains"
    ):
        FinishReason.parse(cyclic)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=6,
)
FIELDS = st.sampled_from(["type", "matched", "length", "message", "status_code", "err_type", "other"])


@given(JSON | st.dictionaries(FIELDS, JSON | st.sampled_from(["stop", "abort", "length"])))
def test_any_json_is_a_reason_or_a_payload_error(raw: Any) -> None:
    try:
        reason = FinishReason.parse(raw)
    except PayloadError as error:
        text = str(error)
        assert text.startswith("meta_info.finish_reason")
        return
    assert (reason is None) == (raw is None)
    if reason is not None:
        assert isinstance(reason.type, str)
        assert reason == FinishReason.parse(thaw(reason.raw)) or "nan" in repr(raw)
        assert hash(reason) == hash(parsed(raw))


def test_it_keeps_its_own_copy_which_nobody_can_change() -> None:
    raw: dict[str, Any] = {"type": "stop", "matched": [1, 2], "more": {"deep": [0]}}
    reason = parsed(raw)
    raw["type"] = "length"
    raw["more"]["deep"].append(1)
    assert reason.raw == {"type": "stop", "matched": [1, 2], "more": {"deep": [0]}}
    with pytest.raises(TypeError):
        reason.raw["type"] = "abort"
    with pytest.raises(TypeError):
        reason.raw["more"]["deep"][0] = 1
    for name in ("type", "raw", "is_failure", "other"):
        with pytest.raises(AttributeError, match="immutable"):
            setattr(reason, name, "x")
        with pytest.raises(AttributeError, match="immutable"):
            delattr(reason, name)


def test_a_frozen_view_is_read_like_what_it_shows() -> None:
    raw = {"type": "stop", "matched": [1, 2]}
    assert parsed(freeze(raw)) == parsed(raw)
    assert parsed(freeze(raw)).matched == (1, 2)


@pytest.mark.parametrize(("raw", "facts"), SHAPES)
def test_equality_and_hash_go_by_the_servers_value(raw: Any, facts: tuple[Any, ...]) -> None:
    reason = parsed(raw)
    assert [other == raw for other, _ in SHAPES] == [parsed(other) == reason for other, _ in SHAPES]
    assert reason != raw
    assert {reason: 1}[parsed(copy.deepcopy(raw))] == 1
    assert facts[0] == reason.type


@pytest.mark.parametrize(("raw", "facts"), SHAPES)
def test_pickles_and_copies_are_equal(raw: Any, facts: tuple[Any, ...]) -> None:
    reason = parsed(raw)
    for protocol in range(pickle.HIGHEST_PROTOCOL + 1):
        again = pickle.loads(pickle.dumps(reason, protocol))
        assert again == reason
        assert again.type == facts[0]
    assert copy.deepcopy(reason) == copy.copy(reason) == reason


def test_the_repr_says_what_is_known() -> None:
    assert repr(parsed({"type": "abort", "status_code": 503, "message": "full"})) == (
        "FinishReason(type='abort', message='full', status_code=503)"
    )


def test_all_recorded_reasons_are_read(repository: Path) -> None:
    found: set[str] = set()
    for path in (repository / "tests/data").rglob("*.sse"):
        for line in path.read_bytes().split(b"\n"):
            if b'"finish_reason":' not in line or not line.startswith(b"data: {"):
                continue
            try:
                meta = json.loads(line.removeprefix(b"data: "))["meta_info"]
            except ValueError:
                continue  # recordings that are cut or damaged on purpose
            reason = FinishReason.parse(meta["finish_reason"])
            if reason is not None:
                assert reason.raw == meta["finish_reason"]
                found.add(reason.type)
    assert found >= {"stop", "length", "abort"}
