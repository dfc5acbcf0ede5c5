"""Whether a response is an event stream, and the error messages if it is not."""

from __future__ import annotations

from dataclasses import dataclass

from .encoding import undo_encoding
from .errors import TransportError
from .retry import asked_wait
from .url import without_urls

BODY_LIMIT = 4096
_EXCERPT = 300


@dataclass(frozen=True)
class Head:
    """Status and headers that matter.

    :ivar content_encoding: the encoding that the exchange's bytes still have; "" for none.
    """

    status: int
    content_type: str
    content_encoding: str = ""
    retry_after: str = ""


@dataclass(frozen=True)
class Verdict:
    """What a client's exception says of the request.

    :ivar unsent: no connection was had; ``cut``: the connection was closed; ``idle``: the server was silent for longer
        than ``idle_timeout``.
    :ivar hint: what to do about it.
    """

    unsent: bool = False
    cut: bool = False
    idle: bool = False
    hint: str = ""


def idle(place: str, seconds: float | None, cause: BaseException | None = None) -> TransportError:
    """The error for silence."""
    error = TransportError(f"nothing came from {place} for idle_timeout={seconds} s")
    error.__cause__ = cause
    return error


def failed(error: Exception, verdict: Verdict, place: str, url: str = "", *, began: bool) -> TransportError:
    """What the client raised, in our words, its own among them.

    :param url: where the request went; its secrets are taken out of the client's words.
    :param began: the response had begun.
    """
    own = str(error)
    what = without_urls(f"{type(error).__name__}: {own}" if own else type(error).__name__, url)
    what += f"; {verdict.hint}" if verdict.hint else ""
    if verdict.unsent:
        raised = TransportError(f"no connection to {place}: {what}", retryable=True)
    elif began:
        raised = TransportError(f"reading from {place} failed: {what}")
    else:
        raised = TransportError(f"no answer from {place}: {what}", retryable=verdict.cut)
    raised.__cause__ = error if _tells_nothing(error, url) else OSError(what)
    return raised


def _tells_nothing(error: BaseException | None, url: str) -> bool:
    """No secret of an url, and no header that proves who one is, is in the words of the exception or of its causes."""
    seen: set[int] = set()
    while error is not None and id(error) not in seen:
        seen.add(id(error))
        words = f"{error} {error!r}"
        if without_urls(words, url) != words or "authorization" in words.lower():
            return False
        error = error.__cause__ or error.__context__
    return True


def is_stream(head: Head) -> bool:
    """An event stream, to be read; status first, since old gateways call their errors event streams."""
    return head.status == 200 and head.content_type.partition(";")[0].strip().lower() == "text/event-stream"


def refused(head: Head, body: bytes, place: str) -> TransportError:
    """The error for an answer that is not an event stream, or that has an unsupported content encoding."""
    try:
        undo = undo_encoding(head.content_encoding)
        body = body if undo is None else undo(body)
        what = f"status 200 with content-type {head.content_type!r} instead of text/event-stream: is this /generate?"
    except ValueError as error:
        what = f"status 200 with {error}"
    if head.status != 200:
        what = f"status {head.status}"
    excerpt = body[:_EXCERPT].decode("utf-8", "replace")
    return TransportError(
        f"{place} answered {what}; body: {excerpt!r}" + ("..." if len(body) > _EXCERPT else ""),
        status_code=head.status,
        body=body[:BODY_LIMIT],
        retryable=head.status == 503,
        retry_after=asked_wait(head.retry_after),
    )
