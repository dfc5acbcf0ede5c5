"""Folding whole bodies: the library and plain loops over the same reads, in the forms that workers see.

Every result is held against the answer that the body was made of, in every round: a fast wrong fold ends the run.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import Any

from ssefold import GenerateDecoder
from tests.benchmarks.baselines import MsgspecLoop, json_loop, orjson_loop
from tests.benchmarks.bodies import (
    CUMULATIVE,
    INCREMENTAL,
    MIXED_0_5_5,
    MIXED_0_5_10,
    Answer,
    Form,
    blocks,
    body_of,
    make_answer,
)
from tests.benchmarks.report import Bar, Section, at_least, at_most, milliseconds
from tests.benchmarks.scale import READ, Scale
from tests.benchmarks.timing import Runs, fold_time, in_turn

OURS = "ssefold"
JSON = "json loop"
ORJSON = "orjson loop"
MSGSPEC = "msgspec loop"


def _decoder(_: Form = CUMULATIVE) -> GenerateDecoder:
    return GenerateDecoder()


_FOLDS: dict[str, tuple[str, Callable[..., Any]]] = {
    OURS: ("ssefold", _decoder),
    JSON: ("json", json_loop),
    ORJSON: ("orjson", orjson_loop),
    MSGSPEC: ("msgspec", MsgspecLoop),
}
FOLDS = tuple(_FOLDS)
"""Names of everything that folds a body; all come to the same ids, logprobs and text."""

_TEXT = f"""\
CPU ms for one answer. The contenders are what a user writes by hand: split the body into lines of bytes, parse
each payload whole, append what is new. *{JSON}*, *{ORJSON}* and *{MSGSPEC}* (typed structs) differ in the parser. None
of the three checks a counter, an end, or what a chunk repeats, and each is told which parts are deltas.
The ratios are contender / ssefold: above 1 the library takes less. *Reads of one event* is what a worker that keeps up
sees; in reads of 64 KiB, a large event comes in pieces and many small ones come together.
"""


@dataclass(frozen=True)
class Stream:
    """One body and how it is read.

    :ivar part: its tokens, as a part of the scale's ``main``.
    :ivar read: bytes of a read; None: one event.
    :ivar bars: by contender: the least ratio, and the one that would be better still.
    """

    what: str
    form: Form
    interval: int = 1
    part: float = 1
    read: int | None = None
    bars: tuple[tuple[str, float, float], ...] = ()


CUMULATIVE_STREAM, INCREMENTAL_STREAM = "cumulative", "incremental"
_WORKER = (512, 30)
"""Streams at once, and tokens a second of each, as large models give at high load."""


def _streams() -> list[Stream]:
    whole, delta = CUMULATIVE, INCREMENTAL
    return [
        Stream(CUMULATIVE_STREAM, whole, read=READ, bars=((JSON, 62, 75),)),
        Stream(CUMULATIVE_STREAM, whole),
        Stream("cumulative, a time stamp in every chunk", replace(whole, stamped=True), 1, 1, READ, ((JSON, 50, 70),)),
        Stream(CUMULATIVE_STREAM, whole, 8, read=READ, bars=((JSON, 40, 55),)),
        Stream(CUMULATIVE_STREAM, whole, 8),
        Stream(INCREMENTAL_STREAM, delta, read=READ),
        Stream(INCREMENTAL_STREAM, delta, bars=((JSON, 1.35, 1.6), (ORJSON, 0.65, 0.8))),
        Stream("incremental, a time stamp in every chunk", replace(delta, stamped=True)),
        Stream(INCREMENTAL_STREAM, delta, 8, read=READ),
        Stream(INCREMENTAL_STREAM, delta, 8, bars=((ORJSON, 0.62, 0.8),)),
        Stream("cumulative, short", whole, 1, 1 / 8),
        Stream("cumulative, short", whole, 8, 1 / 8),
        Stream("incremental, short", delta, 1, 1 / 8),
        Stream("cumulative, 5 top logprobs", replace(whole, top=5), 1, 1 / 4, READ),
        Stream("cumulative, 5 top logprobs", replace(whole, top=5), 8, 1 / 4),
        Stream("incremental, 5 top logprobs", replace(delta, top=5)),
        Stream("cumulative, no logprobs", replace(whole, rows=None), read=READ),
        Stream("cumulative, no logprobs", replace(whole, rows=None), 8),
        Stream("incremental, no logprobs", replace(delta, rows=None)),
        Stream("cumulative, no text", replace(whole, text=None), read=READ),
        Stream("incremental, no text", replace(delta, text=None)),
        Stream("0.5.5 (ids are deltas)", MIXED_0_5_5, read=READ),
        Stream("0.5.10 incremental (rows are not deltas)", MIXED_0_5_10, read=READ),
        Stream("0.5.10 incremental (rows are not deltas)", MIXED_0_5_10, 8),
    ]


def available() -> dict[str, Callable[..., Any]]:
    """Makers of the folds whose packages are installed; each may be given the form of the stream."""
    return {name: make for name, (module, make) in _FOLDS.items() if importlib.util.find_spec(module) is not None}


def result_of(folder: Any) -> tuple[list[int], list[float], str]:
    """Ids, logprobs and text that a folder holds at the end."""
    if isinstance(folder, GenerateDecoder):
        output = folder.outputs[0]
        return list(output.token_ids), [float("nan") if p is None else p for p in output.logprobs], output.text()
    return folder.ids, folder.logprobs, folder.text


def check(name: str, folder: Any, answer: Answer, form: Form = CUMULATIVE) -> None:
    """Raise unless the folder holds the answer."""
    wanted = list(answer.ids), list(answer.logprobs) if form.rows else [], answer.text if form.text else ""
    if result_of(folder) != wanted:
        raise ValueError(f"{name}: not the answer of {len(answer.ids)} tokens that the body was made of")


def times_of(stream: Stream, makers: dict[str, Callable[..., Any]], scale: Scale) -> tuple[dict[str, float], int]:
    """CPU seconds of each contender, the smallest of the rounds; and the body's size in bytes."""
    answer = make_answer(max(int(scale.main * stream.part), 8))
    size = sum(map(len, body_of(answer, interval=stream.interval, form=stream.form)))

    def reads() -> Iterable[list[bytes]]:
        return blocks(body_of(answer, interval=stream.interval, form=stream.form), stream.read)

    # A body of many MB is made anew for everybody: so its bytes have just been written, as a socket's have.
    kept = list(reads()) if size < _SMALL else None
    runs: Runs = {name: [] for name in makers}
    for turn in range(scale.rounds if size < _SMALL else scale.few_rounds):
        for name in in_turn(list(makers), turn):
            if runs[name] and runs[name][0] > _SLOW:
                continue
            folder = makers[name](stream.form)
            runs[name].append(fold_time(kept or reads(), folder))
            check(name, folder, answer, stream.form)
    return {name: min(seconds) for name, seconds in runs.items()}, size


_SMALL = 4 * 10**6
_SLOW = 1.0
"""Seconds: who takes longer is measured once."""


def measure(scale: Scale) -> list[Section]:
    """All streams, and how time grows with length."""
    rows: list[list[str]] = []
    bars: list[Bar] = []
    costs: list[list[str]] = []
    for stream in _streams():
        if scale.barred_only and not stream.bars:
            continue
        makers = available()
        if scale.barred_only and stream.read is not None:
            makers = {name: makers[name] for name in (OURS, *(name for name, _, _ in stream.bars)) if name in makers}
        found, size = times_of(stream, makers, scale)
        rows.append(_row(stream, found, size, scale))
        if stream.what in (CUMULATIVE_STREAM, INCREMENTAL_STREAM) and stream.read is None:
            costs.append(_cost(stream, found, size, scale))
        reads = "one event" if stream.read is None else "64 KiB"
        what = f"{stream.what}, {_every(stream.interval)}, reads of {reads}"
        bars += [
            at_least(f"{what}: {name} / ours", bar, found[name] / found[OURS], stretch=stretch)
            for name, bar, stretch in stream.bars
            if name in found
        ]
    header = ["answer", "reads", "MB", *FOLDS, "json", "orjson", "msgspec", "\u00b5s a token"]
    return [
        Section(COSTS, _COSTS_TEXT.format(tokens=f"{scale.main:,}"), _COSTS_HEADER, costs),
        Section("Folding a stream", _TEXT, header, rows, bars),
        _growth(scale),
    ]


COSTS = "What a token costs"
"""The table that docs/performance.md shows, too."""
_COSTS_TEXT = f"""\
CPU \u00b5s a token, for an answer of {{tokens}} tokens with logprobs in reads of one event. *MB* is the size of the
body. The last column is the share of one core that {_WORKER[0]} such streams take with ssefold at {_WORKER[1]} tokens a
second each, without reading the sockets.
"""
_COSTS_HEADER = ["stream", "MB", OURS, ORJSON, JSON, f"{_WORKER[0]} streams, of one core"]


def _cost(stream: Stream, found: dict[str, float], size: int, scale: Scale) -> list[str]:
    costs = {name: seconds / scale.main * 1e6 for name, seconds in found.items()}
    share = costs[OURS] * _WORKER[0] * _WORKER[1] / 1e6
    return [
        f"{stream.what}, {_every(stream.interval)}",
        f"{size / 1e6:,.1f}",
        *(f"{costs[name]:,.1f}" if name in costs else "-" for name in (OURS, ORJSON, JSON)),
        f"{share:.1%}",
    ]


def _row(stream: Stream, found: dict[str, float], size: int, scale: Scale) -> list[str]:
    tokens = max(int(scale.main * stream.part), 8)
    return [
        f"{stream.what}, {tokens:,} tokens, {_every(stream.interval)}",
        "one event" if stream.read is None else "64 KiB",
        f"{size / 1e6:,.1f}",
        *(milliseconds(found[name]) if name in found else "-" for name in FOLDS),
        *(f"{found[name] / found[OURS]:.2f}" if name in found else "-" for name in FOLDS[1:]),
        f"{found[OURS] / tokens * 1e6:.1f}",
    ]


def _growth(scale: Scale) -> Section:
    """Both modes at several lengths, each twice the one before; the lengths take turns."""
    rows: list[list[str]] = []
    bars: list[Bar] = []
    for what, form in (("cumulative", CUMULATIVE),) if scale.barred_only else _MODES:
        streams = [Stream(what, form, part=part, read=READ) for part in _PARTS if part >= 1 or not scale.barred_only]
        runs: dict[float, list[float]] = {stream.part: [] for stream in streams}
        once = replace(scale, rounds=1, few_rounds=1)
        for _ in range(scale.few_rounds):
            for stream in streams:
                runs[stream.part].append(times_of(stream, {OURS: _decoder}, once)[0][OURS])
        found = {part: min(seconds) for part, seconds in runs.items()}
        for part, seconds in found.items():
            growth = f"{seconds / found[part / 2]:.2f}" if part / 2 in found else "-"
            tokens = int(scale.main * part)
            rows.append([f"{what}, {tokens:,} tokens", milliseconds(seconds), growth, f"{seconds / tokens * 1e6:.1f}"])
        if form is CUMULATIVE:
            lengths = f"{2 * scale.main:,} over {scale.main:,} tokens"
            bars.append(at_most(f"cumulative, every token: ours, {lengths}", 4.0, found[2] / found[1]))
    return Section(
        "Twice the tokens",
        "CPU ms of ssefold alone, every token, reads of 64 KiB, and in terms of half as many tokens: a cumulative body"
        " of twice the tokens has four times the bytes.",
        ["answer", "ms", "ratio", "\u00b5s a token"],
        rows,
        bars,
    )


_MODES = (("cumulative", CUMULATIVE), ("incremental", INCREMENTAL))
_PARTS = (1 / 8, 1 / 4, 1 / 2, 1, 2)


def _every(interval: int) -> str:
    return "every token" if interval == 1 else f"every {interval} tokens"
