"""Samples and updates, shared by the tests of ``RolloutSample``."""

from __future__ import annotations

from typing import Any

from ssefold import (
    FinishReason,
    ReplayArray,
    TopPReplay,
    Update,
)
from ssefold.adapters.rollout import RolloutSample

PROMPT = [7, 8, 9]
STOP = FinishReason({"type": "stop", "matched": 2})
LENGTH = FinishReason({"type": "length", "length": 9})
ABORT = FinishReason({"type": "abort", "message": "Aborted", "status_code": None})
SHED = FinishReason({"type": "abort", "message": "queue full", "status_code": 503})
REFUSED = FinishReason({"type": "abort", "message": "bad grammar", "status_code": 400})
WANTS_ROWS = {"max_new_tokens": 99, "custom_params": {"return_top_p_token_ids": True}}


def update(start: int, ids: list[int], finish: FinishReason | None = None, **fields: Any) -> Update:
    given_fields = {
        "text": "".join(f"<{token}>" for token in ids),
        "text_start": 4 * start,
        "logprobs": tuple(-token / 100 for token in ids),
        **fields,
    }
    return Update(start=start, token_ids=tuple(ids), finish_reason=finish, **given_fields)


def sample_of(*updates: Update, **arguments: Any) -> RolloutSample:
    sample = RolloutSample(PROMPT, **{"sampling_params": {"max_new_tokens": 99}, **arguments})
    for one in updates:
        sample.apply(one)
    return sample


def rows(*kept: list[int]) -> TopPReplay:
    offsets = [0]
    for row in kept:
        offsets.append(offsets[-1] + len(row))
    return TopPReplay([token for row in kept for token in row], offsets)


def kept_of(replay: TopPReplay | None) -> list[list[int]] | None:
    return None if replay is None else [replay.kept(i).tolist() for i in range(len(replay))]


def routing(first: int, count: int) -> ReplayArray:
    return ReplayArray([value for row in range(first, first + count) for value in (row, row + 100)])
