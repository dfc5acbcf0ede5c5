"""Replay arrays: int32 buffers, top-p rows, routed experts."""

from __future__ import annotations

from .arrays import ReplayArray, ReplayRows, TopPReplay
from .int32 import decode_int32
from .top_p_rows import TopPRows

__all__ = ["ReplayArray", "ReplayRows", "TopPReplay", "TopPRows", "decode_int32"]
