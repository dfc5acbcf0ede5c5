"""Thin carriers of bytes from one HTTP client into the core; each module needs its own extra, this one needs none.

They own what the core must not know: sockets, timeouts, retries and cancellation.  ``httpx``, ``aiohttp`` and ``anyio``
each have ``generate`` and ``collect``; ``testing`` is a server to try them on.
"""

from __future__ import annotations

from ._engine import (
    FoldOptions,
    GenerateOptions,
    GenerateStream,
    StreamMetrics,
    StreamResult,
    SyncGenerateStream,
    TransportError,
    UpdateStream,
    gather,
)

__all__ = [
    "FoldOptions",
    "GenerateOptions",
    "GenerateStream",
    "StreamMetrics",
    "StreamResult",
    "SyncGenerateStream",
    "TransportError",
    "UpdateStream",
    "gather",
]
