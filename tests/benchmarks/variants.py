"""The main figures under other conditions: an event a read, without orjson, with several outputs."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any

from ssefold import GenerateDecoder
from ssefold.fold.payload import json_backend
from tests.benchmarks.bodies import body_of, cut, interleaved, make_answer
from tests.benchmarks.fold_speed import JSON, OURS, TUNED, Shape, available, run
from tests.benchmarks.report import Bar, Section, at_most, milliseconds
from tests.benchmarks.scale import READ, Scale
from tests.benchmarks.timing import Feeder, Runs, median, race

_BARE_LOADS = "bare loads of the payloads"
_WITH_META = "ssefold, each `meta_info` looked into"
_OUTPUTS = 8


def measure(scale: Scale) -> list[Section]:
    """The incremental path by itself; the standard library's JSON; several outputs in one response."""
    return [_incremental(scale), _without_orjson(scale), _several(scale)]


def _incremental(scale: Scale) -> Section:
    body = list(body_of(make_answer(scale.main), incremental=True))
    payloads = [event[6:-2] for event in body[:-1]]
    makers = available()
    rows: list[list[str]] = []
    bars: list[Bar] = []
    for label, reads in {"64 KiB": cut(b"".join(body), READ), "an event": body}.items():
        contenders: dict[str, Callable[[], object]] = {
            name: partial(_feed_all, makers[name], reads) for name in (OURS, JSON, TUNED) if name in makers
        }
        contenders[_WITH_META] = partial(_look_into_meta, reads)
        contenders[_BARE_LOADS] = partial(_load_all, json_backend(), payloads)
        times = {name: median(seconds) for name, seconds in race(contenders, scale.rounds).items()}
        rows += [[label, name, milliseconds(time), f"{time / times[OURS]:.2f}"] for name, time in times.items()]
        what = f"incremental, {scale.main:,} events, reads of {label}: ours / bare `orjson.loads` of the payloads"
        bars.append(at_most(what, 2, times[OURS] / times[_BARE_LOADS]))
    return Section(
        "Incremental: from bytes to updates",
        f"{scale.main:,} one-token events, in reads of 64 KiB (a reader that has fallen behind) and of one event each"
        f" (a reader that keeps up). *{_BARE_LOADS.capitalize()}* is the JSON parser alone, on payloads that were cut"
        f" out before. In *{_WITH_META}* somebody asks every update for a key of its `meta_info`, which is parsed late."
        " ms, and in terms of ssefold.",
        ["read", "", "ms", "/ ssefold"],
        rows,
        bars,
    )


def _feed_all(make: Callable[[], Feeder], reads: Sequence[bytes]) -> Feeder:
    feeder = make()
    for data in reads:
        feeder.feed(data)
    feeder.close()
    return feeder


def _look_into_meta(reads: Sequence[bytes]) -> None:
    decoder = GenerateDecoder()
    for data in reads:
        for update in decoder.feed(data):
            update.meta_info["completion_tokens"]


def _load_all(loads: Callable[[bytes], Any], payloads: Sequence[bytes]) -> None:
    for payload in payloads:
        loads(payload)


def _without_orjson(scale: Scale) -> Section:
    rows: list[list[str]] = []
    for incremental in (False, True):
        shape = Shape(scale.main, 1, incremental)
        installed: Runs = {}
        absent: Runs = {}
        for turn in range(scale.few_rounds):
            run(shape, [OURS], installed, turn)
            with standard_json():
                run(shape, [OURS], absent, turn)
        times = median(installed[OURS]), median(absent[OURS])
        rows.append([f"{_mode(incremental)}, {scale.main:,} tokens, every 1", *_pair(*times)])
    return Section(
        "Without orjson",
        "The library takes the standard library's json where orjson is not installed. ms, reads of 64 KiB.",
        ["stream", "with orjson", "without", "ratio"],
        rows,
    )


def _several(scale: Scale) -> Section:
    tokens = scale.main // 4
    answers = [make_answer(tokens, seed=seed) for seed in range(_OUTPUTS)]
    rows: list[list[str]] = []
    for incremental in (False, True):
        single = cut(b"".join(body_of(answers[0], incremental=incremental)), READ)
        several = cut(b"".join(interleaved(answers, incremental=incremental)), READ)
        runs = race(
            {
                "single": partial(_feed_all, GenerateDecoder, single),
                "several": partial(_feed_all, GenerateDecoder, several),
            },
            scale.rounds,
        )
        times = median(runs["single"]), median(runs["several"]) / _OUTPUTS
        rows.append([f"{_mode(incremental)}, {tokens:,} tokens each, every 1", *_pair(*times)])
    return Section(
        "Several outputs in one response",
        f"{_OUTPUTS} outputs (`n = {_OUTPUTS}`) that take turns in one stream, against one by itself: ms per output.",
        ["stream", "by itself", f"one of {_OUTPUTS}", "ratio"],
        rows,
    )


def _mode(incremental: bool) -> str:
    return "incremental" if incremental else "cumulative"


def _pair(one: float, other: float) -> tuple[str, str, str]:
    return milliseconds(one), milliseconds(other), f"{other / one:.2f}"


@contextmanager
def standard_json() -> Iterator[None]:
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
