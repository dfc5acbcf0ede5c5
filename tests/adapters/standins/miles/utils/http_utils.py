"""The one HTTP client of a process."""

from __future__ import annotations

from typing import Any

_http_client: Any = None
