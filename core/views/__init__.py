"""Read-only views: of JSON-like data (``frozen``), and of arrays that grow while an output streams (``numbers``)."""

from __future__ import annotations

from .frozen import MAX_DEPTH, FrozenDict, FrozenList, copy_json, freeze, thaw
from .numbers import Floats, Ints, none_for_nan

__all__ = [
    "MAX_DEPTH",
    "Floats",
    "FrozenDict",
    "FrozenList",
    "Ints",
    "copy_json",
    "freeze",
    "none_for_nan",
    "thaw",
]
