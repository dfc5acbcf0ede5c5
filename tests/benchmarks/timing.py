"""CPU time of contenders that take turns, so that whatever disturbs the machine disturbs all of them alike.

Time is the process's CPU time: what other processes do while ours waits is not in it (what they do to caches is).  Each
round runs every contender once, and begins with another one; figures are medians over the rounds.  The benchmark tools
of the ecosystem time one contender after the other, and hold a whole body in memory: neither fits here.  Knows
neither bodies nor parsers.
"""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from statistics import median
from time import process_time
from typing import Protocol, TypeVar

__all__ = ["Feeder", "Runs", "fold_once", "median", "race"]

Runs = dict[str, list[float]]
"""Seconds of each round, by contender."""


class Feeder(Protocol):
    """What is timed: something that takes reads, and then the end."""

    def feed(self, data: bytes, /) -> object: ...
    def close(self) -> object: ...


F = TypeVar("F", bound=Feeder)


def race(contenders: Mapping[str, Callable[[], object]], rounds: int) -> Runs:
    """Call each contender once in each of ``rounds`` rounds."""
    runs: Runs = {name: [] for name in contenders}
    for turn in range(rounds):
        for name in _turned(list(contenders), turn):
            gc.collect()
            start = process_time()
            result = contenders[name]()
            runs[name].append(process_time() - start)
            del result
    return runs


def fold_once(blocks: Iterable[Sequence[bytes]], feeders: Mapping[str, F], runs: Runs, turn: int = 0) -> None:
    """Feed the same reads to each feeder, and append its seconds to ``runs``.

    Blocks are made one at a time (untimed) and go to all feeders before the next one is made.
    """
    seconds = dict.fromkeys(feeders, 0.0)
    order = list(_turned(list(feeders), turn))
    for reads in blocks:
        for name in order:
            feed = feeders[name].feed
            gc.collect()
            start = process_time()
            for data in reads:
                feed(data)
            seconds[name] += process_time() - start
    for name in order:
        start = process_time()
        feeders[name].close()
        runs.setdefault(name, []).append(seconds[name] + process_time() - start)


def _turned(names: list[str], turn: int) -> Iterator[str]:
    at = turn % len(names)
    yield from names[at:]
    yield from names[:at]
