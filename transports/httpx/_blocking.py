"""An ``httpx.Client`` as a client of streams: the same exchange, suspending nowhere."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator, Mapping
from contextlib import suppress
from time import monotonic
from typing import Any, cast

from .._engine import BODY_SIZE, Gate, Verdict
from ._async import HttpxExchange
from ._client import judge, raw_body, timeouts, with_patient_hooks


class SyncHttpx:
    """See :class:`._engine.exchange.Client`; suspends nowhere."""

    def __init__(self, client: Any) -> None:
        self._client = client
        self.gate = Gate()

    def exchange(self, idle_timeout: float | None) -> SyncExchange:
        return SyncExchange(self._client, timeouts(self._client, read=idle_timeout) if idle_timeout else {})

    async def call(
        self, method: str, url: str, body: bytes, headers: Mapping[str, str], *, timeout: float, patience: float
    ) -> tuple[int, bytes]:
        limits = timeouts(self._client, connect=timeout, read=timeout, write=timeout, pool=patience)
        client = with_patient_hooks(self._client, [])
        answer = b""
        ends_by = monotonic() + timeout  # the client's own timeouts begin anew with every byte
        with client.stream(method, url, content=body, headers=dict(headers), **limits) as response:
            chunks: Iterator[bytes] = raw_body(response, "iter_raw", "iter_bytes")
            while len(answer) < BODY_SIZE and monotonic() < ends_by and (data := next(chunks, b"")):
                answer += data
        return response.status_code, answer

    def judge(self, error: Exception) -> Verdict:
        return judge(error)


class SyncExchange(HttpxExchange):
    """The same, blocking."""

    fragile = False

    def __init__(self, client: Any, limits: dict[str, Any]) -> None:
        super().__init__(client, limits)
        self._ending: threading.Timer | None = None

    def _note(self, url: str) -> dict[str, Any]:
        return {}

    async def _enter(self, context: Any) -> Any:
        return context.__enter__()

    def _chunks_of(self, response: Any) -> Any:
        return raw_body(response, "iter_raw", "iter_bytes")

    async def read(self) -> bytes:
        return cast("bytes", next(self._chunks, b""))

    def hurry(self, seconds: float) -> None:
        # Nothing else ends a blocking read than its socket.  One of HTTP/2 belongs to other streams, too.
        connection = getattr(self._response, "extensions", {}).get("network_stream")
        if connection is not None and self._ending is None and self._response.http_version.startswith("HTTP/1"):
            self._ending = threading.Timer(seconds, _shut, [connection.get_extra_info("socket")])
            self._ending.daemon = True
            self._ending.start()

    def judge(self, error: Exception) -> Verdict:
        if self._limits and type(error).__name__ == "ReadTimeout":
            return Verdict(idle=True)
        return judge(error)

    async def close(self) -> bytes:
        context, self._context = self._context, None
        if self._ending is not None:
            self._ending.cancel()
        if context is not None:
            with suppress(Exception):  # the connection is broken and gone, as was wanted
                context.__exit__(None, None, None)
            with suppress(Exception):
                self._chunks.close()
        return b""


def _shut(connection: socket.socket | None) -> None:
    if connection is not None:
        with suppress(OSError):
            socket.socket.shutdown(connection, socket.SHUT_RDWR)  # not TLS's own, which another thread is reading
