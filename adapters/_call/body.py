"""The bytes of a response that a framework's own HTTP client has opened, whatever that client can do.

Knows what an httpx-like response can be asked for, and nothing of what the bytes mean.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import Any

from ssefold.transports import TransportError
from ssefold.transports._engine import undo_encoding


async def body_of(response: Any) -> AsyncGenerator[bytes, None]:
    """The body, with nothing read ahead; of a response that offers only lines, each data line is an event.

    Lines are the last resort: they have lost their ends, and httpx also cuts at Unicode line separators inside JSON.

    :raises TransportError: an unsupported content encoding, or bytes that do not have it.
    """
    encoding = _encoding_left(response)
    if encoding:
        try:
            undo = undo_encoding(encoding)
        except ValueError:
            raise TransportError(
                f"the answer has content-encoding {encoding!r}, which neither the client nor this library supports: "
                "turn compression off in the gateway that answers"
            ) from None
        async with aclosing(response.aiter_raw()) as reads:
            async for data in reads:
                try:
                    yield data if undo is None else undo(data)
                except ValueError as error:
                    raise TransportError(str(error)) from error
        return
    read_bytes = getattr(response, "aiter_bytes", None) or getattr(response, "aiter_raw", None)
    items: Any = response.aiter_lines() if read_bytes is None else read_bytes()
    try:
        async for item in items:
            if read_bytes is not None:
                yield item
            elif item.startswith("data:"):
                yield f"data:{item[5:].strip()}\n\n".encode("utf-8", "surrogatepass")
    finally:
        if hasattr(items, "aclose"):
            await items.aclose()


def _encoding_left(response: Any) -> str:
    """The content encoding that remains: a client decompresses the encodings that it offered in the request."""
    headers = getattr(response, "headers", None)
    if headers is None or not hasattr(response, "aiter_raw"):
        return ""
    encoding: str = headers.get("content-encoding", "").strip().lower()
    offered: str = response.request.headers.get("accept-encoding", "") if hasattr(response, "request") else ""
    return "" if encoding in {name.strip() for name in offered.lower().split(",")} else encoding
