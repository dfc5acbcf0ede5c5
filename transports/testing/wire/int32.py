"""Replay arrays as they travel: base64 of little-endian int32 in C order, without a shape."""

from __future__ import annotations

import base64
import struct
from itertools import chain
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from ..script import Routing


def int32_base64(values: Iterable[int]) -> str:
    """Any int32 numbers."""
    numbers = tuple(values)
    return base64.b64encode(struct.pack(f"<{len(numbers)}i", *numbers)).decode("ascii")


def rows_base64(rows: Sequence[Sequence[int]]) -> tuple[str, str]:
    """Rows of any length: the numbers of all, and the offsets where each row starts, with the end."""
    offsets = [0]
    for row in rows:
        offsets.append(offsets[-1] + len(row))
    return int32_base64(chain.from_iterable(rows)), int32_base64(offsets)


def routing_base64(routing: Routing, *, crop: bool) -> str:
    """A replay array's rows, from ``start_len`` on where the server crops (clamped to the rows there are)."""
    return int32_base64(chain.from_iterable(routing.rows[routing.start_len if crop else 0 :]))
