"""What the clients share: a stream, which reads bytes from an exchange, and everything around its request.

``exchange`` defines what a client must be able to do.  ``stream`` handles a request from the first attempt to the
close, ``update_stream`` reads, ``folding`` keeps the result, ``blocking`` does the same without an event loop.  No
module here knows a client.
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
