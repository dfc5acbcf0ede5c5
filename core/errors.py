"""Every way in which reading a stream can fail, as one tree of exceptions.

::

    StreamError
    ├── EventTooLargeError    (ValueError)    one event is larger than allowed
    ├── PayloadError          (ValueError)    not JSON, not an object, a field of the wrong type
    ├── ProtocolError         (ValueError)    lengths, prefix or mode of the chunks do not fit together
    ├── ReplayError           (ValueError)    a top-p or routed-experts array is invalid
    ├── ServerError           (ValueError)    the server reported a failure inside the stream
    ├── SnapshotError         (ValueError)    bytes are no snapshot, or were altered
    └── IncompleteStreamError (RuntimeError)  the body ended before the outputs did

The message names the field, the numbers, and the setting to look at.  ``.partial`` holds what arrived before the
failure.  This module knows nothing of parsing, folding or sockets.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .snapshot import Snapshot


class StreamError(Exception):
    """Base class of all failures of this library; ``.partial`` is the partial result, to resume from.

    :ivar partial: per output index, a :class:`~ssefold.Snapshot` of what arrived before the failure (may be empty).
    """

    def __init__(self, message: str = "", *, partial: Mapping[int, Snapshot] | None = None) -> None:
        super().__init__(message)
        self.partial: Mapping[int, Snapshot] = {} if partial is None else partial

    def __reduce__(self) -> tuple[Any, ...]:
        # Exceptions cross process borders (Ray, multiprocessing); keyword arguments and attributes must come along.
        return _rebuild, (type(self), self.args, self.__dict__.copy())


class EventTooLargeError(StreamError, ValueError):
    """More than ``max_event_size`` bytes were buffered for one event.

    The parser has returned the events before it, and refuses every call until ``reset()``.
    """


class PayloadError(StreamError, ValueError):
    """The data of an event is not valid UTF-8 JSON, not an object, or a field of it has the wrong type."""


class ProtocolError(StreamError, ValueError):
    """Each field is well-formed, but lengths, prefix or mode contradict each other or an earlier chunk."""


class ReplayError(StreamError, ValueError):
    """A top-p, routed-experts or indexer array is not valid, or does not have the number of elements it must have."""


class SnapshotError(StreamError, ValueError):
    """The bytes given to ``Snapshot.from_bytes`` are truncated, altered, or of an unknown version."""


class ServerError(StreamError, ValueError):
    """The server itself reported a failure inside the stream: ``{"error": ...}`` or ``event: error``.

    :ivar message: the server's message.
    :ivar code: HTTP-like code as the server sent it, or None.
    :ivar type: error type as the server sent it, or None.
    :ivar index: the output that failed, or None when the whole stream did.
    """

    def __init__(
        self,
        text: str = "",
        *,
        message: str = "",
        code: int | str | None = None,
        type: str | None = None,
        index: int | None = None,
        partial: Mapping[int, Snapshot] | None = None,
    ) -> None:
        super().__init__(text or message, partial=partial)
        self.message: str = message or text
        self.code = code
        self.type = type
        self.index = index


class IncompleteStreamError(StreamError, RuntimeError):
    """The body ended although an output had no terminal ``finish_reason``, or no output came at all."""


def _rebuild(cls: type[StreamError], args: tuple[Any, ...], state: dict[str, Any]) -> StreamError:
    error = cls(*args)
    error.__dict__.update(state)
    return error
