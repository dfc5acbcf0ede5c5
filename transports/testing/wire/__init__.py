"""Scripts as bytes: what each version of the server writes for them, and what a client then holds.

``manager`` and ``gateways`` are the servers, one output each; ``encode`` and ``nonstream`` run them by a ``schedule``.
Nothing here knows a clock, a socket or a request.
"""

from __future__ import annotations

from .body import KEEP_ALIVE, Body, Sent
from .encode import encode
from .events import DONE, dumps, event
from .held import Held, finite
from .manager import StreamFailedError
from .nonstream import HTTPFailureError, nonstream
from .outputs import Output, output_of
from .schedule import Moment, Schedule, choose, eager, interval_sends, late

__all__ = [
    "DONE",
    "KEEP_ALIVE",
    "Body",
    "HTTPFailureError",
    "Held",
    "Moment",
    "Output",
    "Schedule",
    "Sent",
    "StreamFailedError",
    "choose",
    "dumps",
    "eager",
    "encode",
    "event",
    "finite",
    "interval_sends",
    "late",
    "nonstream",
    "output_of",
]
