"""What a server reports as its own failure, inside the stream: ``{"error": ...}`` or ``event: error``.

Reads whatever form it has into a :class:`ServerError`.  Knows nothing of outputs and of what happens next.  Source:
SGLang ``entrypoints/http_server.py::stream_results``.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ..errors import ServerError

_MOST_BITS = 63


def server_error(data: Mapping[str, Any]) -> ServerError | None:
    """The failure that a payload reports under ``error``, or None (``entrypoints/http_server.py::stream_results``)."""
    reported = data.get("error")
    return None if reported is None else failure_of(reported)


def failure_of(reported: object) -> ServerError:
    """The failure that a server reports in whatever form: an object with ``message``, a string, anything."""
    code: int | str | None = None
    kind: str | None = None
    if isinstance(reported, Mapping):
        message = _words(reported.get("message", reported))
        code = reported.get("code") if isinstance(reported.get("code"), (int, str)) else None
        if isinstance(code, int) and code.bit_length() > _MOST_BITS:
            code = None
        kind = reported.get("type") if isinstance(reported.get("type"), str) else None
    else:
        message = _words(reported)
    noted = ", ".join(f"{name} {value}" for name, value in (("code", code), ("type", kind)) if value is not None)
    return ServerError(
        f"the server reported inside the stream: {message}{f' ({noted})' if noted else ''}",
        message=message,
        code=code,
        type=kind,
    )


def _words(value: object) -> str:
    try:
        return str(value)
    except (ValueError, RecursionError):  # a number of thousands of digits
        return f"a {type(value).__name__} that cannot be printed"
