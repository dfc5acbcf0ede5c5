"""Fake servers on loopback: sockets, HTTP/1.1, and the faults of a connection.

``server`` and ``connection`` are HTTP alone; ``fake`` is SGLang over them, ``service`` its ``/generate``, and
``router`` a router in front of several.  What is generated, and how it is written, comes from ``engine`` and ``wire``.
"""

from __future__ import annotations

from .connection import Connection
from .fake import FakeSGLang, Seen
from .router import FakeRouter
from .server import LoopbackServer

__all__ = ["Connection", "FakeRouter", "FakeSGLang", "LoopbackServer", "Seen"]
