"""Lists beside the tokens, one by one: what keeps them aligned, and when a list turns out to be no such list."""

from __future__ import annotations

import json
from typing import Any

import pytest

from ssefold import Accumulator, ProtocolError
from ssefold.fold.extras import Extra, ExtraStep, plan_extras
from ssefold.fold.lanes import CUMULATIVE, INCREMENTAL
from tests.core.by_hand import fold
from tests.core.fast.test_both_paths import same_as_long_way
from tests.core.mutations import event
from tests.core.test_errors import STOP, chunk, rowed

TOPS = "output_top_logprobs"


def plan(value: Any, known: Extra | None = None, *, total: int, **options: Any) -> list[ExtraStep]:
    """Place one list; its name is ``tops`` unless it has another."""
    name = options.pop("name", TOPS)
    meta = {name: value, **options.pop("meta", {})}
    rest = {"rows_total": None, "terminal": False, "hint": "Look there", **options}
    rest.setdefault("queue_abort", rest["terminal"])
    return plan_extras(meta, {} if known is None else {name: known}, total=total, **rest)


def test_an_empty_list_before_the_first_entry_is_nothing() -> None:
    assert plan([], total=0) == []
    assert plan([], Extra(None, []), total=3) == []
    output = Accumulator()
    assert output.add(rowed(count=0, output_top_logprobs=[])).token_ids == ()
    assert TOPS not in output.lanes
    output.add(rowed(5, output_top_logprobs=[[1]]))
    assert output.native_response()["meta_info"][TOPS] == [[1]]


@pytest.mark.parametrize("value", [None, 7, "x", {"a": 1}])
def test_of_other_names_only_lists_are_looked_at(value: Any) -> None:
    assert plan(value, name="mine", total=3) == []


def test_deltas_and_snapshots() -> None:
    assert plan([1, 2], total=2) == [ExtraStep(TOPS, None, [1, 2])]
    assert plan([1, 2, 3], Extra(None, [1, 2]), total=3) == [ExtraStep(TOPS, CUMULATIVE, [3])]
    assert plan([3], Extra(None, [1, 2]), total=3) == [ExtraStep(TOPS, INCREMENTAL, [3])]


def test_an_abort_behind_pending_deltas() -> None:
    step = ExtraStep(TOPS, None, [2, 3])
    assert plan([2, 3, 1, 2, 3], Extra(None, [1]), total=3, terminal=True) == [step]
    assert plan([2, 3, 1, 2, 3], Extra(INCREMENTAL, [1]), total=3, terminal=True) == [step._replace(lane=INCREMENTAL)]
    with pytest.raises(ProtocolError, match=r"the 2 entries before the abort snapshot are not part of it\. Look there"):
        plan([2, 9, 1, 2, 3], Extra(None, [1]), total=3, terminal=True)
    with pytest.raises(ProtocolError, match="changed entries already sent"):
        plan([2, 3, 9, 2, 3], Extra(None, [1]), total=3, terminal=True)


MASK, MASK_LENGTH = "output_token_sampling_mask", "output_token_sampling_mask_length"


@pytest.mark.parametrize(
    ("name", "mask_length", "rows_total", "total"),
    [
        (MASK, 3, 7, 9),
        ("output_token_sampling_logprobs", 3, 7, 9),
        (MASK, None, 7, 3),
        (MASK, "3", 7, 3),
        (TOPS, 7, 3, 9),
        ("output_token_ids_logprobs", 7, 3, 9),
        (TOPS, 7, None, 3),
    ],
)
def test_masks_go_by_their_counter_other_lists_by_that_of_the_rows(
    name: str, mask_length: Any, rows_total: int | None, total: int
) -> None:
    meta = {MASK_LENGTH: mask_length}
    steps = plan([1, 2, 3], name=name, meta=meta, rows_total=rows_total, total=total)
    assert steps == [ExtraStep(name, None, [1, 2, 3])]


def test_a_snapshot_is_no_delta_of_the_same_length() -> None:
    """It stood still while as many tokens came as it is long, and was appended to itself."""
    says = r"output_top_logprobs is cumulative, and has 2 entries where there must be 4\. Look there"
    with pytest.raises(ProtocolError, match=says):
        plan([1, 2], Extra(CUMULATIVE, [1, 2]), total=4)


@pytest.mark.parametrize(
    ("value", "known", "total", "step"),
    [
        # the first
        ([], None, 0, []),
        ([], None, 1, [None, None]),
        ([1], None, 1, [None, [1]]),
        ([1, 2], None, 1, [None, None]),
        # one that was given up stays given up
        ([1, 2], Extra(CUMULATIVE, None), 2, []),
        # snapshots: as long as the tokens, and going on from what is known
        ([1, 2], Extra(None, [1]), 2, [CUMULATIVE, [2]]),
        ([1, 2], Extra(None, []), 2, [None, [1, 2]]),
        ([9, 2, 3], Extra(CUMULATIVE, [1]), 3, [CUMULATIVE, None]),
        # deltas: as long as what is new
        ([2], Extra(None, [1]), 2, [INCREMENTAL, [2]]),
        ([9, 2], Extra(INCREMENTAL, [1]), 3, [INCREMENTAL, [9, 2]]),
        ([2], Extra(CUMULATIVE, [1]), 2, [CUMULATIVE, None]),
        # neither
        ([2, 3], Extra(INCREMENTAL, [1]), 2, [INCREMENTAL, None]),
        ([1], Extra(None, [1, 2]), 1, [None, None]),
    ],
)
def test_lists_of_a_model_are_aligned_for_as_long_as_their_length_says_so(
    value: list[int], known: Extra | None, total: int, step: list[Any]
) -> None:
    wanted = [ExtraStep("mine", step[0], step[1])] if step else []
    assert plan(value, known, total=total, name="mine") == wanted


def test_a_list_that_is_not_aligned_any_more_is_a_value_again() -> None:
    output = Accumulator()
    output.add(chunk(5, mine=[1]))
    output.add(chunk(5, 6, mine=[1, 2]))
    assert output.lanes["mine"] == "cumulative"
    last = output.add(chunk(5, 6, 7, mine=[1, 2], finish=STOP))
    assert "mine" not in output.lanes
    assert last.meta_info["mine"] == [1, 2]
    assert output.native_response()["meta_info"]["mine"] == [1, 2]


def test_a_list_that_stops_growing_is_told_whole() -> None:
    """Its known part had been cut out as what repeats, and the list was told to be empty."""
    events: list[bytes] = []
    for count in range(1, 12):
        mine = [0.5 * at for at in range(min(count, 5))]
        one = chunk(*range(count), text="x" * count, mine=mine, last=0)
        events.append(event(json.dumps(one, separators=(",", ":")).encode()))
    folded = fold(events)
    same_as_long_way(events)
    assert "mine" not in folded.outputs[0].lanes
    assert [len(update.meta_info["mine"]) for update in folded.updates] == [1, 1, 1, 1, 1, 5, 5, 5, 5, 5, 5]
    assert folded.outputs[0].meta_info["mine"] == [0.0, 0.5, 1.0, 1.5, 2.0]
