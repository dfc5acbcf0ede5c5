"""Memory, by tracemalloc: what an output keeps per token, what folding needs at most, and a large replay array.

The reads are copied while memory is traced, as a client's own reads would be, so that a read that is kept counts.
"""

from __future__ import annotations

import gc
import tracemalloc
from base64 import b64encode
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from ssefold import GenerateDecoder
from tests.benchmarks.baselines import TunedFold, json_baseline
from tests.benchmarks.bodies import cut, events, make_answer
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
    """Per token in both modes, and the terminal chunk with a large replay array."""
    rows: list[list[str]] = []
    tokens = scale.main
    answer = make_answer(tokens)
    for incremental in (False, True):
        for length, makers in ((tokens, _MAKERS[:1]), (tokens // 4, _MAKERS)):
            part = make_answer(length)
            counts = range(1, length + 1)
            body = list(events(part, counts, incremental=incremental))
            largest = max(map(len, body))
            for name, make in makers:
                use = use_of(make, body)
                rows.append(
                    [
                        f"{'incremental' if incremental else 'cumulative'}, {length:,} tokens",
                        name,
                        f"{use.before_end:,}",
                        f"{use.after_end:,}",
                        f"{use.after_end / length:.1f}",
                        f"{use.peak:,}",
                        f"{use.peak / largest:.1f}",
                    ]
                )
    return [
        Section(
            "Memory",
            "Bytes by tracemalloc. *Held* is with everything that `feed` returned dropped, before the terminal event and"
            " after it (the text included); *peak* is the most at any time, also in terms of the largest event.",
            ["stream", "", "held before the end", "held after it", "per token", "peak", "peak / largest event"],
            rows,
        ),
        _replay(scale, answer.ids[:64]),
    ]


def _replay(scale: Scale, ids: Iterable[int]) -> Section:
    answer = make_answer(len(list(ids)))
    text = b64encode(bytes(scale.replay * 3 // 4)).decode()
    body = list(events(answer, [1, len(answer.ids)], incremental=True, routed_experts=text))
    rows: list[list[str]] = []
    for name, make in _MAKERS:
        use = use_of(make, body)
        rows.append([name, f"{use.peak / 2**20:.1f}", f"{use.peak / len(text):.2f}", f"{use.after_end / 2**20:.1f}", f"{use.after_end / len(text):.2f}"])
    return Section(
        "Memory: a terminal chunk with routed experts",
        f"The base64 text of the array is {len(text) / 2**20:.1f} MiB, the array in it {len(text) * 3 / 4 / 2**20:.2f} MiB."
        " MiB, and in terms of the text. The library's figures hold the decoded array, the baselines' do not.",
        ["", "peak", "in texts", "held after it", "in texts"],
        rows,
    )


_MAKERS: list[tuple[str, Callable[[], Any]]] = [
    ("ssefold", GenerateDecoder),
    ("json baseline", json_baseline),
    ("tuned orjson", TunedFold),
]


def _feed_all(feeder: Feeder, reads: Iterable[bytes]) -> None:
    for data in reads:
        feeder.feed(data)


def _feed_copies(feeder: Feeder, reads: Iterable[bytes]) -> None:
    for data in reads:
        feeder.feed(bytes(memoryview(data)))
