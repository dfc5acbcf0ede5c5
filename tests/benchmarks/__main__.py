"""``python -m tests.benchmarks``, which ``make bench`` calls: measure everything, print the bars, write the page.

``python -m tests.benchmarks fold sse`` prints the tables of these parts alone and writes no page; with ``--quick`` only
what bears on a bar is measured, in fewer rounds.
"""

from __future__ import annotations

import argparse
import gc
import sys
from collections.abc import Callable
from pathlib import Path
from time import monotonic

from tests.benchmarks import command as shell
from tests.benchmarks import fold_speed, growth_hostile, live, many_streams, memory, sse_speed, variants
from tests.benchmarks.peers import PEERS, parser_of
from tests.benchmarks.report import Section, bars_table, load_average, machine, page, table, with_table
from tests.benchmarks.scale import FULL, QUICK, Scale

DOCS = Path(__file__).resolve().parents[2] / "docs"
PARTS: dict[str, Callable[[Scale], list[Section]]] = {
    "fold": fold_speed.measure,
    "variants": variants.measure,
    "live": live.measure,
    "streams": many_streams.measure,
    "sse": sse_speed.measure,
    "memory": memory.measure,
    "hostile": growth_hostile.measure,
    "command": shell.measure,
}


def main(scale: Scale = FULL, docs: Path = DOCS) -> list[Section]:
    """Measure everything at ``scale``; write benchmarks.md in the folder ``docs``, and the table in performance.md."""
    sections, loads = run(tuple(PARTS), scale)
    (docs / "benchmarks.md").write_text(page(sections, machine(loads)), "utf-8")
    performance = docs / "performance.md"
    [costs] = [section for section in sections if section.title == fold_speed.COSTS]
    performance.write_text(with_table(performance.read_text("utf-8"), costs), "utf-8")
    sys.stdout.write(bars_table(sections))
    return sections


def run(parts: tuple[str, ...], scale: Scale) -> tuple[list[Section], list[float]]:
    """The sections of these parts, and the load averages that were seen."""
    if "sse" in parts:
        for peer in PEERS:
            parser_of(peer)
    # What was imported stays; the garbage collector must not walk it in everybody's time.
    gc.collect()
    gc.freeze()
    sections: list[Section] = []
    loads = [load_average()]
    start = monotonic()
    try:
        for part in parts:
            sections += PARTS[part](scale)
            loads.append(load_average())
            sys.stderr.write(f"{monotonic() - start:6.0f} s: {part} measured\n")
    finally:
        gc.unfreeze()
    return sections, loads


def command(arguments: list[str]) -> None:
    """The command line."""
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks", description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("parts", nargs="*", help=f"of {', '.join(PARTS)}; none: all, and the page is written")
    parser.add_argument("--quick", action="store_true", help="only what bears on a bar, in fewer rounds; no page")
    asked = parser.parse_args(arguments)
    if unknown := set(asked.parts) - set(PARTS):
        parser.error(f"no such part: {', '.join(sorted(unknown))}")
    scale = QUICK if asked.quick else FULL
    if not asked.parts and not asked.quick:
        main(scale)
        return
    sections, _ = run(tuple(asked.parts) or tuple(PARTS), scale)
    for section in sections:
        sys.stdout.write(f"\n{section.title}\n\n{table(section.header, section.rows)}")
    sys.stdout.write(f"\n{bars_table(sections)}")


if __name__ == "__main__":
    command(sys.argv[1:])
