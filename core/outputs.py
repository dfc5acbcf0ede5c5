"""The outputs of one response, and the shortest way for each payload into the right one.

There is one way that is always right: parse the payload, route it by ``index``, fold it (``fold.py``).  Four shorter
ways give the same result for the payloads that make up the bulk: what repeats is not parsed (``suffix.py``), nor is
what looks as it did but for one token (``step.py``); chunks of a settled incremental stream skip the planning
(``steady.py``), and many of them at once skip Python (``runs.py``).
Here it is decided which to try.  Knows nothing of bytes of the body, of ends and of who is told about failures.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from .accumulator import Accumulator, failure_of, server_error
from .errors import PayloadError, ProtocolError, ServerError, StreamError
from .fast.runs import RunFolder
from .fast.steady import fold_steady, fold_step
from .fast.suffix import SMALLEST, SuffixCutter, index_of
from .fold.lanes import INCREMENTAL, Mode
from .fold.payload import BadJSONError, parse_payload
from .limits import MAX_OUTPUTS
from .sse.event import ServerSentEvent
from .update import Update

DONE = b"[DONE]"


class Outputs:
    """Accumulators by index.  ``fold`` takes events in order; what it has not reached when it raises is not folded.

    :param on_bad_json: called with a payload that is not JSON, which is then passed over; None refuses it.
    """

    def __init__(self, mode: Mode, on_bad_json: Callable[[bytes], None] | None) -> None:
        self._mode: Mode = mode
        self._on_bad_json = on_bad_json
        self._cutters: dict[int, SuffixCutter] = {}
        self._runs = RunFolder()
        # Some output goes the steady way: worth trying before anything else.
        self._settled = False
        self.by_index: dict[int, Accumulator] = {}
        #: ``[DONE]`` was seen.
        self.done: bool = False

    def fold(self, events: list[ServerSentEvent], updates: list[Update]) -> None:
        """Fold events and append what they add to ``updates``.

        :raises StreamError: an event was refused, or reports a failure of the whole stream.
        """
        for at, event in enumerate(events):
            payload: Any = None
            if self._settled and (len(event[1]) < SMALLEST or not self._cutters) and event[0] == "message":
                try:
                    payload = parse_payload(event[1])
                    update = self._fold_steady(payload)
                except PayloadError:
                    update = None  # [DONE], or something to be refused in words
                if update is not None:
                    updates.append(update)
                    if self._cutters:
                        # One that did not see this payload would take the state for that of the one before.
                        self._cutters.pop(update.index, None)
                    continue
            try:
                update = self._take(event, payload)
            except StreamError:
                self.look_for_done(events[at + 1 :])
                raise
            if update is not None:
                updates.append(update)

    @property
    def expects_run(self) -> bool:
        """The next read may be events that look alike."""
        return self._settled and len(self.by_index) == 1 and not self._cutters and self._runs.is_worth_it

    def fold_run(self, data: bytes, updates: list[Update]) -> int:
        """Fold the events at the front of ``data`` that look alike; returns where the first other one begins."""
        state = next(iter(self.by_index.values())).state
        if state.steady is None or state.text.lane != INCREMENTAL:
            return 0
        run, end = self._runs.fold(state, data)
        updates += run
        return end

    def look_for_done(self, events: list[ServerSentEvent]) -> None:
        """Nothing is folded after a failure, but ``[DONE]`` behind an error event is still worth knowing."""
        self.done = self.done or any(event.data_bytes == DONE for event in events)

    def _fold_steady(self, payload: dict[str, Any]) -> Update | None:
        """The steady way, for a payload of only the usual keys."""
        if len(payload) == 3:
            output = self.by_index.get(0)
        elif len(payload) == 4 and type(payload.get("index")) is int:
            output = self.by_index.get(payload["index"])
        else:
            return None
        if output is None or output.state.steady is None or output.state.text.lane != INCREMENTAL:
            return None
        return fold_steady(output.state, payload)

    def _take(self, event: ServerSentEvent, payload: Any) -> Update | None:
        data = event.data_bytes
        if data == DONE:
            self.done = True
            return None
        if event.event == "error":
            self._reported(event)
            return None
        large = len(data) >= SMALLEST
        if large and payload is None:
            update = self._fold_suffix(data)
            if update is not None:
                return update
        try:
            if type(payload) is not dict:
                payload = parse_payload(data)
        except BadJSONError:
            if self._on_bad_json is None:
                raise
            self._on_bad_json(data)
            return None
        failure = server_error(payload)
        if failure is not None:
            self._refuse(failure, payload)
            return None
        index = _index(payload.get("index"))
        output = self.by_index.get(index)
        if output is None:
            output = self._new_output(index)
            update = output.fold(payload)
            self.by_index[index] = output
        elif output.is_over:
            return None
        else:
            update = output.fold(payload)
        if output.state.steady is not None and output.state.text.lane == INCREMENTAL:
            self._settled = True
            if len(update.token_ids) == 1 and event.event == "message":
                self._runs.example = data
        if large and not output.is_over:
            self._cutters.setdefault(index, SuffixCutter()).learn(data, payload, output.state)
        else:
            self._cutters.pop(index, None)  # it holds the last payload, and must not miss one
        return update

    def _fold_suffix(self, data: bytes) -> Update | None:
        """Fold a payload without parsing what repeats; None if that can not be done, and nothing has changed."""
        index = next(iter(self.by_index)) if len(self.by_index) == 1 else index_of(data)
        cutter = self._cutters.get(index)
        if cutter is None or not cutter.split(data):
            return None
        output = self.by_index[index]
        state = output.state
        is_delta = state.steady is not None and cutter.leaves_deltas and cutter.ids == len(state.token_ids)
        if is_delta and not cutter.constants:
            found = cutter.step(state)
            update = None if found is None else fold_step(state, cutter.reduced(), *found)
            if update is not None:
                cutter.take()
                cutter.ids += 1
                return update
        payload = cutter.parse()
        if payload is None:
            return None
        if (
            output.is_over
            or payload.get("error") is not None
            or _index(payload.get("index")) != index
            # What ends an output may begin with a second copy of something, or be no snapshot: parsed whole, once.
            or payload["meta_info"].get("finish_reason") is not None
        ):
            cutter.forget()
            return None
        if is_delta and (len(payload) == 3 or (len(payload) == 4 and "index" in payload)):
            for name in cutter.constants:
                payload["meta_info"][name] = state.meta[name]
            update = fold_steady(state, payload)
            if update is not None:
                cutter.ids += len(update.token_ids)
                if len(update.token_ids) == 1:
                    cutter.expect(state)
                return update
        skips = cutter.skips(state)
        if skips is None:
            cutter.forget()
            return None
        try:
            update = output.fold(payload, skips)
        except StreamError:
            cutter.forget()
            return None  # parsed whole, it fails with the whole story
        if skips.ids:
            cutter.ids = skips.ids + len(payload["output_ids"])
        return update

    def _new_output(self, index: int) -> Accumulator:
        if len(self.by_index) >= MAX_OUTPUTS:
            raise ProtocolError(
                f"index {index} would be output number {len(self.by_index) + 1} of one response, {MAX_OUTPUTS} are "
                "taken at most: send fewer prompts per request, or look who makes up indices"
            )
        return Accumulator(self._mode, index=index)

    def _reported(self, event: ServerSentEvent) -> None:
        """``event: error``: whatever its data is, the server says that it failed."""
        try:
            payload = parse_payload(event.data_bytes)
        except PayloadError:
            payload = {"error": event.data or "event: error without data"}
        self._refuse(server_error(payload) or failure_of(payload), payload)

    def _refuse(self, failure: ServerError, payload: dict[str, Any]) -> None:
        """A failure with an ``index`` is that output's alone; any other ends the stream."""
        index = payload.get("index")
        if type(index) is not int or index < 0:
            raise failure
        failure.index = index
        if index not in self.by_index:
            self.by_index[index] = self._new_output(index)
        self.by_index[index].fail(failure)


def _index(value: Any) -> int:
    if value is None:
        return 0
    if type(value) is int and value >= 0:
        return value
    raise PayloadError(f"index must be a whole number from 0, found {type(value).__name__} {value!r:.80}")
