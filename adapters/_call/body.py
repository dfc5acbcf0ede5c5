"""The bytes of a response that a framework's own HTTP client has opened, whatever that client can do.

Shared by the adapters that use a framework's client.  Knows what an httpx-like response can be asked for, and nothing
of what the bytes mean.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator
from typing import Any


async def body_of(response: Any) -> AsyncGenerator[bytes, None]:
    """The body, with nothing read ahead; of a response that offers only lines, each data line is an event.

    Lines are the last resort: they have lost their ends, and httpx also cuts at Unicode line separators inside JSON.
    """
    read_bytes = getattr(response, "aiter_bytes", None) or getattr(response, "aiter_raw", None)
    items: Any = response.aiter_lines() if read_bytes is None else read_bytes()
    try:
        async for item in items:
            if read_bytes is not None:
                yield item
            elif item.startswith("data:"):
                yield f"data:{item[5:].strip()}\n\n".encode("utf-8", "surrogatepass")
    finally:
        close = getattr(items, "aclose", None)
        if close is not None:
            await close()
