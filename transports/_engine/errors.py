"""The one error that transports add to those of the core."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from ssefold import StreamError

if TYPE_CHECKING:
    from ssefold import Snapshot


class TransportError(StreamError, OSError):
    """The transport failed: connecting, reading, an idle server, or a response that is not an event stream.

    The client's own exception, if there was one, is the ``__cause__``; if its message contains a secret of the URL
    (user, password, query), an ``OSError`` with the same message without it.

    :ivar status_code: HTTP status of an answer that was refused; None when there was no answer.
    :ivar body: the first 4096 bytes of that answer.
    :ivar retryable: nothing had been generated and another attempt may do better: no connection, or status 503.
    :ivar retry_after: seconds that the server asked to wait (``Retry-After``); None if it did not.
    """

    def __init__(
        self,
        message: str = "",
        *,
        status_code: int | None = None,
        body: bytes = b"",
        retryable: bool = False,
        retry_after: float | None = None,
        partial: Mapping[int, Snapshot] | None = None,
    ) -> None:
        super().__init__(message, partial=partial)
        self.status_code = status_code
        self.body = body
        self.retryable = retryable
        self.retry_after = retry_after
