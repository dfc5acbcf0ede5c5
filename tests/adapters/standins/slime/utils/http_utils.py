"""The one HTTP client of a process."""

from __future__ import annotations

from typing import Any

_http_client: Any = None


async def get(url: str) -> Any:
    response = await _http_client.get(url)
    response.raise_for_status()
    return response.json()


async def post(url: str, payload: Any, headers: Any = None) -> Any:
    response = await _http_client.post(url, json=payload, headers=headers)
    response.raise_for_status()
    return response.json()
