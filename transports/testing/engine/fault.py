"""What goes wrong with one request, as data.

A :class:`Fault` says what a fake server does wrong with a request; the default is no fault.  The scheduler
carries out what concerns tokens, the HTTP side the rest.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal


@dataclass(frozen=True, kw_only=True)
class Fault:
    """How one ``/generate`` request goes wrong.

    Before the stream:

    :ivar status: another HTTP status, with ``body`` as the whole answer.
    :ivar refuse: close the connection without a response.
    :ivar silent: never answer.
    :ivar content_type: of the answer; :ivar headers: more of them.

    In the stream, as SGLang ends it:

    :ivar overloaded: the request is shed: an abort chunk with status 503 and no token.
    :ivar error: this error event instead of further tokens, after ``error_after`` of them, then ``[DONE]``.
    :ivar retract_after: back to the waiting queue after so many tokens; the stream is silent until released or aborted.
    :ivar stall_after: after so many tokens the server sends nothing more, and keeps the connection open.
    :ivar junk: bytes put before each event, a keep-alive comment for instance.

    On the wire:

    :ivar cut_at: the body ends after so many bytes, by closing the socket (``fin``), by a reset (``rst``), or as if it
        were complete (``clean``).
    :ivar pieces: cut the body into pieces of random sizes from this seed, each its own HTTP chunk and its own write.
    :ivar drip: write the body in pieces of this many bytes.
    :ivar gzip: compress the body, whatever ``Accept-Encoding`` says.
    :ivar no_done: leave out ``[DONE]``.
    :ivar endless: never end the body after ``[DONE]``.
    :ivar padding: so many bytes in a key of the last chunk (a giant terminal).
    """

    status: int = 200
    body: bytes = b""
    refuse: bool = False
    silent: bool = False
    content_type: str = "text/event-stream; charset=utf-8"
    headers: Mapping[str, str] = field(default_factory=dict[str, str])
    overloaded: bool = False
    error: Mapping[str, Any] | None = None
    error_after: int = 0
    retract_after: int | None = None
    stall_after: int | None = None
    junk: bytes = b""
    cut_at: int | None = None
    cut: Literal["fin", "rst", "clean"] = "fin"
    pieces: int | None = None
    drip: int | None = None
    gzip: bool = False
    no_done: bool = False
    endless: bool = False
    padding: int = 0


NO_FAULT = Fault()
