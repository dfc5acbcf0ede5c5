"""Folding under other conditions: without the fast path, without orjson, several outputs, many decoders in turn."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from ssefold import GenerateDecoder
from tests.benchmarks.baselines import json_loop, orjson_loop
from tests.benchmarks.bodies import CUMULATIVE, INCREMENTAL, Form, body_of, cut, interleaved, make_answer
from tests.benchmarks.fold_speed import JSON, OURS, Stream, available, times_of
from tests.benchmarks.report import Section, milliseconds
from tests.benchmarks.scale import READ, Scale
from tests.benchmarks.timing import Feeder, race

_OUTPUTS = 8
_STREAMS = (
    Stream("cumulative, every 8 tokens", CUMULATIVE, 8, read=READ),
    Stream("incremental, every token", INCREMENTAL),
)
_TURNS = (("cumulative", CUMULATIVE, 8, 256), ("incremental", INCREMENTAL, 1, 64))
"""Mode, form, interval and tokens of the decoders that take turns."""


def measure(scale: Scale) -> list[Section]:
    """A table for each condition."""
    return [_without_fast_path(scale), _without_orjson(scale), _several(scale), _in_turn(scale)]


def _without_fast_path(scale: Scale) -> Section:
    rows: list[list[str]] = []
    for stream in _STREAMS:
        makers: dict[str, Callable[..., Any]] = {OURS: available()[OURS], "off": _full_path, JSON: json_loop}
        times, _ = times_of(stream, makers, scale)
        rows.append([f"{stream.what}, {scale.main:,} tokens", *map(milliseconds, times.values()), _ratio(times, "off")])
    return Section(
        "Without the fast path",
        "`GenerateDecoder(fast_path=False)` parses and plans every payload in full. CPU ms, and in terms of ssefold as"
        " it is.",
        ["answer", OURS, "fast_path=False", JSON, "ratio"],
        rows,
    )


def _full_path(_: Form) -> GenerateDecoder:
    return GenerateDecoder(fast_path=False)


def _without_orjson(scale: Scale) -> Section:
    """In a process of its own, where orjson cannot be imported."""
    asked = json.dumps({"main": scale.main, "rounds": scale.rounds, "few_rounds": scale.few_rounds})
    code = f"import sys; sys.modules['orjson'] = None; from tests.benchmarks import variants; variants.child('{asked}')"
    absent: list[dict[str, float]] = json.loads(
        subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True).stdout
    )
    rows: list[list[str]] = []
    for stream, times in zip(_STREAMS, absent, strict=True):
        rows.append(
            [
                f"{stream.what}, {scale.main:,} tokens",
                *map(milliseconds, times.values()),
                f"{times[JSON] / times[OURS]:.2f}",
            ]
        )
    return Section(
        "Without orjson",
        f"Where orjson is not installed the library uses the standard library's json. CPU ms, and {JSON} / ssefold.",
        ["answer", OURS, JSON, "ratio"],
        rows,
    )


def child(asked: str) -> None:
    """Measure and print the times, in the process without orjson."""
    from dataclasses import replace

    from tests.benchmarks.scale import FULL

    scale = replace(FULL, **json.loads(asked))
    makers = {OURS: available()[OURS], JSON: json_loop}
    sys.stdout.write(json.dumps([times_of(stream, makers, scale)[0] for stream in _STREAMS]))


def _several(scale: Scale) -> Section:
    tokens = scale.main // 4
    answers = [make_answer(tokens, seed=seed) for seed in range(_OUTPUTS)]
    rows: list[list[str]] = []
    for what, form in (("cumulative", CUMULATIVE), ("incremental", INCREMENTAL)):
        single = cut(b"".join(body_of(answers[0], form=form)), READ)
        several = cut(b"".join(interleaved(answers, form=form)), READ)
        contenders = {"single": partial(_feed_all, single), "several": partial(_feed_all, several)}
        runs = race(contenders, scale.few_rounds)
        times = {"single": min(runs["single"]), "several": min(runs["several"]) / _OUTPUTS}
        rows.append(
            [f"{what}, {tokens:,} tokens each", *map(milliseconds, times.values()), _ratio(times, "several", "single")]
        )
    return Section(
        "Several outputs in one response",
        f"{_OUTPUTS} outputs (`n = {_OUTPUTS}`) take turns in one response, every token, reads of 64 KiB, next to a"
        " response with one output: CPU ms an output.",
        ["answer", "alone", f"one of {_OUTPUTS}", "ratio"],
        rows,
    )


def _feed_all(reads: Sequence[bytes]) -> GenerateDecoder:
    decoder = GenerateDecoder()
    for data in reads:
        decoder.feed(data)
    decoder.close()
    return decoder


def _in_turn(scale: Scale) -> Section:
    count, _ = scale.streams
    rows: list[list[str]] = []
    for what, form, interval, most in _TURNS:
        tokens = min(most, scale.main)
        makers: dict[str, Callable[[], Feeder]] = {OURS: GenerateDecoder, "orjson loop": partial(orjson_loop, form)}
        # A few answers stand for all: what one decoder reads was last seen many decoders ago.
        bodies = [list(body_of(make_answer(tokens, seed=seed), interval=interval, form=form)) for seed in range(16)]
        turns = race({name: partial(_turns, make, bodies, count) for name, make in makers.items()}, scale.few_rounds)
        alone = race({OURS: partial(_alone, GenerateDecoder, bodies, count)}, scale.few_rounds)
        times = {"alone": min(alone[OURS]) / count, "turns": min(turns[OURS]) / count}
        loop = min(turns["orjson loop"]) / count
        rows.append(
            [
                f"{what}, {tokens:,} tokens, every {interval}",
                *map(milliseconds, times.values()),
                _ratio(times, "turns", "alone"),
                milliseconds(loop),
                f"{loop / times['turns']:.2f}",
            ]
        )
    return Section(
        "Many decoders in turn",
        f"{count} decoders, one event each in turn, next to one after the other: CPU ms an answer. A worker with"
        f" {count} streams uses the caches in this way. The last ratio is orjson loop / ssefold.",
        ["answer", "one after the other", "in turn", "ratio", "orjson loop, in turn", "orjson"],
        rows,
    )


def _turns(make: Callable[[], Feeder], bodies: Sequence[list[bytes]], count: int) -> list[Feeder]:
    feeders = [make() for _ in range(count)]
    for place in range(len(bodies[0])):
        for at, feeder in enumerate(feeders):
            feeder.feed(bodies[at % len(bodies)][place])
    for feeder in feeders:
        feeder.close()
    return feeders


def _alone(make: Callable[[], Feeder], bodies: Sequence[list[bytes]], count: int) -> None:
    for at in range(count):
        feeder = make()
        for event in bodies[at % len(bodies)]:
            feeder.feed(event)
        feeder.close()


def _ratio(times: dict[str, float], name: str, other: str = OURS) -> str:
    return f"{times[name] / times[other]:.2f}"
