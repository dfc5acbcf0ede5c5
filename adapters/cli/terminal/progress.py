"""How far the reading of a large file is: a line on standard error that moves on a terminal and then goes away.

Knows counts of bytes; knows no files.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from time import monotonic

_FIRST_AFTER = 0.5
_EVERY = 0.1
_MEGABYTE = 1e6


@contextmanager
def reading_line(name: str, total: int | None) -> Iterator[Callable[[int], None]]:
    """Call what it gives with the number of bytes read so far; ``total`` is None if unknown."""
    if not sys.stderr.isatty():
        yield _nothing
        return
    due = monotonic() + _FIRST_AFTER
    shown = False

    def tell(done: int) -> None:
        nonlocal due, shown
        if monotonic() < due:
            return
        due = monotonic() + _EVERY
        shown = True
        of = f" of {total / _MEGABYTE:,.0f} MB, {done / max(total, 1):.0%}" if total is not None else " MB"
        sys.stderr.write(f"\r\x1b[K{name}: {done / _MEGABYTE:,.0f}{of}")
        sys.stderr.flush()

    try:
        yield tell
    finally:
        if shown:
            sys.stderr.write("\r\x1b[K")
            sys.stderr.flush()


def _nothing(_: int) -> None:
    """Nobody watches."""
