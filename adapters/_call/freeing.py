"""Asking a server to abort a request, with a framework's own HTTP client.

Since a server may forget a request whose client has gone (SGLang 0.5.18 and 0.5.19 decode it to the end), it is told
while the response is still open.
"""

from __future__ import annotations

import logging
from typing import Any

from ssefold.transports._engine import without_urls

from .waiting import within

_log = logging.getLogger("ssefold.adapters")


class Freeing:
    """Asks the server to stop generating, at most once; a failure is logged, since something else is on its way.

    :param client: an ``httpx.AsyncClient`` or its like.
    :param how: ``"disconnect"``: not at all, as the closed connection says it; ``"direct"``: ``POST /abort_request``;
        ``"router"``: the same to each worker that ``GET /workers`` names.
    :param seconds: how long the server may take to answer.
    :raises ValueError: ``how`` is none of these.
    """

    def __init__(self, client: Any, base_url: str, rid: str, how: str, seconds: float) -> None:
        if how not in ("disconnect", "direct", "router"):
            raise ValueError(f"args.ssefold_abort must be 'disconnect', 'direct' or 'router', not {how!r}")
        self._client = client
        self._base_url = base_url
        self._rid = rid
        self._how = how
        self._seconds = seconds
        self._told = how == "disconnect"

    async def now(self) -> None:
        """Tell the server, unless that is done."""
        if self._told:
            return
        self._told = True
        try:
            await within(self._seconds, self._tell())
        except TimeoutError:
            _log.warning("no answer to the abort of %s within %g s", self._rid, self._seconds)
        except Exception as error:  # noqa: BLE001  # whatever the client raises
            _log.warning("the abort of %s failed: %s", self._rid, without_urls(repr(error)))

    async def _tell(self) -> None:
        urls = [self._base_url]
        if self._how == "router":
            answer = await self._client.get(f"{self._base_url}/workers")
            answer.raise_for_status()
            urls = [worker["url"].rstrip("/") for worker in answer.json()["workers"]]
        for url in urls:
            (await self._client.post(f"{url}/abort_request", json={"rid": self._rid})).raise_for_status()
