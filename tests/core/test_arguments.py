"""Arguments of the wrong kind are refused where they are given, with a word about what they must be."""

from __future__ import annotations

import pickle
from importlib.metadata import version
from typing import Any

import pytest

import ssefold
from ssefold import Accumulator, GenerateDecoder, PayloadError, ReplayArray, ServerError, SSEParser, encode_event

HUGE = 10**5000  # more digits than Python prints


def test_the_version_is_that_of_the_installed_package() -> None:
    assert ssefold.__version__ == version("ssefold")


def test_a_name_that_the_library_has_not() -> None:
    with pytest.raises(AttributeError, match=r"^module 'ssefold' has no attribute 'Acumulator'$"):
        ssefold.Acumulator  # noqa: B018  # type: ignore[attr-defined]
    assert not hasattr(ssefold, "version")


@pytest.mark.parametrize("size", [0, -1, 1.5, float("nan"), None, "a", True])
def test_bound_of_an_event(size: Any) -> None:
    with pytest.raises(ValueError, match="max_event_size"):
        SSEParser(max_event_size=size)
    with pytest.raises(ValueError, match="max_event_size"):
        GenerateDecoder(max_event_size=size)


def test_last_event_id() -> None:
    with pytest.raises(ValueError, match="last_event_id"):
        SSEParser(last_event_id=5)  # type: ignore[arg-type]


@pytest.mark.parametrize("options", [{"retry": 1.5}, {"retry": True}, {"event": 5}, {"id": b"x"}])
def test_fields_of_an_event(options: dict[str, Any]) -> None:
    with pytest.raises(TypeError, match=next(iter(options))):
        encode_event("a", **options)


@pytest.mark.parametrize("index", ["a", [], -1, True, 1.0])
def test_index_of_an_output(index: Any) -> None:
    with pytest.raises(ValueError, match="index"):
        Accumulator(index=index)


@pytest.mark.parametrize("snapshot", [None, b"", "x"])
def test_only_snapshots_are_restored(snapshot: Any) -> None:
    with pytest.raises(TypeError, match="Snapshot"):
        Accumulator.restore(snapshot)


@pytest.mark.parametrize("name", ["completion_tokens", "output_token_logprobs_length"])
def test_counters_that_can_not_be_printed(name: str) -> None:
    with pytest.raises(PayloadError, match=name):
        Accumulator().add({"text": "a", "output_ids": [1], "meta_info": {"finish_reason": None, name: HUGE}})


def test_rows_that_can_not_be_printed() -> None:
    meta = {"finish_reason": None, "output_token_logprobs": [[HUGE, 5, None]]}
    with pytest.raises(PayloadError, match=r"output_token_logprobs\[0\]\[0\] must be .* or null, found a int$"):
        Accumulator().add({"text": "a", "output_ids": [5], "meta_info": meta})


@pytest.mark.parametrize("reported", [HUGE, {"message": HUGE, "code": HUGE}], ids=["number", "object"])
def test_errors_that_can_not_be_printed(reported: Any) -> None:
    with pytest.raises(ServerError, match="cannot be printed") as caught:
        Accumulator().add({"error": reported})
    assert caught.value.code is None


@pytest.mark.parametrize(("code", "told"), [(2**63 - 1, 2**63 - 1), (2**63, None), (-(2**63), None), ("x", "x")])
def test_codes_of_errors_are_numbers_that_travel(code: Any, told: Any) -> None:
    with pytest.raises(ServerError) as caught:
        Accumulator().add({"error": {"message": "m", "code": code}})
    assert caught.value.code == told


def test_finish_reason_that_can_not_be_printed() -> None:
    reason = {"type": "abort", "message": "m", "status_code": HUGE}
    with pytest.raises(PayloadError, match="status_code"):
        Accumulator().add({"text": "", "meta_info": {"finish_reason": reason}})


def test_placed_rows_travel_and_compare() -> None:
    placed = ReplayArray(list(range(12))).reshape(2, 2, total_tokens=4)
    assert pickle.loads(pickle.dumps(placed)) == placed
    assert hash(pickle.loads(pickle.dumps(placed))) == hash(placed)
    assert ReplayArray(list(range(1, 13))).reshape(2, 2, total_tokens=4) != placed
