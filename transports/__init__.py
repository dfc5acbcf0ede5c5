"""One module per HTTP client: they move bytes into the core.  Each needs its own extra, this one needs none.

They handle what the core must not know: sockets, timeouts, retries and cancellation.  ``httpx``, ``aiohttp`` and
``anyio`` each have ``generate`` and ``collect``; ``testing`` is a fake server.
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
