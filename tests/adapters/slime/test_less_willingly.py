"""What slime takes by ``int()`` and ``float()`` and ours refuses: the table of ``docs/adapters-slime.md``."""

from __future__ import annotations

import json
from typing import Any

import pytest

from ssefold import PayloadError, ProtocolError
from ssefold.adapters.slime import SGLangStreamAccumulator

from ..fakes import STOP, chunk, lines_response, pairs_of, stream_of
from .runs import Run

REFUSED: dict[str, Any] = {
    "id as text": chunk("a", [[-0.1, "12", None]], 1),
    "id as a flag": chunk("a", [[-0.1, True, None]], 1),
    "id with a fraction": chunk("a", [[-0.1, 12.5, None]], 1),
    "negative id": chunk("a", [[-0.1, -1, None]], 1),
    "logprob as text": chunk("a", [["-0.5", 12, None]], 1),
    "logprob as a flag": chunk("a", [[True, 12, None]], 1),
    "logprob not a number": chunk("a", [[float("nan"), 12, None]], 1),
    "length as text": {"meta_info": {"output_token_logprobs": pairs_of([12]), "output_token_logprobs_length": "1"}},
    "length as a float": {"meta_info": {"output_token_logprobs": pairs_of([12]), "output_token_logprobs_length": 1.0}},
}


@pytest.mark.parametrize("kind", REFUSED)
def test_refused(slime: Any, kind: str) -> None:
    with pytest.raises(PayloadError):
        SGLangStreamAccumulator().add(REFUSED[kind])
    sample = slime.Sample(prompt="p")
    with pytest.raises(PayloadError):
        Run(slime, lines_response([f"data: {json.dumps(REFUSED[kind])}"]))(sample)
    assert sample.tokens == [1, 2]


@pytest.mark.parametrize("row", [[-0.1, 12.0, None], [-0.1, 12.0], [-1, 12, None]])
def test_taken(row: list[Any]) -> None:
    assert SGLangStreamAccumulator().add(chunk("a", [row], 1)).tokens == [12]


@pytest.mark.parametrize(
    "change",
    [
        {"output_token_logprobs": pairs_of([99, 12])},
        {"output_token_logprobs": [[-0.9, 11, None], *pairs_of([12])]},
        {"id": "another"},
    ],
    ids=["an id that changes", "a logprob that changes", "another request"],
)
def test_what_contradicts_itself(slime: Any, change: dict[str, Any]) -> None:
    first, second = stream_of([11, 12], incremental=False, finish=STOP)
    second["meta_info"].update(change)
    sample = slime.Sample(prompt="p")
    with pytest.raises(ProtocolError):
        Run(slime, lines_response([first, second]), sglang_incremental_streaming_output=False)(sample)
    assert (sample.tokens, sample.status) == ([1, 2, 11], slime.Sample.Status.PENDING)
