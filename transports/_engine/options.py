"""The keywords that every transport takes, and what they must be."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from numbers import Integral, Real
from typing import Any, Literal, TypedDict

from ssefold import GenerateDecoder

OnCancel = Literal["disconnect", "direct", "router"]
Mode = Literal["auto", "cumulative", "incremental"]
EventHook = Callable[[str, Mapping[str, Any]], None]

_MAX_EVENT_SIZE = 256 * 2**20


class FoldOptions(TypedDict, total=False):
    """Options of everything that folds a stream.

    :ivar mode: the server's ``--incremental-streaming-output`` flag, if it is known; ``"auto"`` finds out.
    :ivar on_bad_json: ``"raise"``, or ``"skip"`` payloads that are not JSON.
    :ivar max_event_size: bytes that one event may have.
    :ivar idle_timeout: seconds without a byte, also before the first one, after which the stream fails.  Comments are
        bytes, too.  None: the client's own timeouts apply.
    :ivar on_event: called with a name and data when something happens (``docs/observability.md``).
    :ivar fast_path: False: every payload is parsed and planned in full.  For comparison, when a result looks wrong.
    """

    mode: Mode
    on_bad_json: Literal["raise", "skip"]
    max_event_size: int
    idle_timeout: float | None
    on_event: EventHook | None
    fast_path: bool


class GenerateOptions(FoldOptions, total=False):
    """Options of a request.

    :ivar headers: sent with the request and with what aborts it.  ``Accept``, ``Accept-Encoding`` and ``Content-Type``
        are ours.
    :ivar rid: the request's id; default: the payload's own, or 32 random hexadecimal digits.
    :ivar on_cancel: how the server is stopped when the stream is left early: only by closing the connection
        (``"disconnect"``), by ``POST /abort_request`` to the same server (``"direct"``), or to each worker that ``GET
        /workers`` lists (``"router"``).
    :ivar abort_timeout: seconds that the abort and the closing of the response may take.
    :ivar retries: how often to try again when no connection is had or the server sheds the request with 503, as long as
        no update has come.
    """

    headers: Mapping[str, str] | None
    rid: str | None
    on_cancel: OnCancel
    abort_timeout: float
    retries: int


@dataclass(frozen=True, kw_only=True)
class Options:
    """:class:`GenerateOptions` with defaults, checked.

    :raises ValueError: for a value that makes no sense.
    """

    mode: Mode = "auto"
    on_bad_json: Literal["raise", "skip"] = "raise"
    max_event_size: int = _MAX_EVENT_SIZE
    idle_timeout: float | None = None
    on_event: EventHook | None = None
    fast_path: bool = True
    headers: Mapping[str, str] | None = field(default=None, repr=False)
    rid: str | None = None
    on_cancel: OnCancel = "disconnect"
    abort_timeout: float = 5.0
    retries: int = 0

    def __post_init__(self) -> None:
        self.decoder()
        if self.on_cancel not in ("disconnect", "direct", "router"):
            raise ValueError(f"on_cancel must be 'disconnect', 'direct' or 'router', not {self.on_cancel!r}")
        if self.idle_timeout is not None and not (_is_number(self.idle_timeout) and self.idle_timeout > 0):
            raise ValueError(f"idle_timeout must be positive seconds or None, not {self.idle_timeout!r}")
        if not (_is_number(self.abort_timeout) and self.abort_timeout > 0):
            raise ValueError(f"abort_timeout must be positive seconds, not {self.abort_timeout!r}")
        if not _is_whole(self.retries):
            raise ValueError(f"retries must be a whole number, not {self.retries!r}")
        if self.retries < 0:
            raise ValueError(f"retries must not be negative, found {self.retries!r}")
        if self.rid is not None and not self.rid:
            # The scheduler matches by prefix: aborting "" would abort every request.
            raise ValueError("rid must not be empty")

    def decoder(self) -> GenerateDecoder:
        """A decoder for one body."""
        return GenerateDecoder(
            mode=self.mode,
            on_bad_json=self.on_bad_json,
            max_event_size=self.max_event_size,
            fast_path=self.fast_path,
        )


def checked(options: Mapping[str, Any]) -> Options:
    """The caller's options, with defaults.

    :raises TypeError: an option that does not exist.
    :raises ValueError: a value that makes no sense.
    """
    if "timeout" in options:
        raise TypeError(
            "there is no option timeout: use idle_timeout=, the seconds without a byte after which a stream has "
            "failed; a limit on the whole is asyncio.timeout or anyio.fail_after"
        )
    return Options(**options)


def _is_number(value: object) -> bool:
    return not isinstance(value, bool) and isinstance(value, Real)


def _is_whole(value: object) -> bool:
    return not isinstance(value, bool) and isinstance(value, Integral)
