"""``python -m tests.benchmarks``, which ``make bench`` calls: measure everything, print the bars, write the page."""

from __future__ import annotations

import gc
import sys
from collections.abc import Callable
from pathlib import Path
from time import monotonic

from tests.benchmarks import fold_speed, growth_hostile, live, many_streams, memory, sse_speed, variants
from tests.benchmarks.peers import PEERS, parser_of
from tests.benchmarks.report import Section, bars_table, load_average, machine, page
from tests.benchmarks.scale import FULL, Scale

PAGE = Path(__file__).resolve().parents[2] / "docs" / "benchmarks.md"
_PARTS: tuple[Callable[[Scale], list[Section]], ...] = (
    fold_speed.measure,
    variants.measure,
    live.measure,
    many_streams.measure,
    sse_speed.measure,
    memory.measure,
    growth_hostile.measure,
)


def main(scale: Scale = FULL, path: Path = PAGE) -> list[Section]:
    """Measure at ``scale`` and write the page to ``path``."""
    for peer in PEERS:
        parser_of(peer)
    # What was imported stays; the garbage collector must not walk it in everybody's time.
    gc.collect()
    gc.freeze()
    sections: list[Section] = []
    loads = [load_average()]
    start = monotonic()
    try:
        for measure in _PARTS:
            sections += measure(scale)
            loads.append(load_average())
            sys.stderr.write(f"{monotonic() - start:6.0f} s: {measure.__module__.rpartition('.')[2]} measured\n")
    finally:
        gc.unfreeze()
    path.write_text(page(sections, machine(loads)), "utf-8")
    sys.stdout.write(bars_table(sections))
    return sections


if __name__ == "__main__":
    main()
