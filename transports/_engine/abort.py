"""What to send so that a server stops generating, and where to.

``POST /abort_request`` with ``{"rid": ...}`` (``http_server.abort_request``): the tokenizer manager ignores an id that
it does not know, and it forgets an id when its client disconnects; so the abort is sent before the response is closed.
A router takes no such request; its workers do, and ``GET /workers`` names them.
"""

from __future__ import annotations

import json
from typing import Any, cast

from .errors import TransportError
from .url import printable_url, without_urls

BODY_SIZE = 2**16
"""So much of such an answer is read."""


def abort_body(rid: str) -> bytes:
    """The body of one ``/abort_request``."""
    return json.dumps({"rid": rid}).encode("utf-8")


def worker_urls(status: int, body: bytes, place: str) -> list[str]:
    """The ``/abort_request`` of every worker, from the answer to ``GET /workers``.

    :raises TransportError: the answer names no workers.
    """
    found: list[str] = []
    try:
        answer: Any = json.loads(body) if status == 200 else None
    except ValueError:
        answer = None
    listed: Any = cast("dict[str, Any]", answer).get("workers") if isinstance(answer, dict) else None
    workers: list[Any] = listed if isinstance(listed, list) else []
    for worker in workers:
        url: Any = cast("dict[str, Any]", worker).get("url") if isinstance(worker, dict) else worker
        if isinstance(url, str) and url:
            found.append(url.rstrip("/") + "/abort_request")
    if not found:
        raise TransportError(
            f"GET /workers of {place} answered status {status} and named no workers ({_start(body)}); with a server "
            "that is not a router use on_cancel='direct'",
            status_code=status,
            body=body[:4096],
        )
    return found


def abort_refused(status: int, body: bytes, url: str) -> TransportError:
    """The error for an ``/abort_request`` that was not taken."""
    return TransportError(
        f"POST {printable_url(url)} answered status {status} ({_start(body)}); the server goes on generating",
        status_code=status,
        body=body[:4096],
    )


def _start(body: bytes) -> str:
    return without_urls(repr(body[:200]))
