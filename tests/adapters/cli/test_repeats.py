"""What a chunk repeats is cut out before it is parsed, and filled in again: the same bytes come out."""

from __future__ import annotations

import json
from typing import Any

import pytest

pytest.importorskip("click", reason="click comes with the extra `cli`")
pytest.importorskip("rich", reason="rich comes with the extra `cli`")

from hypothesis import given
from hypothesis import strategies as st

from ssefold.adapters.cli.rewrite.repeats import Repeats

KEYS = ("output_ids", "output_token_logprobs")
AWKWARD = st.text(st.sampled_from('a]["\\,{}:\n'), max_size=6)
ROW = st.tuples(st.floats(-9, 0), st.integers(0, 150_000), st.none() | AWKWARD).map(list)


def compact(value: Any) -> bytes:
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False).encode()


def chunk(rows: list[Any], text: str) -> bytes:
    return compact({
        "text": text + ',"output_ids":[7,',
        "output_ids": [row[1] for row in rows],
        "meta_info": {"id": text, "output_token_logprobs": rows, "nested": {"output_ids": [[text], 1]}},
    })  # fmt: skip


@given(rows=st.lists(ROW, max_size=8), counts=st.lists(st.integers(0, 8), max_size=6), text=AWKWARD)
def test_cut_and_filled_is_what_it_was(rows: list[Any], counts: list[int], text: str) -> None:
    """Lists may grow, stay, shrink and begin otherwise."""
    repeats = Repeats(KEYS)
    for count in counts:
        data = chunk(rows[:count] if count % 3 else rows[1:count], text)
        cut = repeats.cut(data)
        assert repeats.filled(compact(json.loads(cut))) == data


def test_what_repeats_is_not_parsed_again() -> None:
    rows = [[-0.5, 100_000 + at, None] for at in range(2000)]
    repeats = Repeats(KEYS)
    for count in (1998, 1999, 2000):
        data = chunk(rows[:count], "t")
        cut = repeats.cut(data)
        assert len(cut) < 400 or count == 1998
        assert repeats.filled(cut) == data
