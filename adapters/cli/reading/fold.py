"""A recorded body, folded event by event, with the findings of ``check``.

What the other commands print, draw and compare.  Knows the core; knows no terminal.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import chain
from typing import Literal, NamedTuple, TypeAlias

from ssefold import Accumulator, GenerateDecoder, IncompleteStreamError, PayloadError, StreamError, Update

from ..check import Checker, Finding, is_silence, no_stream
from .events import Event, events_of
from .files import Recording
from .native import fold_native

Mode = Literal["auto", "cumulative", "incremental"]
MODES = ("auto", "cumulative", "incremental")

_DONE = b"[DONE]"
_NO_LIMIT = 2**62
_FRONT = 1000


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

    :ivar native: it is a response with ``stream: false``; :ivar body: then all of it.
    :ivar outputs: by index, as far as they came.
    :ivar events: how many; :ivar steps: each of them, if requested.
    :ivar error: why it is a bad stream; None for a good one.  :ivar error_at: the offset of the event; None if it
        is no event's.  :ivar error_code: the code of ``check`` that explains it.
    """

    name: str
    size: int = 0
    native: bool = False
    body: bytes = b""
    outputs: Mapping[int, Accumulator] = field(default_factory=dict[int, Accumulator])
    events: int = 0
    steps: list[Step] = field(default_factory=list[Step])
    done: bool = False
    cut: bool = False
    error: StreamError | None = None
    error_at: int | None = None
    error_code: str = ""
    findings: list[Finding] = field(default_factory=list[Finding])

    def findings_of(self, index: int | None) -> list[Finding]:
        """Those of one output, or (None) of the stream."""
        return [one for one in self.findings if one.index == index]


class Folding(NamedTuple):
    """How to fold.

    :ivar mode: how the server was started; :ivar fast_path: False parses every payload in full.
    """

    mode: Mode = "auto"
    fast_path: bool = True

    def decoder(self) -> GenerateDecoder:
        """A decoder for one body."""
        return GenerateDecoder(mode=self.mode, max_event_size=_NO_LIMIT, fast_path=self.fast_path)


_BY_DEFAULT = Folding()

Watch: TypeAlias = Callable[[Event, Sequence[Update], Mapping[int, Accumulator]], None]
"""Sees each event with its updates and all outputs as it left them; also those after a failure, and what follows
the last event."""


def fold_recording(
    recording: Recording, how: Folding = _BY_DEFAULT, *, steps: bool = True, watch: Watch | None = None
) -> Reading:
    """Fold a body; never raises for what is in it.

    :param steps: keep each event's updates.
    :param watch: not called for a response with ``stream: false``.
    """
    pieces = recording.pieces()
    front = list(_up_to_content(pieces))
    pieces = chain(front, pieces)
    checker = Checker()
    if b"".join(front).lstrip()[:1] in (b"{", b"["):
        reading = _read_native(recording.name, b"".join(pieces), how, checker)
    else:
        reading = _read_stream(recording.name, events_of(pieces), how, checker, steps=steps, watch=watch)
    if recording.torn and (reading.error is None or reading.error_code in ("SG001", "SG201", "SG203")):
        # The file's own end explains the body's.
        reading.error, reading.error_at = IncompleteStreamError(recording.torn), None
        reading.error_code = checker.add("SG008", None, None, recording.torn.partition(": ")[2])
    reading.findings = checker.findings
    return reading


def _up_to_content(pieces: Iterator[bytes]) -> Iterator[bytes]:
    """Pieces up to the first that is more than blank."""
    for piece in pieces:
        yield piece
        if piece.strip():
            return


def _read_stream(
    name: str, events: Iterator[Event], how: Folding, checker: Checker, *, steps: bool, watch: Watch | None
) -> Reading:
    decoder = how.decoder()
    reading = Reading(name, outputs=decoder.outputs)
    front = b""
    for event in events:
        front = front or event.raw[:_FRONT]
        reading.size = event.end
        checker.look_at_bytes(event.offset, event.start, event.raw, plain=event.plain)
        if event.data is not None:
            reading.events += 1
        if event.data == _DONE:
            checker.done()
        updates: list[Update] = []
        try:
            updates = decoder.feed(event.raw)
        except StreamError as error:
            if reading.error is None:
                reading.error, reading.error_at = error, event.offset
                reading.error_code = checker.failure(event.offset, error, decoder.outputs, event.data, done=False)
        if reading.error is None and event.data is not None:
            if steps:
                reading.steps.append(Step(event.offset, event.end, tuple(updates)))
            checker.chunk(event.offset, event.data, updates, decoder.outputs)
        if watch is not None:
            watch(event, updates, decoder.outputs)
    with suppress(StreamError):  # the one that is known
        decoder.close()
    if reading.error is None and decoder.error is not None:
        is_none = not reading.events and not is_silence(front)
        reading.error = PayloadError(no_stream(front)) if is_none else decoder.error
        reading.error_code = checker.failure(None, reading.error, decoder.outputs, None, done=decoder.done)
    reading.done, reading.cut = decoder.done, decoder.cut
    checker.end(decoder.outputs, cut=decoder.cut, native=False)
    return reading


def _read_native(name: str, body: bytes, how: Folding, checker: Checker) -> Reading:
    outputs: dict[int, Accumulator] = {}
    reading = Reading(name, len(body), native=True, body=body, outputs=outputs)
    try:
        for index, (response, output, update) in enumerate(fold_native(body, how.mode)):
            outputs[index] = output
            reading.events += 1
            reading.steps.append(Step(0, len(body), (update,)))
            checker.chunk(None, response, [update], outputs)
        if not outputs or any(output.finish_reason is None for output in outputs.values()):
            raise IncompleteStreamError("a response has no meta_info.finish_reason: is it one of /generate, and whole?")
    except StreamError as error:
        reading.error = error
        reading.error_code = checker.failure(None, error, outputs, body, done=False, native=True)
    checker.end(outputs, cut=False, native=True)
    return reading
