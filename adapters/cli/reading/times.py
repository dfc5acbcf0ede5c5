"""The time of each read of a recording: the second file (sidecar) that ``ssefold record`` writes.

JSON lines, so that a recording which was interrupted is whole up to there::

    {"ssefold": "reads", "version": 1, "url": ..., "status": 200, "content_type": ...}
    [0.0312, 512]             seconds since the request was sent, bytes of this read
    {"end": "complete"}       or "interrupted", or the error's text; missing if the recorder was killed

Knows files and seconds; what the bytes are is not looked at.
"""

from __future__ import annotations

import json
from bisect import bisect_left
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import accumulate
from pathlib import Path
from typing import Any

from .fold import Reading

SUFFIX = ".reads.jsonl"
VERSION = 1


@dataclass
class Reads:
    """The reads of one body.

    :ivar header: the first line.
    :ivar times: seconds since the request, one a read, never falling; :ivar sizes: bytes.
    :ivar end: how the recording ended; None if the recorder was killed.
    """

    header: dict[str, Any] = field(default_factory=dict[str, Any])
    times: list[float] = field(default_factory=list[float])
    sizes: list[int] = field(default_factory=list[int])
    end: str | None = None


@dataclass(frozen=True)
class Timeline:
    """Times of one body's tokens, in seconds.

    :ivar ttft: to the first token; None if there was none.
    :ivar gaps: between two events that brought tokens of the same output.
    :ivar arrivals: per event of the reading, when it was whole.
    :ivar elapsed: to the last byte.
    """

    ttft: float | None
    gaps: tuple[float, ...]
    arrivals: tuple[float, ...]
    elapsed: float


def sidecar_of(recording: str) -> Path:
    """Where the times of a recording are."""
    return Path(recording + SUFFIX)


def read_sidecar(recording: str, size: int) -> Reads | None:
    """The reads of a recording of ``size`` bytes; None where there is no sidecar, or not of this body."""
    path = sidecar_of(recording)
    if recording == "-" or not path.is_file():
        return None
    reads = Reads()
    for number, line in enumerate(path.read_text(encoding="utf-8", errors="replace").splitlines()):
        try:
            value = json.loads(line)
        except ValueError:
            break  # the recorder was killed in the middle of a line
        match value:
            case {"ssefold": "reads", "version": 1} if number == 0:
                reads.header = value
            case [float() | int() as time, int() as count] if reads.header and count > 0:
                reads.times.append(max(float(time), reads.times[-1] if reads.times else 0.0))
                reads.sizes.append(count)
            case {"end": str() as end} if reads.header:
                reads.end = end
            case _:
                return None
    noted = sum(reads.sizes)
    # Whoever was interrupted may have written a read whose time was not noted any more.
    fits = noted == size if reads.end == "complete" else noted <= size
    return reads if reads.times and fits else None


def sidecar_lines(reads: Reads) -> bytes:
    """The whole sidecar."""
    ended = [] if reads.end is None else [{"end": reads.end}]
    lines = [reads.header, *map(list, zip(reads.times, reads.sizes, strict=True)), *ended]
    return "".join(json.dumps(line) + "\n" for line in lines).encode("utf-8")


def timeline_of(reading: Reading, reads: Reads) -> Timeline:
    """When events were whole, and what follows from it for tokens."""
    ends = list(accumulate(reads.sizes))
    arrivals = tuple(reads.times[min(bisect_left(ends, step.end), len(ends) - 1)] for step in reading.steps)
    ttft: float | None = None
    gaps: list[float] = []
    last: dict[int, float] = {}
    counts: Counter[int] = Counter()
    for step, arrival in zip(reading.steps, arrivals, strict=True):
        for update in step.updates:
            count = update.start + len(update.token_ids)
            if count <= counts[update.index]:
                continue  # nothing, or all of it once more (``replace``)
            counts[update.index] = count
            ttft = arrival if ttft is None else ttft
            if update.index in last:
                gaps.append(arrival - last[update.index])
            last[update.index] = arrival
    return Timeline(ttft, tuple(gaps), arrivals, reads.times[-1])


def percentile(values: Sequence[float], share: float) -> float:
    """The nearest-rank percentile of values that are not empty; ``share`` from 0 to 1."""
    ordered = sorted(values)
    return ordered[min(int(share * len(ordered)), len(ordered) - 1)]
