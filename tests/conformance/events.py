"""Every recorded row of server-sent events, by this library and by each published parser, cut in every way.

What is compared is what all of them hand out: the data of the events, in order.  Of ours, type, id and reconnection
time are held against the row as well.  A parser that is not installed is named as such.
"""

from __future__ import annotations

import base64
import json
import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.benchmarks.peers import PEERS, Parse, parser_of
from tests.core.sse.feeding import cut, parse

ROWS = Path(__file__).resolve().parents[1] / "data" / "sse"
OURS = "ssefold"
NOT_INSTALLED = "not installed"
_LONG = 4096
_MOST_OFFSETS = 100
_RANDOM = 20


@dataclass(frozen=True)
class Row:
    """One recorded stream, and what somebody made of it."""

    source: str
    name: str
    stream: bytes
    expected: dict[str, Any]

    @property
    def data(self) -> list[str]:
        return [data for _, data, _ in self.expected["events"]]


def rows() -> list[Row]:
    """All that are recorded: web-platform-tests first, then our edge cases, then bug reports."""
    files = ("wpt_cases", "edge_cases", "bug_cases")
    found = [(name, raw) for name in files for raw in json.loads((ROWS / f"{name}.json").read_text("utf-8"))]
    return [Row(name.partition("_")[0], raw["name"], base64.b64decode(raw["input_b64"]), raw) for name, raw in found]


def cuts(stream: bytes) -> Iterator[Sequence[bytes]]:
    """Whole; each byte (64 of them, in a long one); in two at every offset (at a hundred, in a long one); at random."""
    step = 1 if len(stream) < _LONG else 64
    yield [stream]
    yield [stream[at : at + step] for at in range(0, len(stream), step)]
    for offset in range(0, len(stream) + 1, 1 if len(stream) < _LONG else 1 + len(stream) // _MOST_OFFSETS):
        yield [stream[:offset], stream[offset:]]
    chance = random.Random(len(stream))
    for _ in range(_RANDOM):
        yield cut(stream, [chance.randrange(len(stream) + 1) for _ in range(chance.randrange(1, 12))])


def judge(row: Row, is_right: Callable[[Sequence[bytes]], bool]) -> str:
    """One cell: ``yes``, ``no``, or in how many of the cuts it came out wrong."""
    wrong = total = 0
    for reads in cuts(row.stream):
        total += 1
        wrong += not is_right([read for read in reads if read] or [b""])
    return "yes" if not wrong else "no" if wrong == total else f"wrong in {wrong} of {total} cuts"


def ours(row: Row) -> str:
    """All that the row says."""
    wanted = row.expected

    def is_right(reads: Sequence[bytes]) -> bool:
        seen = parse(reads, last_event_id=wanted.get("initial_last_event_id", ""))
        return (
            [list(event) for event in seen.events] == [list(event) for event in wanted["events"]]
            and seen.last_event_id == wanted["last_event_id"]
            and seen.reconnection_time == wanted["retry_ms"]
        )

    return judge(row, is_right)


def theirs(row: Row, parser: Parse) -> str:
    """The data of the events; whatever a parser raises instead is not that."""

    def is_right(reads: Sequence[bytes]) -> bool:
        try:
            return parser(reads) == row.data
        except Exception:  # noqa: BLE001  # whatever ends a peer is its result
            return False

    return judge(row, is_right)


def table_of(found: Sequence[Row], peers: Sequence[str] = PEERS) -> list[list[str]]:
    """A line a row: its source, its name, ours, and each peer's."""
    parsers = [parser_of(peer) for peer in peers]
    return [
        [
            row.source,
            row.name,
            ours(row),
            *(NOT_INSTALLED if parser is None else theirs(row, parser) for parser in parsers),
        ]
        for row in found
    ]
