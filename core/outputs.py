"""The outputs of one response: each event's payload to the right one, by ``index``.

Knows nothing of the bytes of the body, of how it ends, and of how failures are reported.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from .accumulator import Accumulator
from .errors import PayloadError, ProtocolError, ServerError, StreamError
from .fast import FastPath
from .fold import BadJSONError, Mode, failure_of, parse_payload, server_error
from .limits import MAX_OUTPUTS
from .sse import ServerSentEvent
from .update import Update

DONE = b"[DONE]"
_SHOWN = 80
_OURS = frozenset({"text", "output_ids", "meta_info", "index", "error"})
_OUR_NAMES = tuple(f'"{name}"'.encode() for name in _OURS)
_OTHER_APIS = {
    "choices": "the OpenAI route (/v1/completions, /v1/chat/completions)",
    "object": "the OpenAI route (/v1/completions, /v1/chat/completions)",
    "candidates": "Google's generateContent",
    "content_block": "Anthropic's route (/v1/messages)",
    "delta": "Anthropic's route (/v1/messages)",
    "generated_text": "Hugging Face's text generation",
}


class Outputs:
    """Accumulators by index.  ``fold`` takes events in order; what it has not reached when it raises is not folded.

    :param on_bad_json: called with a payload that is not JSON, which is then passed over; None refuses it.
    """

    def __init__(self, mode: Mode, on_bad_json: Callable[[bytes], None] | None, fast: FastPath | None) -> None:
        self._mode: Mode = mode
        self._on_bad_json = on_bad_json
        self._fast = fast
        self.by_index: dict[int, Accumulator] = {}
        #: ``[DONE]`` was seen.
        self.done: bool = False
        #: Events that were passed over, and the first of them.
        self.skipped: int = 0
        self._first_skipped: bytes = b""

    @property
    def passed_over(self) -> str:
        """What an error says about events that were passed over; nothing if there were none."""
        if not self.skipped:
            return ""
        return f"; {self.skipped} events were passed over, the first begins with {self._first_skipped!r}"

    def fold(self, events: list[ServerSentEvent], updates: list[Update]) -> None:
        """Fold events and append what they add to ``updates``.

        :raises StreamError: an event was refused, or reports a failure of the whole stream.
        """
        fast = self._fast
        for at, event in enumerate(events):
            if fast is not None and event[0] == "message":
                update = fast.fold(event[1])
                if update is not None:
                    updates.append(update)
                    continue
            try:
                update = self._take(event)
            except StreamError:
                self.look_for_done(events[at + 1 :])
                raise
            if update is not None:
                updates.append(update)

    def look_for_done(self, events: list[ServerSentEvent]) -> None:
        """Nothing is folded after a failure, but ``[DONE]`` after an error event is still worth knowing."""
        self.done = self.done or any(event.data_bytes == DONE for event in events)

    def _take(self, event: ServerSentEvent) -> Update | None:
        data = event.data_bytes
        if data == DONE:
            self.done = True
            return None
        if event.event == "error":
            self._reported(event)
            return None
        payload = self._payload(event)
        if payload is None:
            self.skipped += 1
            if self.skipped == 1:
                self._first_skipped = data[:_SHOWN]
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
            output.fold(payload)  # a repeat, or refused
            return None
        else:
            update = output.fold(payload)
        if self._fast is not None:
            self._fast.learn(output.state, data)
        return update

    def _payload(self, event: ServerSentEvent) -> dict[str, Any] | None:
        """What the event says; None if it says nothing to us.

        :raises PayloadError: it is not JSON, not an object, or the answer of another API.
        """
        data = event.data_bytes
        if not data.strip():
            return None  # gateways keep connections alive with it
        try:
            payload = parse_payload(data)
        except PayloadError as error:
            if are_events(data):
                raise no_blank_lines(data) from error
            if event.event != "message" and not any(name in data for name in _OUR_NAMES):
                return None  # event: ping, with a time or a word as its data
            if self._on_bad_json is None or not isinstance(error, BadJSONError):
                raise
            self._on_bad_json(data)
            return None
        if not _OURS.isdisjoint(payload):
            return payload
        for name, api in _OTHER_APIS.items():
            if name in payload:
                raise PayloadError(
                    f"the event is no chunk of /generate: it has {name!r} and none of text, output_ids, meta_info. "
                    f"This is {api}; use /generate, SGLang's own route. It begins with {data[:_SHOWN]!r}"
                )
        return None

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
        if self._fast is not None:
            self._fast.forget(index)


def _index(value: Any) -> int:
    if value is None:
        return 0
    if type(value) is int and value >= 0:
        return value
    raise PayloadError(f"index must be a whole number from 0, found {type(value).__name__} {value!r:.80}")


def are_events(data: bytes) -> bool:
    """The first two lines of an event's data are complete payloads: the blank line between them is missing."""
    lines = data.split(b"\n", 2)[:2]
    return len(lines) == 2 and all(line == DONE or _is_object(line) for line in lines)


def no_blank_lines(data: bytes) -> PayloadError:
    """The error for events without a blank line between them."""
    lines = data.count(b"\n") + 1
    return PayloadError(
        f"{lines} lines of data came as one event, and the first two are complete payloads: blank lines between "
        f"events are missing; a gateway drops them. The first begins with {data[:_SHOWN]!r}"
    )


def _is_object(line: bytes) -> bool:
    try:
        parse_payload(line)
    except PayloadError:
        return False
    return True
