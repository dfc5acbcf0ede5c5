"""One response body as events, with the truth after each, and every other way in which it can end.

This module knows what an event is and where it stops; what is in it was made elsewhere.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate
from typing import TYPE_CHECKING, Any

from .events import DONE, event

if TYPE_CHECKING:
    from .held import Held

KEEP_ALIVE = b":\n\n"
"""The comment that Dynamo's front end sends when nothing else happens (axum's ``KeepAlive``)."""


@dataclass(frozen=True)
class Sent:
    """One event on the wire.

    :ivar data: its bytes, the blank line included.
    :ivar payload: the JSON in it; None for ``[DONE]`` and comments.
    :ivar held: what a perfect client holds of every output once it has arrived.
    """

    data: bytes
    payload: dict[str, Any] | None
    held: tuple[Held, ...]


@dataclass(frozen=True)
class Body:
    """One HTTP response body.

    :ivar start: what a client holds before the first event: nothing.
    :ivar error: what is in the error event for the whole stream, if there is one.
    :ivar torn: the server cut the connection: no ``[DONE]``, no end of the HTTP body.
    :ivar tail: bytes of an unfinished event at the end.
    """

    sent: tuple[Sent, ...]
    start: tuple[Held, ...]
    error: dict[str, Any] | None = None
    torn: bool = False
    tail: bytes = b""

    @property
    def events(self) -> list[bytes]:
        """The bytes of each event."""
        return [one.data for one in self.sent]

    @property
    def data(self) -> bytes:
        """All bytes."""
        return b"".join(self.events) + self.tail

    @property
    def payloads(self) -> list[dict[str, Any]]:
        """The JSON of each event that has some."""
        return [one.payload for one in self.sent if one.payload is not None]

    @property
    def done(self) -> bool:
        """``[DONE]`` is in it."""
        return any(one.data == DONE for one in self.sent)

    @property
    def held(self) -> tuple[Held, ...]:
        """What a perfect client holds at the end."""
        return self.held_after(len(self.sent))

    def held_after(self, events: int) -> tuple[Held, ...]:
        """What a perfect client holds after so many events."""
        return self.sent[events - 1].held if events else self.start

    def events_in(self, length: int) -> int:
        """How many whole events the first ``length`` bytes contain."""
        return bisect_right(list(accumulate(map(len, self.events))), length)

    def without_done(self) -> Body:
        """Everything but ``[DONE]``: a proxy closed early, or the peer before it did."""
        return replace(self, sent=self._before_done(len(self.sent)))

    def cut(self, length: int) -> Body:
        """The first ``length`` bytes, then the connection is gone."""
        whole = self.events_in(length)
        start = sum(map(len, self.events[:whole]))
        return replace(self, sent=self.sent[:whole], torn=True, tail=self.data[start:length])

    def stopped(self, events: int) -> Body:
        """So many events, then ``[DONE]`` although outputs are open."""
        return replace(self, sent=(*self._before_done(events), Sent(DONE, None, self.held_after(events))))

    def failed(self, events: int, error: Mapping[str, Any], *, done: bool = True) -> Body:
        """So many events, then an error event for the whole stream, then ``[DONE]`` unless the connection is cut."""
        payload = {"error": dict(error)}
        held = self.held_after(events)
        ending = [Sent(event(payload), payload, held)]
        if done:
            ending.append(Sent(DONE, None, held))
        return replace(self, sent=(*self._before_done(events), *ending), error=dict(error), torn=not done)

    def with_keep_alives(self, places: Sequence[int]) -> Body:
        """Comments before the events at these places."""
        sent = list(self.sent)
        for place in sorted(places, reverse=True):
            sent.insert(place, Sent(KEEP_ALIVE, None, self.held_after(min(place, len(self.sent)))))
        return replace(self, sent=tuple(sent))

    def _before_done(self, events: int) -> tuple[Sent, ...]:
        return tuple(one for one in self.sent[:events] if one.data != DONE)
