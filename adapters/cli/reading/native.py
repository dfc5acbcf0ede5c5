"""The JSON of a response with ``stream: false``, and of the answers that come in its place: errors, other routes.

Knows one body as a whole; knows no events.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any, Literal

from ssefold import Accumulator, PayloadError, ServerError, Update

from ..check import dialect_of


def fold_native(
    body: bytes, mode: Literal["auto", "cumulative", "incremental"]
) -> Iterator[tuple[bytes, Accumulator, Update]]:
    """Each response of a body, as JSON, with what the core makes of it.

    :raises StreamError: it is no response of ``/generate``.
    """
    try:
        value: Any = json.loads(body)
    except (ValueError, RecursionError) as error:
        raise PayloadError(f"it begins like JSON, but is neither JSON nor an event stream: {error}") from error
    for index, response in enumerate(value if isinstance(value, list) else [value]):
        if not isinstance(response, dict):
            raise PayloadError(f"a response must be a JSON object, found {type(response).__name__}")
        _check_answer(response)
        output = Accumulator(mode, index=index)
        update = output.add(response)
        yield json.dumps(response, separators=(",", ":")).encode(), output, update


def _check_answer(response: dict[str, Any]) -> None:
    if "meta_info" in response:
        return
    route = dialect_of(response)
    if route:
        raise PayloadError(f"this is an answer of {route}; record SGLang's own route, /generate")
    reported = next((response[key] for key in ("error", "detail", "message") if response.get(key)), None)
    if reported is None:
        return
    code = response.get("code")
    if isinstance(reported, dict):
        reported, code = reported.get("message", reported), reported.get("code", code)
    words = reported if isinstance(reported, str) else json.dumps(reported)
    noted = f" (code {code})" if isinstance(code, (int, str)) else ""
    raise ServerError(f"the server answered with an error, not with a stream: {words}{noted}", message=words)
