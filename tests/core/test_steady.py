"""When a stream is settled, and which chunk may then go the short way: all that is not exactly so is left alone."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from ssefold import Accumulator
from ssefold.fast.steady import fold_steady, fold_step, steady_form
from ssefold.fold.chunk import read_chunk
from ssefold.views import copy_json
from tests.core.test_errors import STOP, chunk, rowed

TWO = (rowed(5, text="a"), rowed(6, count=2, text="b", output_token_logprobs_length=2))
BARE = (chunk(5, text="a"), chunk(6, count=2, text="b"))


def _settled(*chunks: dict[str, Any]) -> Accumulator:
    output = Accumulator()
    for one in chunks:
        output.add(one)
    return output


def _one(token_id: int, **changes: Any) -> dict[str, Any]:
    """The third chunk, with a row."""
    return {**rowed(token_id, count=3, text="c"), **changes}


def test_a_stream_is_settled_when_every_lane_is_a_delta() -> None:
    for chunks in (TWO, BARE):
        assert _settled(*chunks[:1]).state.steady is None
        state = _settled(*chunks).state
        meta = chunks[1]["meta_info"]
        assert state.steady == [*meta, *map(type, meta.values())]


@pytest.mark.parametrize(
    "last",
    [
        rowed(7, count=3, finish_reason=STOP),
        {**rowed(7, count=3), "prompt_token_ids": [1]},
        chunk(7, count=3),  # rows came before, and not here
        rowed(7, count=3, output_token_logprobs_length=None),
        rowed(7, count=3, output_token_logprobs=[[-0.5, 7, "x"]]),
        rowed(7, count=3, output_token_logprobs=[[-0.5, 7]]),
        rowed(7, count=3, hidden_states=[1]),
        rowed(7, count=3, hidden_states=None),
        rowed(7, count=3, weight_versions=["a"]),
        rowed(7, count=3, output_top_logprobs=[None] * 3),
        rowed(7, count=3, input_token_logprobs=None),
        {"text": None, "output_ids": [7], "meta_info": rowed(7, count=3)["meta_info"]},
    ],
)
def test_what_unsettles_a_stream(last: dict[str, Any]) -> None:
    output = _settled(*TWO)
    assert output.state.steady is not None
    output.add(last)
    assert list(output.token_ids) == [5, 6, 7]
    assert output.state.steady is None


def test_a_counter_of_rows_without_rows_is_not_settled() -> None:
    output = _settled(*BARE)
    output.add(chunk(7, count=3, output_token_logprobs_length=0))
    assert output.state.steady is None


def test_rows_that_do_not_reach_the_tokens_are_not_settled() -> None:
    """A form is asked for after each chunk; here of a state that misses rows."""
    output = _settled(*TWO)
    assert steady_form(output.state, read_chunk(copy_json(TWO[1]))) is not None
    del output.state.logprobs[-1]
    assert steady_form(output.state, read_chunk(copy_json(TWO[1]))) is None


def test_a_finish_reason_must_be_there_and_null() -> None:
    output = _settled(*BARE)
    unknown = chunk(7, count=3)
    del unknown["meta_info"]["finish_reason"]
    output.add(unknown)
    assert output.state.steady is None


def _same(output: Accumulator, data: Any) -> None:
    """The short way refuses, and nothing has changed."""
    before = output.snapshot()
    assert fold_steady(output.state, data) is None
    assert output.snapshot() == before


Change = Callable[[dict[str, Any]], object]
NOT_STEADY: dict[str, Change] = {
    "meta_info is a list": lambda data: data.update(meta_info=[]),
    "meta_info is missing": lambda data: data.pop("meta_info"),
    "a key more": lambda data: data["meta_info"].update(x=1),
    "a key less": lambda data: data["meta_info"].pop("dp_rank"),
    "another type": lambda data: data["meta_info"].update(id=7),
    "a finish_reason": lambda data: data["meta_info"].update(finish_reason={}),
    "no ids": lambda data: data.pop("output_ids"),
    "no text": lambda data: data.pop("text"),
    "ids null": lambda data: data.update(output_ids=None),
    "ids of two": lambda data: data.update(output_ids=[7, 8]),
    "another id": lambda data: data.update(output_ids=[8]),
    "an id that is true": lambda data: data.update(output_ids=[True]),
    "an id that is a float": lambda data: data.update(output_ids=[7.0]),
    "text is a number": lambda data: data.update(text=7),
    "text is null": lambda data: data.update(text=None),
    "the counter": lambda data: data["meta_info"].update(completion_tokens=4),
    "the counter of rows": lambda data: data["meta_info"].update(output_token_logprobs_length=4),
    "no row": lambda data: data["meta_info"].update(output_token_logprobs=[]),
    "two rows": lambda data: data["meta_info"].update(output_token_logprobs=[[-0.5, 7, None], [-0.5, 8, None]]),
    "a row of two": lambda data: data["meta_info"].update(output_token_logprobs=[[-0.5, 7]]),
    "a row of four": lambda data: data["meta_info"].update(output_token_logprobs=[[-0.5, 7, None, 1]]),
    "a row that is null": lambda data: data["meta_info"].update(output_token_logprobs=[None]),
    "a row with a text": lambda data: data["meta_info"].update(output_token_logprobs=[[-0.5, 7, "c"]]),
    "a logprob that is null": lambda data: data["meta_info"].update(output_token_logprobs=[[None, 7, None]]),
    "a logprob that is a whole number": lambda data: data["meta_info"].update(output_token_logprobs=[[-1, 7, None]]),
    "a logprob that is infinite": lambda data: data["meta_info"].update(
        output_token_logprobs=[[float("-inf"), 7, None]]
    ),
    "a logprob that is not a number": lambda data: data["meta_info"].update(
        output_token_logprobs=[[float("nan"), 7, None]]
    ),
}


@pytest.mark.parametrize("change", NOT_STEADY.values(), ids=NOT_STEADY)
def test_a_chunk_of_one_token_that_is_not_as_it_must_be(change: Change) -> None:
    data = _one(7)
    change(data)
    _same(_settled(*TWO), data)


@pytest.mark.parametrize("token_id", [-1, 2**63])
def test_an_id_that_is_none(token_id: int) -> None:
    output = _settled(*TWO)
    _same(output, _one(token_id))
    assert fold_step(output.state, b"{}", "c", 2**63, -0.5) is None
    assert output.snapshot() == _settled(*TWO).snapshot()


def test_a_chunk_of_one_token_that_is() -> None:
    output, slow = _settled(*TWO), _settled(*TWO)
    assert fold_steady(output.state, copy_json(_one(7))) == slow.add(_one(7))
    assert output.snapshot() == slow.snapshot()


def _some(*ids: Any, rows: Any = None, text: Any = "cd", total: int | None = None) -> dict[str, Any]:
    count = 2 + len(ids) if total is None else total
    row_list = [[-0.5 - at, one, None] for at, one in enumerate(ids)] if rows is None else rows
    return rowed(*ids, count=count, text=text, output_token_logprobs=row_list)


@pytest.mark.parametrize("ids", [(), (7, 8), (7, 8, 9)])
def test_a_chunk_of_none_or_several_tokens_that_is(ids: tuple[int, ...]) -> None:
    output, slow = _settled(*TWO), _settled(*TWO)
    assert fold_steady(output.state, copy_json(_some(*ids))) == slow.add(_some(*ids))
    assert output.snapshot() == slow.snapshot()
    bare, slow = _settled(*BARE), _settled(*BARE)
    without = chunk(*ids, count=2 + len(ids), text="cd")
    assert fold_steady(bare.state, copy_json(without)) == slow.add(without)
    assert bare.snapshot() == slow.snapshot()


@pytest.mark.parametrize(
    "data",
    [
        _some(7, 8, text=None),
        _some(7, 8, text=7),
        {**_some(7, 8), "output_ids": None},
        {**_some(7, 8), "output_ids": (7, 8)},
        _some(7, 8, total=5),
        _some(7, 8, rows=[[-0.5, 7, None]]),
        _some(7, 8, rows=[[-0.5, 7, None]] * 3),
        _some(7, 8, rows=[[-0.5, 7, None], [-0.5, 9, None]]),
        _some(7, 8, rows=[[-0.5, 7, None], [-0.5, 8, "d"]]),
        _some(7, 8, rows=[[-0.5, 7, None], [-1, 8, None]]),
        _some(7, 8, rows=[[-0.5, 7, None], [None, 8, None]]),
        _some(7, 8, rows=[[-0.5, 7, None], [float("inf"), 8, None]]),
        _some(7, 8, rows=[[-0.5, 7, None], [float("nan"), 8, None]]),
        _some(7, 8, rows=[[-0.5, 7, None], [-0.5, 8]]),
        _some(7, 8, rows=[[-0.5, 7, None], [-0.5, 8.0, None]]),
        _some(7, 8, rows=[[-0.5, 7, None], 7]),
        _some(1, 8, rows=[[-0.5, True, None], [-0.5, 8, None]]),
        _some(True, 8, rows=[[-0.5, 1, None], [-0.5, 8, None]]),
        _some(7, -8),
        _some(7, 2**63),
    ],
)
def test_a_chunk_of_several_tokens_that_is_not_as_it_must_be(data: dict[str, Any]) -> None:
    _same(_settled(*TWO), data)


@pytest.mark.parametrize("ids", [[7, -8], [7, 8.0], [7, True], [7, "8"], [7, 2**63]])
def test_ids_without_rows_that_are_none(ids: list[Any]) -> None:
    _same(_settled(*BARE), chunk(*ids, count=4, text="cd"))


def test_rows_counted_with_another_length() -> None:
    data = _some(7, 8)
    data["meta_info"]["output_token_logprobs_length"] = 5
    _same(_settled(*TWO), data)
    data["meta_info"]["output_token_logprobs"] = {}
    _same(_settled(*TWO), data)
