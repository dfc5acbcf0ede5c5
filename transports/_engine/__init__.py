"""What the clients share: a stream, told by its exchange of bytes, and everything around its request.

``exchange`` says what a client must be able to do; ``stream`` carries a request through its attempts to its leaving,
``update_stream`` reads, ``folding`` holds what came, ``blocking`` does the same without an event loop.  Nothing in here
knows a client.
"""

from __future__ import annotations

from .abort import BODY_SIZE
from .answer import Head, Verdict
from .blocking import SyncGenerateStream
from .collect import collect_stream, collect_sync_stream
from .encoding import undo_encoding
from .errors import TransportError
from .exchange import Client, Exchange
from .folding import Folding
from .gate import Gate, gate_of
from .gather import StreamResult, gather
from .metrics import StreamMetrics
from .options import FoldOptions, GenerateOptions, Options, checked
from .request import PreparedRequest, prepare
from .stream import GenerateStream
from .update_stream import UpdateStream
from .url import printable_url, split_credentials, without_urls

__all__ = [
    "BODY_SIZE",
    "Client",
    "Exchange",
    "FoldOptions",
    "Folding",
    "Gate",
    "GenerateOptions",
    "GenerateStream",
    "Head",
    "Options",
    "PreparedRequest",
    "StreamMetrics",
    "StreamResult",
    "SyncGenerateStream",
    "TransportError",
    "UpdateStream",
    "Verdict",
    "checked",
    "collect_stream",
    "collect_sync_stream",
    "gate_of",
    "gather",
    "prepare",
    "printable_url",
    "split_credentials",
    "undo_encoding",
    "without_urls",
]
