"""CPU time of contenders that take turns, so that whatever disturbs the machine disturbs all of them alike.

Time is the process's CPU time: what other processes do while ours waits is not in it (what they do to caches is).  Each
round runs every contender once, and begins with another one; figures are the smallest of the rounds, which others
disturbed least.  The benchmark tools of the ecosystem time one contender after the other, and hold a whole body in
memory: neither fits here.  Knows neither bodies nor parsers.
"""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterable, Mapping, Sequence
from statistics import median
from time import process_time
from typing import Protocol

__all__ = ["Feeder", "Runs", "fold_time", "in_turn", "median", "race"]

Runs = dict[str, list[float]]
"""Seconds of each round, by contender."""


class Feeder(Protocol):
    """What is timed: something that takes reads, and then the end."""

    def feed(self, data: bytes, /) -> object: ...
    def close(self) -> object: ...


def race(contenders: Mapping[str, Callable[[], object]], rounds: int) -> Runs:
    """Call each contender once in each of ``rounds`` rounds."""
    runs: Runs = {name: [] for name in contenders}
    for turn in range(rounds):
        for name in in_turn(list(contenders), turn):
            gc.collect()
            start = process_time()
            result = contenders[name]()
            runs[name].append(process_time() - start)
            del result
    return runs


def fold_time(blocks: Iterable[Sequence[bytes]], feeder: Feeder) -> float:
    """Seconds that ``feeder`` takes for all reads and the end.

    The next block is made, untimed, when the one before is done with: so its bytes have just been written when they are
    read, as those are that a socket hands over.
    """
    gc.collect()
    seconds = 0.0
    feed = feeder.feed
    for reads in blocks:
        start = process_time()
        for data in reads:
            feed(data)
        seconds += process_time() - start
    start = process_time()
    feeder.close()
    return seconds + process_time() - start


def in_turn(names: Sequence[str], turn: int) -> list[str]:
    """The same names, beginning with another one in each turn."""
    at = turn % len(names)
    return [*names[at:], *names[:at]]
