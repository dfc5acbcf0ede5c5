"""Pure state machines that fold SGLang's ``/generate`` stream: bytes in, immutable updates out.

Data flows one way: bytes -> events (:class:`SSEParser`) -> chunks -> updates (:class:`GenerateDecoder`, one
:class:`Accumulator` per output).  No sockets, no clocks, no async, no third-party package (orjson is used if present).
"""

from __future__ import annotations

from typing import Any

from .accumulator import Accumulator
from .decoder import GenerateDecoder
from .errors import (
    EventTooLargeError,
    IncompleteStreamError,
    PayloadError,
    ProtocolError,
    ReplayError,
    ServerError,
    SnapshotError,
    StreamError,
)
from .fold.finish import FinishReason
from .replay import ReplayArray, ReplayRows, TopPReplay
from .snapshot import Snapshot
from .sse import ServerSentEvent, SSEParser, encode_event
from .update import Update

__all__ = [
    "Accumulator",
    "EventTooLargeError",
    "FinishReason",
    "GenerateDecoder",
    "IncompleteStreamError",
    "PayloadError",
    "ProtocolError",
    "ReplayArray",
    "ReplayError",
    "ReplayRows",
    "SSEParser",
    "ServerError",
    "ServerSentEvent",
    "Snapshot",
    "SnapshotError",
    "StreamError",
    "TopPReplay",
    "Update",
    "encode_event",
]


def __getattr__(name: str) -> Any:
    # Lazy, so that importing the library does not read package metadata from disk.
    if name == "__version__":
        from importlib.metadata import version

        return version("ssefold")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
