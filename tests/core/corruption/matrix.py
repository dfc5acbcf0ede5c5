"""The matrix: what came of each kind of damage over all profiles, and what may come of it.

``python -m tests.core.corruption`` prints it as the table in docs/security.md.
"""

from __future__ import annotations

from collections import Counter
from functools import cache

from ssefold.transports.testing import PROFILES
from tests.core.corruption.damage import KINDS
from tests.core.corruption.outcome import EXACT, LATER, REFUSED, SILENT, outcome
from tests.core.corruption.streams import Stream, streams

#: Kinds that cannot be detected in principle, or not at once: which parts may come out wrong, and why.
LIMITS: dict[str, tuple[frozenset[str], str]] = {
    "`text` of another event": (
        frozenset({"text"}),
        "counters count no characters: changed or lost delta text, and the new part of a snapshot",
    ),
    "`output_ids` of another event": (
        frozenset({"ids"}),
        "without logprobs, a new id stands nowhere else",
    ),
    "`output_token_logprobs` of another event": (
        frozenset({"logprobs"}),
        "a new logprob of the same id stands nowhere else; on the first event, until the second one comes",
    ),
    "`completion_tokens` of another event": (
        frozenset({"ids"}),
        "gRPC gateway: one more makes a token of the last id that it repeats; a total that fits a delta",
    ),
    "`meta_info` of another event": (frozenset(), "on the first event, until the second one comes"),
    "`id` of another event": (frozenset(), "on the first event, until the second one comes"),
}


@cache
def every_stream() -> tuple[Stream, ...]:
    """The streams of all profiles; of those with the same bytes only one."""
    found: dict[tuple[bytes, bytes], Stream] = {}
    for profile in PROFILES.values():
        for stream in streams(profile):
            found.setdefault((stream.body.data, stream.other.data), stream)
    return tuple(found.values())


@cache
def matrix() -> dict[str, Counter[tuple[str, frozenset[str]]]]:
    """How often what came of each kind of damage: outcome and wrong parts."""
    cells: dict[str, Counter[tuple[str, frozenset[str]]]] = {}
    for name, kind in KINDS.items():
        cells[name] = Counter(
            outcome(stream, body) for stream in every_stream() for body in kind(stream.body.events, stream.other.events)
        )
    return cells


def table() -> list[str]:
    """The matrix in Markdown."""
    lines = [
        "| damage | the whole answer | refused, exact prefix | refused later | not detected | why not |",
        "|---|--:|--:|--:|--:|---|",
    ]
    for name, cell in matrix().items():
        counts = Counter[str]()
        for (verdict, _), count in cell.items():
            counts[verdict] += count
        numbers = " | ".join(f"{counts[verdict]:,}" for verdict in (EXACT, REFUSED, LATER, SILENT))
        lines.append(f"| {name} | {numbers} | {LIMITS[name][1] if name in LIMITS else ''} |")
    return lines
