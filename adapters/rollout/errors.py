"""Errors raised by ``RolloutSample`` and ``run``.

What a stream says and does not fit is the core's own ``ProtocolError`` or ``ReplayError``; these are for calls that
make no sense at the moment they are made, and for running out of servers.  Knows nothing of samples.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from ssefold import StreamError

if TYPE_CHECKING:
    from ssefold import Snapshot


class RolloutError(StreamError, ValueError):
    """The sample cannot do what was asked of it now; the message says what to do first."""


class FailoverError(StreamError, RuntimeError):
    """Every attempt failed; the cause is the last one's failure.

    :ivar failures: endpoint (without user, password and query) and error of each attempt, in order.
    """

    def __init__(
        self,
        message: str = "",
        *,
        failures: Sequence[tuple[str, StreamError]] = (),
        partial: Mapping[int, Snapshot] | None = None,
    ) -> None:
        super().__init__(message, partial=partial)
        self.failures: tuple[tuple[str, StreamError], ...] = tuple(failures)
