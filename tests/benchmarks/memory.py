"""Memory, by tracemalloc: what an output keeps per token, what folding needs at most, and a large replay array.

The reads are copied while memory is traced, as a client's own reads would be, so that a read that is kept counts.
"""

from __future__ import annotations

import gc
import tracemalloc
from base64 import b64encode
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial
from typing import Any

from ssefold import GenerateDecoder
from tests.benchmarks.baselines import json_loop, orjson_loop
from tests.benchmarks.bodies import CUMULATIVE, INCREMENTAL, Form, cut, events, make_answer
from tests.benchmarks.report import Section
from tests.benchmarks.scale import READ, Scale
from tests.benchmarks.timing import Feeder


@dataclass(frozen=True)
class Use:
    """Bytes above what was in use before the feeder was made.

    :ivar peak: at most, while it was fed.
    :ivar before_end: held when all but the last event had been fed.
    :ivar after_end: held when the body had ended.
    """

    peak: int
    before_end: int
    after_end: int


def use_of(make: Callable[[], Feeder], body: list[bytes], read: int = READ) -> Use:
    """Feed all events of ``body``, the last one separately, and see what is held.

    What ``feed`` returns is dropped at once.
    """
    first, last = cut(b"".join(body[:-1]), read), cut(body[-1], read)
    _feed_all(make(), [*first, *last])  # whatever is made once in a process is made now
    gc.collect()
    tracemalloc.start()
    try:
        base, _ = tracemalloc.get_traced_memory()
        feeder = make()
        _feed_copies(feeder, first)
        gc.collect()
        before_end = tracemalloc.get_traced_memory()[0] - base
        _feed_copies(feeder, last)
        feeder.close()
        gc.collect()
        after_end, peak = tracemalloc.get_traced_memory()
        return Use(peak - base, before_end, after_end - base)
    finally:
        tracemalloc.stop()


def measure(scale: Scale) -> list[Section]:
    """Per token in both modes, and a terminal chunk with a large replay array."""
    return [_per_token(scale), _replay(scale)]


def _per_token(scale: Scale) -> Section:
    rows: list[list[str]] = []
    for what, form in (("cumulative", CUMULATIVE), ("incremental", INCREMENTAL)):
        for length, makers in ((scale.main, _MAKERS[:1]), (scale.main // 4, _MAKERS)):
            body = list(events(make_answer(length), range(1, length + 1), form=form))
            for name, make in makers:
                use = use_of(partial(make, form), body)
                rows.append(
                    [
                        f"{what}, {length:,} tokens",
                        name,
                        f"{len(body[-1]):,}",
                        f"{use.before_end:,}",
                        f"{use.after_end:,}",
                        f"{use.after_end / length:.1f}",
                        f"{use.peak:,}",
                    ]
                )
    return Section(
        "Memory",
        "Bytes by tracemalloc. *Held* is with everything that `feed` returned dropped, before the terminal event and at"
        " the end, the text included; *peak* is the most at any time, with what one `feed` returned and the scratch of"
        " the JSON parser.",
        ["stream", "", "last event", "held before it", "held at the end", "per token", "peak"],
        rows,
    )


def _replay(scale: Scale) -> Section:
    text = b64encode(bytes(scale.replay * 3 // 4)).decode()
    body = list(events(make_answer(64), [1, 64], form=INCREMENTAL, routed_experts=text))
    rows = [[name, *_in_texts(use_of(partial(make, INCREMENTAL), body), text)] for name, make in _MAKERS]
    return Section(
        "Memory: a terminal chunk with routed experts",
        f"The base64 text of the array is {len(text) / 2**20:.1f} MiB, the array in it"
        f" {len(text) * 3 / 4 / 2**20:.2f} MiB. MiB, and in brackets in terms of the text. The peak is what was asked"
        " for: orjson asks for twelve times the length of its input as scratch, and writes to next to none of it. The"
        " library also checks and holds the decoded array; the baselines leave the text behind.",
        ["", "held at the end", "peak"],
        rows,
    )


def _in_texts(use: Use, text: str) -> list[str]:
    return [f"{value / 2**20:.1f} ({value / len(text):.2f})" for value in (use.after_end, use.peak)]


_MAKERS: list[tuple[str, Callable[[Form], Any]]] = [
    ("ssefold", lambda _: GenerateDecoder()),
    ("json loop", json_loop),
    ("orjson loop", orjson_loop),
]


def _feed_all(feeder: Feeder, reads: Iterable[bytes]) -> None:
    for data in reads:
        feeder.feed(data)


def _feed_copies(feeder: Feeder, reads: Iterable[bytes]) -> None:
    for data in reads:
        feeder.feed(bytes(memoryview(data)))
