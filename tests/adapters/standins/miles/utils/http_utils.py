"""The one HTTP client of a process, and the post that repeats what fails."""

from __future__ import annotations

from typing import Any

_http_client: Any = None
_distributed_post_enabled = False


async def post(url: str, payload: Any, max_retries: int = 60, headers: Any = None) -> Any:
    for attempt in range(max_retries):
        try:
            response = await _http_client.post(url, json=payload, headers=headers)
            response.raise_for_status()
            return response.json()
        except Exception:
            if attempt == max_retries - 1:
                raise
    return None
