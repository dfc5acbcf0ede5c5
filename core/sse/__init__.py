"""Server-sent events: bytes in, events out.  Nothing here knows what a payload means, or that SGLang exists."""

from __future__ import annotations

from .encode import encode_event
from .event import ServerSentEvent
from .lines import as_bytes, end_of
from .parser import SSEParser

__all__ = ["SSEParser", "ServerSentEvent", "as_bytes", "encode_event", "end_of"]
