"""What an event loop sees: how long one read may take late in a long answer, and what many streams at once cost."""

from __future__ import annotations

import gc
from base64 import b64encode
from collections.abc import Sequence
from time import process_time
from typing import Any

from ssefold import GenerateDecoder
from tests.benchmarks.bodies import cut, events, make_answer
from tests.benchmarks.fold_speed import OURS, available
from tests.benchmarks.report import Bar, Section, milliseconds
from tests.benchmarks.scale import READ, Scale
from tests.benchmarks.timing import median

_LATE = 64
"""Events at the end of an answer that count as late."""
_LONGEST_STALL = 1e-3
_WARM_UP = 4
_STEPS = 12
_RATE = 30
"""Tokens per second of a stream, as large models give at high load."""


def measure(scale: Scale) -> list[Section]:
    """The longest reads, then many streams."""
    return [_stalls(scale), _streams(scale)]


def _stalls(scale: Scale) -> Section:
    rows: list[list[str]] = []
    bars: list[Bar] = []
    late = [(tokens, _late_chunks(tokens)) for tokens in (scale.main, 4 * scale.main)]
    bodies = [(f"{tokens:,} tokens", body) for tokens, body in late]
    bodies.append((f"routed experts, {scale.replay / 2**20:.0f} MiB", _with_replay(scale.replay)))
    for what, body in bodies:
        for name, make in available().items():
            rounds = [_stall(make(), body) for _ in range(scale.few_rounds)]
            every, ending, longest = (median(seconds) for seconds in zip(*rounds, strict=True))
            rows.append([what, name, *map(milliseconds, (every, ending, longest))])
            if name == OURS and body is late[0][1]:
                bar = f"stall: median `feed` of 64 KiB that ends a chunk of {scale.main:,} tokens"
                bars.append(Bar(bar, "at most 1 ms", f"{milliseconds(ending)} ms", ending <= _LONGEST_STALL))
    return Section(
        "The longest read",
        f"One `feed` of 64 KiB, in ms, during the last {_LATE} chunks of a cumulative answer at interval 1, and during"
        " a terminal chunk with a large replay array: the median of all reads, of those that end an event (and give an"
        " update), and the longest one.",
        ["answer", "", "all reads", "reads that end an event", "longest"],
        rows,
        bars,
    )


def _late_chunks(tokens: int) -> list[bytes]:
    counts = [1, *range(max(tokens - _LATE, 2), tokens + 1)]
    return list(events(make_answer(tokens), counts, incremental=False))


def _with_replay(size: int) -> list[bytes]:
    text = b64encode(bytes(size * 3 // 4)).decode()
    return list(events(make_answer(64), [1, 32, 64], incremental=True, routed_experts=text))


def _stall(folder: Any, body: Sequence[bytes]) -> tuple[float, float, float]:
    """Seconds of the median read behind the first two events, of the median one that ends an event, of the longest."""
    for event in body[:2]:
        folder.feed(event)
    reads = cut(b"".join(body[2:]), READ)
    gc.collect()
    took = [_timed(folder, data) for data in reads]
    every = [seconds for seconds, _ in took]
    return median(every), median(seconds for seconds, ends in took if ends), max(every)


def _timed(folder: Any, data: bytes) -> tuple[float, bool]:
    start = process_time()
    updates = folder.feed(data)
    return process_time() - start, bool(updates)


def _streams(scale: Scale) -> Section:
    number, tokens = scale.streams
    rows: list[list[str]] = []
    for incremental in (False, True):
        for interval in scale.intervals:
            steps = _steps(tokens, interval, incremental=incremental)
            seconds = _step_time(number, steps) / interval
            size = sum(map(len, steps[-1])) / interval
            rows.append(
                [
                    f"{'incremental' if incremental else 'cumulative'}, every {interval}",
                    f"{size / 1000:,.1f}",
                    f"{number * _RATE * size / 1e6:,.0f}",
                    milliseconds(seconds),
                    f"{seconds * _RATE:.1%}",
                ]
            )
    return Section(
        "Many streams in one worker",
        f"{number} decoders in one process, each at {tokens:,} tokens, which get their next event in turn. kB that one"
        f" stream sends per token; MB/s of all streams at {_RATE} tokens per second each; CPU ms to fold one more token"
        " of every stream; and the part of one core that this takes at that rate. Reading sockets is not in it.",
        ["stream", "kB a token", "MB/s in all", "ms a token of each", "of a core"],
        rows,
    )


def _steps(tokens: int, interval: int, *, incremental: bool) -> list[list[bytes]]:
    """The events around token ``tokens``, each as the reads it comes in, led by one that brings the tokens so far."""
    late = range(tokens - interval * (_WARM_UP + _STEPS), tokens + 1, interval)
    counts = [max(at, place + 1) for place, at in enumerate(late)]
    found = events(make_answer(counts[-1] + 1), counts, incremental=incremental)
    return [cut(event, READ) for event in found]


def _step_time(number: int, steps: Sequence[Sequence[bytes]]) -> float:
    decoders = [GenerateDecoder() for _ in range(number)]
    for reads in steps[:-_STEPS]:
        _feed_each(decoders, reads)
    gc.collect()
    times: list[float] = []
    for reads in steps[-_STEPS:]:
        start = process_time()
        _feed_each(decoders, reads)
        times.append(process_time() - start)
    return median(times)


def _feed_each(decoders: Sequence[GenerateDecoder], reads: Sequence[bytes]) -> None:
    for decoder in decoders:
        for data in reads:
            decoder.feed(data)
