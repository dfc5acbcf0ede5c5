"""Folding whole bodies: the library and the baselines over the same reads, and how time grows with length.

Every result is held against the answer that the body was made of, in every round: a fast wrong fold ends the run.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ssefold import GenerateDecoder
from tests.benchmarks.baselines import (
    BareBytes,
    TunedFold,
    json_baseline,
    msgspec_baseline,
    orjson_baseline,
)
from tests.benchmarks.bodies import Answer, blocks, body_of, make_answer
from tests.benchmarks.report import Section, at_least, at_most, milliseconds
from tests.benchmarks.scale import READ, Scale
from tests.benchmarks.timing import Runs, fold_time, in_turn, median

OURS = "ssefold"
JSON = "json baseline"
ORJSON = "orjson baseline"
MSGSPEC = "msgspec baseline"
TUNED = "tuned orjson"
BARE = "bare bytes"

_FOLDS: dict[str, tuple[str, Callable[[], Any]]] = {
    OURS: ("ssefold", GenerateDecoder),
    JSON: ("json", json_baseline),
    ORJSON: ("orjson", orjson_baseline),
    MSGSPEC: ("msgspec", msgspec_baseline),
    TUNED: ("orjson", TunedFold),
}
FOLDS = tuple(_FOLDS)
"""Names of everything that folds a body; all come to the same ids, logprobs and text."""

_TEXT = """\
One answer, all its tokens with logprobs, in reads of 64 KiB. *{json}* is the plain client: `aiter_lines` semantics,
`json.loads`, and an accumulator that takes ids and logprobs out of every row that comes, holds their number against
the counter, and appends what is new to lists. *{orjson}* and *{msgspec}* (typed structs) differ in the parser only.
*{tuned}* is the least work that still parses every payload: lines stay bytes, and old rows are not touched. None of the
four compares what a chunk repeats with what it said before. Times in ms; the ratios are baseline / ssefold. Baselines
were left out (-) where they would take minutes.
"""


@dataclass(frozen=True)
class Shape:
    """One body."""

    tokens: int
    interval: int
    incremental: bool

    @property
    def about_bytes(self) -> int:
        """Its size, roughly."""
        count = self.tokens // self.interval + 1
        return 46 * self.tokens + 400 * count if self.incremental else count * (400 + 23 * self.tokens)


def available() -> dict[str, Callable[[], Any]]:
    """Makers of the folds whose packages are installed."""
    return {name: make for name, (module, make) in _FOLDS.items() if importlib.util.find_spec(module) is not None}


def result_of(folder: Any) -> tuple[list[int], list[float], str]:
    """Ids, logprobs and text that a folder holds at the end."""
    if isinstance(folder, GenerateDecoder):
        output = folder.outputs[0]
        return list(output.token_ids), [float("nan") if p is None else p for p in output.logprobs], output.text()
    return folder.ids, folder.logprobs, folder.text


def check(name: str, folder: Any, answer: Answer) -> None:
    """Raise unless the folder holds the answer."""
    if result_of(folder) != (list(answer.ids), list(answer.logprobs), answer.text):
        raise ValueError(f"{name}: not the answer of {len(answer.ids)} tokens that the body was made of")


def run(shape: Shape, names: Sequence[str], runs: Runs, turn: int, read: int | None = READ) -> int:
    """Fold one body once by each of ``names``, append the seconds to ``runs``, and return the body's size in bytes."""
    answer = make_answer(shape.tokens)
    makers = {**available(), BARE: BareBytes}
    size = 0

    def body() -> Iterator[list[bytes]]:
        nonlocal size
        size = 0
        for reads in blocks(body_of(answer, interval=shape.interval, incremental=shape.incremental), read):
            size += sum(map(len, reads))
            yield reads

    for name in in_turn([name for name in names if name in makers], turn):
        folder = makers[name]()
        runs.setdefault(name, []).append(fold_time(body(), folder))
        if name != BARE:
            check(name, folder, answer)
    return size


def measure(scale: Scale) -> list[Section]:
    """Fold all shapes, the rounds outermost, so that a length and its double are measured at about the same time."""
    shapes = [
        Shape(tokens, interval, incremental)
        for incremental in (False, True)
        for interval in scale.intervals
        for tokens in scale.tokens
    ]
    runs: dict[Shape, Runs] = {shape: {} for shape in shapes}
    sizes: dict[Shape, int] = {}
    for turn in range(scale.rounds):
        for shape in shapes:
            if turn < _rounds(shape, scale):
                sizes[shape] = run(shape, _names(shape, scale), runs[shape], turn)
    medians = {shape: {name: median(seconds) for name, seconds in found.items()} for shape, found in runs.items()}
    return [
        _section(scale, [shape for shape in shapes if shape.incremental == incremental], sizes, medians)
        for incremental in (False, True)
    ]


_QUICK = 4 * 10**6


def _rounds(shape: Shape, scale: Scale) -> int:
    if shape.about_bytes <= _QUICK:
        return scale.rounds
    if shape.about_bytes > scale.most_for_rounds:
        return 1
    return (
        scale.main_rounds if shape.interval == 1 and shape.tokens in (scale.main, 2 * scale.main) else scale.few_rounds
    )


def _names(shape: Shape, scale: Scale) -> list[str]:
    is_main = shape.tokens == scale.main and shape.interval == 1
    names = list(FOLDS) if is_main or shape.about_bytes <= scale.most_for_baselines else [OURS]
    return names if shape.incremental else [*names, BARE]


def _section(
    scale: Scale, shapes: list[Shape], sizes: Mapping[Shape, int], medians: Mapping[Shape, Mapping[str, float]]
) -> Section:
    incremental = shapes[0].incremental
    rows: list[list[str]] = []
    for shape in shapes:
        found = medians[shape]
        half = Shape(shape.tokens // 2, shape.interval, incremental)
        growth = f"{found[OURS] / medians[half][OURS]:.2f}" if half in medians else "-"
        cells = [milliseconds(found[name]) if name in found else "-" for name in FOLDS]
        ratios = [
            f"{found[name] / found[OURS]:.1f}" if name in found else "-" for name in (JSON, ORJSON, MSGSPEC, TUNED)
        ]
        rows.append(
            [f"{shape.tokens:,} tokens, every {shape.interval}", f"{sizes[shape] / 1e6:,.1f}", *cells, *ratios, growth]
        )
    main = medians[Shape(scale.main, 1, incremental)]
    if incremental:
        what = f"incremental, {scale.main:,} events: baseline json / ours"
        bars = [at_least(what, 2, main[JSON] / main[OURS])]
    else:
        what = f"fold {scale.main:,} tokens, cumulative, interval 1, 64 KiB reads: "
        double = medians[Shape(2 * scale.main, 1, incremental)]
        bars = [
            at_least(f"{what}baseline json / ours", 50, main[JSON] / main[OURS]),
            at_least("the same against the orjson baseline / ours", 20, main.get(ORJSON, 0.0) / main[OURS]),
            at_most(f"ours, {2 * scale.main:,} tokens over {scale.main:,}", 4.5, double[OURS] / main[OURS]),
            at_least(
                "ours: bytes per second of a cumulative stream over one-byte `find` framing, one copy and one compare "
                "of the same bytes", 0.4, main[BARE] / main[OURS],
            ),
        ]  # fmt: skip
    return Section(
        f"Folding: {'incremental' if incremental else 'cumulative'} streams",
        _TEXT.format(json=JSON, orjson=ORJSON, msgspec=MSGSPEC, tuned=TUNED),
        ["answer", "MB", OURS, JSON, ORJSON, MSGSPEC, TUNED, "json", "orjson", "msgspec", "tuned", "time / half of it"],
        rows,
        bars,
    )
