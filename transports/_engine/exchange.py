"""What a client must be able to do for a stream: everything that differs between transports.

An exchange is one request and its response; it lives from ``open`` to ``close``.  Its methods raise whatever the client
raises, and ``judge`` says what that means.
"""

from __future__ import annotations

from collections.abc import Awaitable, Mapping
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from .answer import Head, Verdict
    from .gate import Gate
    from .request import PreparedRequest


class Exchange(Protocol):
    """One request and its response.  A blocking client's does the same without ever suspending."""

    @property
    def fragile(self) -> bool:
        """A cancelled read closes the response, and its cleanup must not be interrupted."""
        ...

    async def open(self, request: PreparedRequest) -> Head:
        """Send the request and read the response's head."""
        ...

    def read(self) -> Awaitable[bytes]:
        """The next bytes of the body, as many as there are; ``b""`` at its end."""
        ...

    def rest(self) -> bytes:
        """What had arrived before a read failed, and was not returned."""
        ...

    def hurry(self, seconds: float) -> None:
        """The body must end within so many seconds.  For blocking clients, whose reads nothing else can end."""
        ...

    def judge(self, error: Exception) -> Verdict:
        """What an exception of the client's means."""
        ...

    async def close(self) -> bytes:
        """Give the connection back, or close it if the body was not read to its end.

        Returns the bytes that the client had received and not returned.  May be called again.
        """
        ...


class Client(Protocol):
    """Makes exchanges and short requests."""

    @property
    def gate(self) -> Gate:
        """Where short requests wait for their turn."""
        ...

    def exchange(self, idle_timeout: float | None) -> Exchange:
        """A new exchange, not yet begun; the stream itself keeps ``idle_timeout``, where it can."""
        ...

    async def call(
        self, method: str, url: str, body: bytes, headers: Mapping[str, str], *, timeout: float, patience: float
    ) -> tuple[int, bytes]:
        """A whole request; the answer's status and its body's first 64 KiB.

        :param patience: seconds to wait for the client's pool to have a connection to spare.
        """
        ...

    def judge(self, error: Exception) -> Verdict:
        """What an exception of the client's means."""
        ...
