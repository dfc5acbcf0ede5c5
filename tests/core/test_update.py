"""An update as a value: made by keywords, compared, copied, printed."""

from __future__ import annotations

import copy
import operator
import pickle
from typing import Any
from unittest.mock import ANY

import pytest

from ssefold import FinishReason, GenerateDecoder, ReplayArray, TopPReplay, Update
from ssefold.transports.testing import INCREMENTAL, encode
from tests.core.corpus import finite

FULL: dict[str, Any] = {
    "index": 1,
    "start": 2,
    "replace": True,
    "token_ids": (7, 8),
    "logprobs": (-0.5, None),
    "text": "ab",
    "text_start": 3,
    "finish_reason": FinishReason.parse({"type": "length", "length": 4}),
    "top_p": TopPReplay([7, 8, 9], [0, 1, 3]),
    "routed_experts": ReplayArray([1, 2]),
    "meta_info": {"id": "r", "deep": {"list": [1, {"a": None}]}},
    "indexer_topk": ReplayArray([3], field="indexer_topk"),
}
OTHER: dict[str, Any] = {
    "index": 0,
    "start": 0,
    "replace": False,
    "token_ids": (7, 9),
    "logprobs": (),
    "text": None,
    "text_start": 0,
    "finish_reason": None,
    "top_p": None,
    "routed_experts": None,
    "meta_info": {"id": "r", "deep": {"list": [1, {"a": 0}]}},
    "indexer_topk": None,
}


def test_fields_are_what_was_given() -> None:
    update = Update(**FULL)
    assert {name: getattr(update, name) for name in FULL} == FULL
    assert {name: getattr(Update(), name) for name in FULL} == {
        **OTHER, "token_ids": (), "meta_info": {}
    }  # fmt: skip
    lists: Any = {"token_ids": [7], "logprobs": [-0.5]}
    assert (Update(**lists).token_ids, Update(**lists).logprobs) == ((7,), (-0.5,))


def test_meta_info_is_copied_and_read_only() -> None:
    meta: dict[str, Any] = {"a": [1]}
    update = Update(meta_info=meta)
    meta["a"].append(2)
    assert update.meta_info == {"a": [1]}
    with pytest.raises(TypeError):
        update.meta_info["a"] = 7  # type: ignore[index]


@pytest.mark.parametrize("name", FULL)
def test_each_field_counts_when_they_are_compared(name: str) -> None:
    update, other = Update(**FULL), Update(**{**FULL, name: OTHER[name]})
    # Both operators by themselves: a tuple, which an update is underneath, has its own of each.
    assert operator.eq(update, Update(**FULL))
    assert not operator.ne(update, Update(**FULL))
    assert operator.ne(update, other)
    assert not operator.eq(update, other)


def test_what_is_no_update_decides_itself_whether_it_is_equal() -> None:
    update = Update(**FULL)
    assert update != 7
    assert operator.eq(update, ANY)
    assert not operator.ne(update, ANY)


def test_an_update_is_no_key() -> None:
    update = Update(**FULL)
    with pytest.raises(TypeError, match="unhashable"):
        hash(update)


@pytest.mark.parametrize("protocol", [2, pickle.HIGHEST_PROTOCOL])
def test_an_update_travels(protocol: int) -> None:
    for update in (Update(**FULL), Update()):
        for twin in (pickle.loads(pickle.dumps(update, protocol)), copy.deepcopy(update)):
            assert type(twin) is Update
            assert twin == update
            assert twin.meta_info == update.meta_info


def test_an_update_of_the_fast_path_travels_and_compares() -> None:
    """Its meta_info is made when it is asked for."""
    events = encode(finite(60), INCREMENTAL).events
    decoder = GenerateDecoder()
    updates = [*decoder.feed(b"".join(events[:5])), *decoder.feed(b"".join(events[5:]))]
    fast = updates[20]
    twin = pickle.loads(pickle.dumps(fast))
    assert twin == fast
    assert twin.meta_info == fast.meta_info
    assert twin.meta_info["completion_tokens"] == fast.start + 1


def test_it_is_printed_in_one_line() -> None:
    assert repr(Update()) == "Update(index=0, start=0, token_ids=(), logprobs=(), text=None at 0)"
    assert repr(Update(**FULL)) == (
        "Update(index=1, start=2, token_ids=(7, 8), logprobs=(-0.5, None), text='ab' at 3, replace=True, "
        "finish_reason='length')"
    )
    long = repr(Update(text="x" * 58))
    assert f"text='{'x' * 58}' at 0" in long  # sixty characters with its quotes
    assert f"text='{'x' * 56}... at 0" in repr(Update(text="x" * 59))
