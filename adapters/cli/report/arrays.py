"""Replay arrays in numbers that fit on a line, as far as they are known without the model.

The stream says neither layers nor top-k; rows follow from the counters, the rest from ``--layers`` if given.
Knows the core's arrays.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from ssefold import Accumulator, ReplayArray, TopPReplay


@dataclass(frozen=True)
class TopPSummary:
    """Top-p rows.

    :ivar missing: rows that lack the id that was sampled.
    """

    rows: int
    token_ids: int
    fewest: int
    most: int
    mean: float
    missing: int


@dataclass(frozen=True)
class RoutingSummary:
    """Routed experts.

    :ivar rows: of the whole call; 0 if the numbers are no multiple of that (cropped, or not of this call).
    :ivar per_row: layers x top-k.
    :ivar load: how often each expert was chosen, by expert; :ivar masked: numbers that are -1.
    """

    numbers: int
    rows: int
    per_row: int
    load: dict[int, int]
    masked: int


def top_p_summary(top_p: TopPReplay, token_ids: Sequence[int]) -> TopPSummary:
    """Of one output's rows."""
    sizes = [len(top_p.kept(row)) for row in range(len(top_p))]
    missing = sum(
        token not in top_p.kept(row).tolist() for row, token in enumerate(token_ids[: len(top_p)]) if sizes[row]
    )
    mean = sum(sizes) / len(sizes) if sizes else 0.0
    return TopPSummary(len(top_p), len(top_p.token_ids), min(sizes, default=0), max(sizes, default=0), mean, missing)


def routing_summary(routing: ReplayArray, output: Accumulator) -> RoutingSummary:
    """Of one output's routing."""
    numbers = len(routing)
    prompt = output.meta_info.get("prompt_tokens")
    rows = prompt + len(output.token_ids) - 1 if type(prompt) is int else 0
    fits = rows > 0 and numbers % rows == 0
    counts = Counter(routing.values.tolist())
    masked = counts.pop(-1, 0)
    return RoutingSummary(
        numbers, rows if fits else 0, numbers // rows if fits else 0, dict(sorted(counts.items())), masked
    )


def load_by_layer(routing: ReplayArray, summary: RoutingSummary, layers: int) -> list[Counter[int]]:
    """How often each expert was chosen, layer by layer; one row for all if ``layers`` does not divide a row."""
    if layers < 1 or not summary.per_row or summary.per_row % layers:
        return [Counter(summary.load)]
    top_k = summary.per_row // layers
    values = routing.values.tolist()
    loads: list[Counter[int]] = [Counter() for _ in range(layers)]
    for start in range(0, len(values), top_k):
        loads[start // top_k % layers].update(value for value in values[start : start + top_k] if value >= 0)
    return loads


def summaries(output: Accumulator) -> dict[str, Any]:
    """Plain, for machines."""
    top_p, routing, indexer = output.top_p, output.routed_experts, output.indexer_topk
    return {
        "top_p": None if top_p is None else asdict(top_p_summary(top_p, output.token_ids)),
        "routed_experts": None if routing is None else asdict(routing_summary(routing, output)),
        "indexer_topk": None if indexer is None else {"numbers": len(indexer)},
    }
