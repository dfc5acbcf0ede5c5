"""Scripts in, bytes of a ``/generate`` stream out, with the truth after every event.

:func:`encode` runs a :class:`~ssefold.transports.testing.schedule.Schedule` through the server that a
:class:`~ssefold.transports.testing.profiles.Profile` names.  A :class:`Body` can then be made to end in every other way
that streams end.  Nothing here reads a stream.
"""

from __future__ import annotations

import json
from bisect import bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate
from typing import TYPE_CHECKING, Any, Protocol

from .gateways import GrpcGatewayOutput, RustOutput
from .held import Held
from .manager import ManagedOutput, StreamFailedError
from .schedule import Schedule, eager, interval_sends
from .wirejson import DONE, event

if TYPE_CHECKING:
    from .profiles import Profile
    from .script import Script

KEEP_ALIVE = b":\n\n"
"""The comment that Dynamo's front end sends when nothing else happens (axum's ``KeepAlive``)."""


class _Output(Protocol):
    def send(self, new_tokens: int, *, last: bool) -> None: ...
    def abort(self) -> None: ...
    def take(self) -> list[dict[str, Any]]: ...
    def held_after(self, payload: dict[str, Any]) -> Held: ...


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
    :ivar error: the stream-wide error event, if one is in it.
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

    # ---- other ends (``wire`` section d)

    def without_done(self) -> Body:
        """Everything but ``[DONE]``: a proxy that closed early (row 12)."""
        return replace(self, sent=tuple(one for one in self.sent if one.data != DONE))

    def cut(self, length: int) -> Body:
        """The first ``length`` bytes, then the connection is gone (rows 9 to 11)."""
        whole = self.events_in(length)
        kept = self.sent[:whole]
        return replace(self, sent=kept, torn=True, tail=self.data[sum(len(one.data) for one in kept) : length])

    def stopped(self, events: int) -> Body:
        """So many events, then ``[DONE]`` although outputs are open (row 13)."""
        held = self.held_after(events)
        kept = tuple(one for one in self.sent[:events] if one.data != DONE)
        return replace(self, sent=(*kept, Sent(DONE, None, held)))

    def failed(self, events: int, error: Mapping[str, Any], *, done: bool = True) -> Body:
        """So many events, then an error event for the whole stream (row 7)."""
        payload = {"error": dict(error)}
        held = self.held_after(events)
        ending = (Sent(event(payload), payload, held), *((Sent(DONE, None, held),) if done else ()))
        kept = tuple(one for one in self.sent[:events] if one.data != DONE)
        return replace(self, sent=(*kept, *ending), error=dict(error), torn=not done)

    def with_keep_alives(self, places: Sequence[int]) -> Body:
        """Comments before the events at these places."""
        sent = list(self.sent)
        for place in sorted(places, reverse=True):
            sent.insert(place, Sent(KEEP_ALIVE, None, self.held_after(min(place, len(self.sent)))))
        return replace(self, sent=tuple(sent))


def encode(
    scripts: Sequence[Script] | Script,
    profile: Profile,
    schedule: Schedule | None = None,
    *,
    listed: bool | None = None,
    interval: int = 1,
    passed_through: Sequence[int] = (),
) -> Body:
    """The body that this server sends for these outputs.

    :param scripts: the outputs in index order; ``n`` samples of prompt ``i`` are ``i*n .. i*n+n-1``.
    :param schedule: what happens when; default: a reader that keeps pace with a server of this ``interval``.
    :param listed: the request was list-shaped or had ``n > 1``: chunks carry ``index``.  Default: more than one output.
    :param passed_through: for the HTTP gateway of a prefill-decode pair: the events that it could not rewrite.
    """
    outputs = [scripts] if not isinstance(scripts, Sequence) else list(scripts)
    if schedule is None:
        sends = [interval_sends(len(script.token_ids), interval) for script in outputs]
        queued = [i for i, script in enumerate(outputs) if script.finish.how == "queued"]
        # An output that was never more than queued has only its abort.
        schedule = eager(
            [() if i in queued and not outputs[i].token_ids else part for i, part in enumerate(sends)], queued
        )
    _check(outputs, profile, schedule)
    with_index = len(outputs) > 1 if listed is None else listed
    return _Run(outputs, profile, schedule, with_index=with_index, passed_through=frozenset(passed_through)).body()


class _Run:
    """One pass through the moments of a schedule."""

    def __init__(
        self,
        scripts: list[Script],
        profile: Profile,
        schedule: Schedule,
        *,
        with_index: bool,
        passed_through: frozenset[int],
    ) -> None:
        self._scripts = scripts
        self._profile = profile
        self._schedule = schedule
        self._with_index = with_index or profile.family.startswith("grpc")
        self._passed_through = passed_through
        self._outputs = [_output(script, profile, index) for index, script in enumerate(scripts)]
        self._start = tuple(Held(script) for script in scripts)
        self._held = list(self._start)
        self._sent: list[Sent] = []

    def body(self) -> Body:
        try:
            self._play()
        except StreamFailedError as failure:
            if failure.error is None:
                return Body(tuple(self._sent), self._start, torn=True)
            self._emit(event(failure.error), failure.error)
            self._emit(DONE, None)
            return Body(tuple(self._sent), self._start, error=failure.error["error"])
        if any(script.finish.how == "unfinished" for script in self._scripts):
            return Body(tuple(self._sent), self._start, torn=True)
        self._emit(DONE, None)
        error = None
        if not self._with_index and self._held[0].error is not None:
            error = self._held[0].error
        return Body(tuple(self._sent), self._start, error=error)

    def _play(self) -> None:
        progress = [0] * len(self._scripts)
        taken: list[list[dict[str, Any]]] = [[] for _ in self._scripts]
        for what, i in self._schedule.moments:
            script, output, sends = self._scripts[i], self._outputs[i], self._schedule.sends[i]
            if what == "take":
                taken[i] = output.take()
            elif what == "write":
                for chunk in taken[i]:
                    self._write(i, chunk)
            elif progress[i] == len(sends):
                output.abort()
            else:
                last = progress[i] == len(sends) - 1 and script.finish.how in ("finished", "rejected")
                output.send(sends[progress[i]], last=last)
                progress[i] += 1

    def _write(self, index: int, chunk: dict[str, Any]) -> None:
        if self._profile.family == "http_pd" and len(self._sent) not in self._passed_through:
            chunk = self._rewrite(index, chunk)
        if self._with_index:
            chunk = {**chunk, "index": index}
        data = event(chunk)
        payload: dict[str, Any] = json.loads(data[len(b"data: ") :])
        self._held[index] = self._outputs[index].held_after(payload)
        self._emit(data, payload)

    def _rewrite(self, index: int, chunk: dict[str, Any]) -> dict[str, Any]:
        """The gateway puts the prefill worker's rows before the decode worker's, which are none."""
        meta = chunk["meta_info"]
        if "input_token_logprobs" not in meta:
            return chunk
        rows = [[logprob, token_id, None] for logprob, token_id in self._scripts[index].input_logprobs]
        return {**chunk, "meta_info": {**meta, "input_token_logprobs": [*rows, *meta["input_token_logprobs"]]}}

    def _emit(self, data: bytes, payload: dict[str, Any] | None) -> None:
        self._sent.append(Sent(data, payload, tuple(self._held)))


def _output(script: Script, profile: Profile, index: int) -> _Output:
    if profile.family == "rust":
        return RustOutput(script, profile)
    if profile.family.startswith("grpc"):
        return GrpcGatewayOutput(script, profile, index=index)
    if profile.family == "http_pd":
        # A decode worker has no prompt logprobs (output_streamer: "Decode server does not send input logprobs").
        decode_side = replace(script, input_logprobs=(), input_top_logprobs=(), input_ids_logprobs=())
        return ManagedOutput(decode_side, profile)
    return ManagedOutput(script, profile)


def _check(scripts: list[Script], profile: Profile, schedule: Schedule) -> None:
    if len(schedule.sends) != len(scripts):
        raise ValueError(f"the schedule has {len(schedule.sends)} outputs for {len(scripts)} scripts")
    for index, (script, sends) in enumerate(zip(scripts, schedule.sends, strict=True)):
        if sum(sends) != len(script.token_ids):
            raise ValueError(f"output {index}: {sum(sends)} tokens are sent of {len(script.token_ids)}")
        happening = sum(moment == ("send", index) for moment in schedule.moments)
        wanted = len(sends) + (script.finish.how == "queued")
        if happening != wanted:
            raise ValueError(f"output {index}: {happening} moments to send, {wanted} things to be sent")
    if profile.family == "dynamo" and len(scripts) > 1:
        raise ValueError("Dynamo takes one prompt and one sample")
