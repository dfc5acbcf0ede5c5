"""What must not cost more with every chunk: joins and copies of all that came before, counted and not timed.

Growth by the clock is in ``tests/benchmarks``.
"""

from __future__ import annotations

from array import array
from typing import Any

import pytest

from ssefold import Accumulator, ProtocolError, ReplayError, TopPReplay
from ssefold.fold.text import TextLane
from ssefold.replay import TopPRows
from ssefold.replay.int32 import INT32_MAX
from tests.core.test_errors import chunk, rowed


def test_text_alone_is_not_joined_for_deltas(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without ids and counters each text was held against all text so far, joined anew for every chunk."""
    joined: list[int] = []
    whole = TextLane.value

    def counted(lane: TextLane) -> str:
        text = whole(lane)
        joined.append(len(text))
        return text

    monkeypatch.setattr(TextLane, "value", counted)
    output = Accumulator()
    for at in range(200):
        output.add({"text": f"<{at}>", "meta_info": {"id": "r", "finish_reason": None, "prompt_tokens": 1}})
    assert sum(joined) < 100
    assert output.text() == "".join(f"<{at}>" for at in range(200))


def test_rows_may_come_late_a_few_times_only() -> None:
    """Each time the update carries the whole output again: kilobytes for every token that a small chunk names."""
    output = Accumulator()
    first = chunk(*[5] * 100)
    output.add(first)
    late = rowed(5, count=100)
    del late["output_ids"]
    for given in range(1, 17):
        late["meta_info"]["output_token_logprobs_length"] = given
        assert output.add(late).replace
    late["meta_info"]["output_token_logprobs_length"] = 17
    with pytest.raises(ProtocolError, match=r"came late for 1 tokens, as 16 times before") as caught:
        output.add(late)
    assert len(caught.value.partial[0].logprobs) == 16


def test_snapshots_of_rows_may_come_late_at_any_time() -> None:
    """Each names every token that its update carries (bug report 22: logprob keys missing in some chunks)."""
    output = Accumulator()
    for count in range(1, 80, 2):
        output.add(chunk(*range(count)))
        assert output.add(rowed(*range(count + 1))).replace
    assert list(output.logprobs) == [-0.5] * 80


def test_top_p_rows_of_each_chunk_are_joined_when_asked_for() -> None:
    """All rows so far were copied for every chunk."""
    made: list[TopPReplay] = []
    output = Accumulator()
    for at in range(50):
        one = chunk(*[7] * (at + 1), top_p_token_ids=[7, at], top_p_token_offsets=[0, 2])
        update = output.add(one)
        assert update.top_p is not None
        made.append(update.top_p)
    assert len(output._state.top_p._parts) == 50
    top_p = output.top_p
    assert top_p is not None
    assert [list(top_p.kept(at)) for at in range(50)] == [[7, at] for at in range(50)]
    assert output.top_p is top_p
    assert Accumulator.restore(output.snapshot()).top_p == top_p


def test_empty_top_p_rows_are_no_parts() -> None:
    rows = TopPRows()
    assert rows.value() is None
    for _ in range(3):
        rows.append(TopPReplay([], [0]))
    assert rows.value() == TopPReplay([], [0])
    assert len(rows._parts) == 1


def test_top_p_rows_beyond_int32_are_refused_before_anything_changes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ssefold.replay.top_p_rows.INT32_MAX", 5)
    assert INT32_MAX == 2**31 - 1
    output = Accumulator()
    output.add(chunk(7, top_p_token_ids=[1, 2, 3], top_p_token_offsets=[0, 3]))
    before = output.snapshot()
    more: dict[str, Any] = chunk(7, 8, top_p_token_ids=array("i", [1, 2, 3]).tolist(), top_p_token_offsets=[0, 3])
    with pytest.raises(ReplayError, match=r"3 \+ 3 kept token ids are more than int32 offsets can count"):
        output.add(more)
    assert output.snapshot() == before
    assert list(output.token_ids) == [7]
