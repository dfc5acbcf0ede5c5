"""The main figures under other conditions: an event a read, without orjson, with several outputs."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from ssefold import GenerateDecoder
from ssefold.payload import json_backend
from tests.benchmarks.bodies import blocks, body_of, cut, interleaved, make_answer
from tests.benchmarks.fold_speed import FOLDS, JSON, OURS, TUNED, Shape, run
from tests.benchmarks.report import Section, at_most, milliseconds
from tests.benchmarks.scale import READ, Scale
from tests.benchmarks.timing import Runs, median, race

_BARE_LOADS = "bare loads of the payloads"
_OUTPUTS = 8


def measure(scale: Scale) -> list[Section]:
    """The incremental path by itself; the standard library's JSON; several outputs in one response."""
    return [_incremental(scale), _without_orjson(scale), _several(scale)]


def _incremental(scale: Scale) -> Section:
    body = list(body_of(make_answer(scale.main), incremental=True))
    payloads = [event[6:-2] for event in body[:-1]]
    loads = json_backend()
    ways = {"64 KiB": cut(b"".join(body), READ), "an event": body}
    rows: list[list[str]] = []
    bars = []
    for label, reads in ways.items():

        def ours(reads: list[bytes] = reads, *, meta: bool = False) -> None:
            decoder = GenerateDecoder()
            for data in reads:
                for update in decoder.feed(data):
                    if meta:
                        _ = update.meta_info
            decoder.close()

        def bare() -> None:
            for payload in payloads:
                loads(payload)

        def baseline(name: str, reads: list[bytes] = reads) -> None:
            folder = FOLDS[name]()
            for data in reads:
                folder.feed(data)

        runs = race(
            {
                OURS: ours,
                "ssefold, each `meta_info` read": lambda ours=ours: ours(meta=True),
                _BARE_LOADS: bare,
                JSON: lambda baseline=baseline: baseline(JSON),
                TUNED: lambda baseline=baseline: baseline(TUNED),
            },
            scale.rounds,
        )
        times = {name: median(seconds) for name, seconds in runs.items()}
        rows += [[label, name, milliseconds(time), f"{time / times[OURS]:.2f}"] for name, time in times.items()]
        what = f"incremental, {scale.main:,} events, reads of {label}: ours / bare `orjson.loads` of the payloads"
        bars.append(at_most(what, 2, times[OURS] / times[_BARE_LOADS]))
    return Section(
        "Incremental: from bytes to updates",
        f"{scale.main:,} one-token events, in reads of 64 KiB (a reader that has fallen behind) and of one event each"
        " (a reader that keeps up). *Bare loads* parses the payloads, which somebody has found for it, and does nothing"
        " with them. ms, and in terms of ssefold.",
        ["read", "", "ms", "/ ssefold"],
        rows,
        bars,
    )


def _without_orjson(scale: Scale) -> Section:
    rows: list[list[str]] = []
    for incremental in (False, True):
        shape = Shape(scale.main, 1, incremental)
        runs: Runs = {}
        with _standard_json():
            for turn in range(scale.few_rounds):
                run(shape, [OURS, JSON], runs, turn)
        ours, baseline = median(runs[OURS]), median(runs[JSON])
        rows.append(
            [
                f"{'incremental' if incremental else 'cumulative'}, {scale.main:,} tokens, every 1",
                milliseconds(ours),
                milliseconds(baseline),
                f"{baseline / ours:.1f}",
            ]
        )
    return Section(
        "Without orjson",
        "The library uses the standard library's json where orjson is not installed. ms, reads of 64 KiB.",
        ["stream", OURS, JSON, "ratio"],
        rows,
    )


def _several(scale: Scale) -> Section:
    tokens = scale.main // 4
    answers = [make_answer(tokens, seed=seed) for seed in range(_OUTPUTS)]
    rows: list[list[str]] = []
    for incremental in (False, True):
        one = [data for reads in blocks(body_of(answers[0], incremental=incremental), READ) for data in reads]
        all_reads = [data for reads in blocks(interleaved(answers, incremental=incremental), READ) for data in reads]
        runs = race({"one": lambda reads=one: _fold(reads), "all": lambda reads=all_reads: _fold(reads)}, scale.rounds)
        single, several = median(runs["one"]), median(runs["all"]) / _OUTPUTS
        rows.append(
            [
                f"{'incremental' if incremental else 'cumulative'}, {tokens:,} tokens each, every 1",
                milliseconds(single),
                milliseconds(several),
                f"{several / single:.2f}",
            ]
        )
    outputs = _fold(all_reads).outputs
    if [tuple(outputs[at].token_ids) for at in range(_OUTPUTS)] != [one.ids for one in answers]:
        raise ValueError("interleaved outputs were mixed up")
    return Section(
        "Several outputs in one response",
        f"{_OUTPUTS} outputs (`n = {_OUTPUTS}`) that take turns in one stream, against one by itself: ms per output.",
        ["stream", "by itself", f"one of {_OUTPUTS}", "ratio"],
        rows,
    )


def _fold(reads: list[bytes]) -> GenerateDecoder:
    decoder = GenerateDecoder()
    for data in reads:
        decoder.feed(data)
    decoder.close()
    return decoder


@contextmanager
def _standard_json() -> Iterator[None]:
    """As if orjson were not installed."""
    modules: dict[str, Any] = sys.modules
    known = modules.get("orjson")
    modules["orjson"] = None
    json_backend.cache_clear()
    try:
        yield
    finally:
        if known is None:
            del modules["orjson"]
        else:
            modules["orjson"] = known
        json_backend.cache_clear()
