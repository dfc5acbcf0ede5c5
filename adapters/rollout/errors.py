"""Errors raised by ``RolloutSample`` and ``run``.

Contradictions in a stream are the core's ``ProtocolError`` or ``ReplayError``.  These errors are for calls that are not
allowed in the sample's state, and for failover that ran out of attempts.  Knows nothing of samples.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from ssefold import StreamError

if TYPE_CHECKING:
    from ssefold import Snapshot


class RolloutError(StreamError, ValueError):
    """The call is not allowed in the sample's present state; the message says what to do first."""


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
