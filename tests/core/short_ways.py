"""Short ways for small bodies: the sizes below which they are not worth it, patched.

For tests and fuzz targets, which fold many small bodies; knows no stream.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import ssefold.decoder
import ssefold.fast.runs
import ssefold.fast.suffix
import ssefold.outputs

THRESHOLDS = ((ssefold.outputs, "SMALLEST"), (ssefold.decoder, "_WORTH_A_RUN"), (ssefold.decoder, "_FIRST_LOOK"),
              (ssefold.fast.runs, "SHORTEST"), (ssefold.fast.suffix, "_SMALLEST_CONSTANT"))  # fmt: skip
DEFAULT = (1536, 4096, 2048, 6, 256)
EAGER = (0, 1, 200, 2, 2)
BETWEEN = (700, 600, 300, 3, 40)


@contextmanager
def short_ways(values: Sequence[int]) -> Iterator[None]:
    """Take the short ways from these sizes on."""
    before = [getattr(module, name) for module, name in THRESHOLDS]
    try:
        for (module, name), value in zip(THRESHOLDS, values, strict=True):
            setattr(module, name, value)
        yield
    finally:
        for (module, name), value in zip(THRESHOLDS, before, strict=True):
            setattr(module, name, value)
