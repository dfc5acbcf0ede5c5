"""What a client must be able to do to carry a stream: the whole difference between one transport and another.

An exchange is one request and its response; it lives from ``open`` to ``close``.  Its methods raise
:class:`~ssefold.transports.TransportError` for what the client itself reports; nothing else is expected of them.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from .answer import Head
    from .gate import Gate
    from .request import PreparedRequest


class Exchange(Protocol):
    """One request and its response, asynchronously."""

    @property
    def fragile(self) -> bool:
        """A cancelled read must be left to clean up by itself: it runs in a task of its own, and is cancelled once."""
        ...

    @property
    def closes_at_once(self) -> bool:
        """Closing waits for nobody, so nothing has to bound it."""
        ...

    async def open(self, request: PreparedRequest) -> Head:
        """Send the request and read the response's head."""
        ...

    async def read(self) -> bytes:
        """The next bytes of the body, as many as there are; ``b""`` at its end."""
        ...

    def hurry(self, seconds: float) -> None:
        """From now on the end must come: a read that waits longer than this fails.  Only where not ``fragile``."""
        ...

    async def close(self) -> bytes:
        """Give the connection back, or close it if the body was not read to its end.

        Returns what the client had received by then and not handed out.  Raises nothing; may be repeated.
        """
        ...


class Client(Protocol):
    """Makes exchanges, and short requests beside them."""

    @property
    def anyio_based(self) -> bool:
        """Its work is made of anyio, and is cancelled accordingly (``_runtime``)."""
        ...

    @property
    def gate(self) -> Gate:
        """Where short requests wait for their turn."""
        ...

    def exchange(self, idle_timeout: float | None) -> Exchange:
        """A new exchange, not yet begun."""
        ...

    async def call(
        self, method: str, url: str, body: bytes, headers: Mapping[str, str], *, timeout: float, patience: float
    ) -> tuple[int, bytes]:
        """A whole request; the answer's status and its body's first 64 KiB.

        :param patience: seconds to wait for the client's pool to have a connection to spare.
        """
        ...


class SyncExchange(Protocol):
    """One request and its response, blocking; see :class:`Exchange`."""

    def open(self, request: PreparedRequest) -> Head: ...
    def read(self) -> bytes: ...
    def close(self) -> None: ...


class SyncClient(Protocol):
    """See :class:`Client`."""

    def exchange(self, idle_timeout: float | None) -> SyncExchange: ...
    def call(
        self, method: str, url: str, body: bytes, headers: Mapping[str, str], *, timeout: float, patience: float
    ) -> tuple[int, bytes]: ...
