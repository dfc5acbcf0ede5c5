"""A recorded body, folded event by event, with everything that was remarkable on the way.

What the other commands print, draw and compare.  Knows the core; knows no terminal.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple

from ssefold import Accumulator, GenerateDecoder, IncompleteStreamError, PayloadError, StreamError, Update
from ssefold.fold.payload import BadJSONError, parse_payload

from ..check import Checker, Finding
from .events import events_of
from .files import Recording

Mode = Literal["auto", "cumulative", "incremental"]
MODES = ("auto", "cumulative", "incremental")

_DONE = b"[DONE]"
_NO_LIMIT = 2**62


class Step(NamedTuple):
    """One event.

    :ivar offset: where it stands in the body; :ivar end: where it ends.
    :ivar updates: what it brought; empty for ``[DONE]``, error events and what was ignored.
    """

    offset: int
    end: int
    updates: tuple[Update, ...]


@dataclass
class Reading:
    """What a body says.

    :ivar native: it is a response with ``stream: false``.
    :ivar outputs: by index, as far as they came.
    :ivar error: why it is a bad stream; None for a good one.  :ivar error_at: the offset of the event.
    """

    name: str
    size: int
    native: bool
    outputs: Mapping[int, Accumulator] = field(default_factory=dict[int, Accumulator])
    steps: list[Step] = field(default_factory=list[Step])
    done: bool = False
    cut: bool = False
    error: StreamError | None = None
    error_at: int = 0
    findings: list[Finding] = field(default_factory=list[Finding])

    def findings_of(self, index: int | None) -> list[Finding]:
        """Those of one output, or (None) of the stream."""
        return [one for one in self.findings if one.index == index]


def fold_recording(recording: Recording, mode: Mode = "auto") -> Reading:
    """Fold a body; never raises for what is in it."""
    fold = _fold_native if recording.is_native else _fold_stream
    reading = fold(recording, mode)
    if recording.torn and (reading.native or isinstance(reading.error, IncompleteStreamError | None)):
        # The file's own end explains the body's.
        reading.error, reading.error_at = IncompleteStreamError(recording.torn), reading.size
    return reading


def _fold_stream(recording: Recording, mode: Mode) -> Reading:
    body = recording.data
    decoder = GenerateDecoder(mode=mode, max_event_size=_NO_LIMIT)
    reading = Reading(recording.name, len(body), False, decoder.outputs)
    checker = Checker()
    checker.look_at_bytes(body)
    end = 0
    for event in events_of(body):
        end = event.end
        if event.data == _DONE:
            checker.done()
        try:
            updates = decoder.feed(body[event.start : event.end])
        except StreamError as error:
            checker.failure(event.offset, error, decoder.outputs, done=decoder.done)
            reading.error, reading.error_at = error, event.offset
            break
        reading.steps.append(Step(event.offset, event.end, tuple(updates)))
        payload = _payload(event.data)
        if payload is not None:
            checker.chunk(event.offset, payload, updates, decoder.outputs)
    if reading.error is None:
        try:
            decoder.feed(body[end:])
            decoder.close()
        except StreamError as error:
            checker.failure(len(body), error, decoder.outputs, done=decoder.done)
            reading.error, reading.error_at = error, len(body)
    else:
        # Nothing after a failure is folded, but whether [DONE] came is worth knowing.
        _look_on(decoder, body[end:])
    reading.done, reading.cut = decoder.done, decoder.cut
    checker.end(len(body), decoder.outputs, cut=decoder.cut, native=False)
    reading.findings = checker.findings
    return reading


def _fold_native(recording: Recording, mode: Mode) -> Reading:
    outputs: dict[int, Accumulator] = {}
    reading = Reading(recording.name, len(recording.data), True, outputs)
    checker = Checker()
    try:
        for index, response in enumerate(_responses(recording.data)):
            output = Accumulator(mode, index=index)
            update = output.add(response)
            outputs[index] = output
            reading.steps.append(Step(0, len(recording.data), (update,)))
            checker.chunk(0, {**response, "index": index}, [update], outputs)
        if not outputs or any(output.finish_reason is None for output in outputs.values()):
            raise IncompleteStreamError("a response has no meta_info.finish_reason: is it one of /generate, and whole?")
    except StreamError as error:
        checker.failure(0, error, outputs, done=False)
        reading.error = error
    checker.end(len(recording.data), outputs, cut=False, native=True)
    reading.findings = checker.findings
    return reading


def _responses(body: bytes) -> list[Any]:
    try:
        value = json.loads(body)
    except (ValueError, RecursionError) as error:
        raise BadJSONError(f"it begins like JSON, which it is not, and is no event stream: {error}") from error
    responses: list[Any] = value if isinstance(value, list) else [value]
    for response in responses:
        if not isinstance(response, dict):
            raise PayloadError(f"a response must be a JSON object, found {type(response).__name__}")
    return responses


def _payload(data: bytes) -> dict[str, Any] | None:
    if data == _DONE:
        return None
    try:
        return parse_payload(data)
    except PayloadError:
        return None


def _look_on(decoder: GenerateDecoder, rest: bytes) -> None:
    try:
        decoder.feed(rest)
        decoder.close()
    except StreamError:
        return
