"""Whether an answer is an event stream at all, and what to say when it is not."""

from __future__ import annotations

from dataclasses import dataclass

from .errors import TransportError

BODY_LIMIT = 4096
_EXCERPT = 300


@dataclass(frozen=True)
class Head:
    """Status and headers that matter.

    :ivar content_encoding: what the bytes that the transport hands out are still encoded with; "" for nothing.
    """

    status: int
    content_type: str
    content_encoding: str = ""

    @property
    def is_stream(self) -> bool:
        """An event stream, to be read; status first, since old gateways call their errors event streams."""
        kind = self.content_type.partition(";")[0].strip().lower()
        return self.status == 200 and kind == "text/event-stream" and self.content_encoding in ("", "identity")


def idle(place: str, seconds: float | None) -> TransportError:
    """The error for silence."""
    return TransportError(f"nothing came from {place} for idle_timeout={seconds} s")


def refused(head: Head, body: bytes, place: str) -> TransportError:
    """The error for an answer that is not an event stream."""
    if head.status != 200:
        what = f"status {head.status}"
    elif head.content_encoding not in ("", "identity"):
        what = (
            f"status 200 with content-encoding {head.content_encoding!r} although identity was asked for: a proxy "
            "compresses; turn it off there, or let the client decompress"
        )
    else:
        what = f"status 200 with content-type {head.content_type!r} instead of text/event-stream: is this /generate?"
    excerpt = body[:_EXCERPT].decode("utf-8", "replace")
    return TransportError(
        f"{place} answered {what}; body: {excerpt!r}" + ("..." if len(body) > _EXCERPT else ""),
        status_code=head.status,
        body=body[:BODY_LIMIT],
        retryable=head.status == 503,
    )
