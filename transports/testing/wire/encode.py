"""Scripts in, bytes of a ``/generate`` stream out, with the truth after every event.

:func:`encode` runs a :class:`~ssefold.transports.testing.Schedule` through the server that a
:class:`~ssefold.transports.testing.Profile` names.  Nothing here reads a stream.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from .body import Body, Sent
from .events import DONE, event
from .held import Held
from .manager import StreamFailedError
from .outputs import output_of
from .schedule import Schedule, eager, interval_sends

if TYPE_CHECKING:
    from ..profiles import Profile
    from ..script import Script


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
    outputs = list(scripts) if isinstance(scripts, Sequence) else [scripts]
    if schedule is None:
        schedule = _pace(outputs, interval)
    _check(outputs, profile, schedule)
    with_index = len(outputs) > 1 if listed is None else listed
    return _Run(outputs, profile, schedule, with_index=with_index, passed_through=frozenset(passed_through)).body()


def _pace(scripts: list[Script], interval: int) -> Schedule:
    sends: list[tuple[int, ...]] = []
    queued: list[int] = []
    for index, script in enumerate(scripts):
        tokens = len(script.token_ids)
        if script.finish.how == "queued":
            queued.append(index)
        # An output that never left the queue has its abort and nothing else.
        sends.append(interval_sends(tokens, interval) if tokens or script.finish.how != "queued" else ())
    return eager(sends, queued)


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
        self._with_index = with_index or profile.family in ("grpc", "grpc_pd")
        self._passed_through = passed_through
        self._outputs = [output_of(script, profile, index) for index, script in enumerate(scripts)]
        self._start = tuple(Held(script) for script in scripts)
        self._held = list(self._start)
        self._sent: list[Sent] = []

    def body(self) -> Body:
        """What was sent when the last moment has passed."""
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
        # Without an index an output's failure is the stream's.
        error = None if self._with_index else self._held[0].error
        return Body(tuple(self._sent), self._start, error=error)

    def _play(self) -> None:
        progress = [0] * len(self._scripts)
        taken: list[list[dict[str, Any]]] = [[] for _ in self._scripts]
        for what, i in self._schedule.moments:
            output, sends = self._outputs[i], self._schedule.sends[i]
            if what == "take":
                taken[i] = output.take()
            elif what == "write":
                for chunk in taken[i]:
                    self._write(i, chunk)
            elif progress[i] == len(sends):
                output.abort()
            else:
                last = progress[i] == len(sends) - 1 and self._scripts[i].finish.how in ("finished", "rejected")
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
