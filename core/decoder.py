"""One response body: bytes in, updates out.

Splits events, hands them to the outputs, and keeps the account of failures: no update that was folded before a failure
is lost, and nothing after one is folded.  Knows nothing of HTTP, sockets, requests or time.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from contextlib import suppress
from types import MappingProxyType
from typing import Literal

from .accumulator import Accumulator
from .errors import IncompleteStreamError, PayloadError, StreamError
from .fast import FastPath
from .fold.lanes import Mode
from .outputs import Outputs, are_events, no_blank_lines
from .snapshot import Snapshot
from .sse import SSEParser, as_bytes
from .update import Update

_MAX_EVENT_SIZE = 256 * 2**20
_FIELD = re.compile(rb"[A-Za-z][\w-]{0,30}:")


class GenerateDecoder:
    """Fold the body of one ``POST /generate`` with ``stream: true``.

    :param mode: see :class:`~ssefold.Accumulator`.
    :param on_bad_json: ``"skip"`` passes over payloads that are not JSON and counts them in :attr:`skipped`; counters
        still catch tokens that were lost with them.
    :param max_event_size: bound, in bytes, on what is buffered for one event.
    :param fast_path: False parses and plans every payload in full.  The results are the same; it takes longer.  Use
        it if you doubt a sample.
    :raises ValueError: an argument that is none of these.

    What is compared between chunks, what is not, and what a wrong value would do: docs/security.md, "What is trusted".
    """

    def __init__(
        self,
        *,
        mode: Mode = "auto",
        on_bad_json: Literal["raise", "skip"] = "raise",
        max_event_size: int = _MAX_EVENT_SIZE,
        fast_path: bool = True,
    ) -> None:
        if on_bad_json not in ("raise", "skip"):
            raise ValueError(f"on_bad_json must be 'raise' or 'skip', not {on_bad_json!r}")
        Accumulator(mode)  # an unknown mode is refused here, not at the first chunk
        self._parser = SSEParser(max_event_size=max_event_size)
        self._fast = FastPath(max_event_size) if fast_path else None
        self._outputs = Outputs(mode, self._skip if on_bad_json == "skip" else None, self._fast)
        # The parser has part of an event.
        self._in_event = False
        self._closed = False
        # Bytes of the body so far; and so many when the parser met the first line that is none of an event stream.
        self._size = 0
        self._stray_end = 0

        #: Outputs by SGLang's ``index`` (``n > 1``, batches); ``{0: ...}`` otherwise.
        self.outputs: Mapping[int, Accumulator] = MappingProxyType(self._outputs.by_index)
        #: What ended the stream early; raised by the next ``feed`` or ``close``.
        self.error: StreamError | None = None
        #: The body ended inside an event, which was dropped.
        self.cut: bool = False

    @property
    def skipped(self) -> int:
        """Number of skipped events: without content, with another name, or (``on_bad_json="skip"``) not JSON."""
        return self._outputs.skipped

    @property
    def done(self) -> bool:
        """``[DONE]`` was seen.  It does not mean success."""
        return self._outputs.done

    def feed(self, data: bytes | bytearray | memoryview) -> list[Update]:
        """Take the next bytes of the body, however they were cut, and return what they add.

        Updates folded before a failure are returned, :attr:`error` is set, and the next call raises it; a failure with
        no update before it is raised at once.

        :raises StreamError: the stream failed, now or before.
        :raises ValueError: the decoder was closed.
        """
        if self._closed:
            raise ValueError("feed() after close(): make a new GenerateDecoder for each response body")
        if self.error is not None:
            self._look_for_done(data)
            raise self.error
        updates: list[Update] = []
        fast = self._fast
        if type(data) is not bytes:
            data = as_bytes(data)
        self._size += len(data)
        try:
            if fast is not None and fast.ready is not None:
                if self._in_event:
                    data = self._end_event(data, updates)
                if not self._in_event and not (data := fast.follow(data, updates)):
                    return updates
            self._parse(data, updates, self._size)
            if self._parser.error is not None:
                raise self._parser.error
        except StreamError as error:
            self._fail(error)
            if not updates:
                raise
        return updates

    def close(self) -> None:
        """The body has ended.

        :raises StreamError: the failure that ended the stream early, or of one output (an error event with ``index``).
        :raises IncompleteStreamError: an output lacks its ``finish_reason``, or none came.
        """
        if self.error is None and not self._closed:
            try:
                if self._fast is not None:
                    self._parser.feed(self._fast.release())
                unfinished = self._parser.unfinished_data
                self.cut = self._parser.close()
                self._check_complete(unfinished)
            except StreamError as error:
                self._fail(error)
        self._closed = True
        if self.error is not None:
            raise self.error

    def snapshots(self) -> dict[int, Snapshot]:
        """A frozen copy of every output so far."""
        return {index: output.snapshot() for index, output in self.outputs.items()}

    def _end_event(self, data: bytes, updates: list[Update]) -> bytes:
        """Parse the rest of the event that the parser is in the middle of: what comes after it may be as expected."""
        end = data.find(b"\n\n") + 2
        if end < 2:
            return data
        try:
            self._parse(data[:end], updates, self._size - len(data) + end)
        except StreamError:
            self._look_for_done(data[end:])
            raise
        return data[end:]

    def _parse(self, data: bytes, updates: list[Update], end: int) -> None:
        """Parse and fold ``data``, of which the last byte is byte number ``end`` of the body."""
        parser = self._parser
        if parser.stray is None:
            self._stray_end = end
        self._outputs.fold(parser.feed(data), updates)
        self._in_event = not parser.is_between_events

    def _look_for_done(self, data: bytes | bytearray | memoryview) -> None:
        # Nothing is folded after a failure, but [DONE] after an error event is still worth knowing.
        with suppress(StreamError, ValueError):
            self._outputs.look_for_done(self._parser.feed(data))

    def _skip(self, data: bytes) -> None:
        """Called with a payload that is not JSON and is skipped; subclasses may log it."""

    def _check_complete(self, unfinished: bytes) -> None:
        if not self.outputs:
            self._check_is_stream(unfinished)
            raise IncompleteStreamError(
                "the body ended and no output came"
                + (", only [DONE]" if self.done else "")
                + self._outputs.passed_over
                + ". Servers up to 0.5.5 answer overload like this; a proxy may have cut the stream: retry the request"
            )
        for output in self.outputs.values():
            if output.error is not None:
                raise output.error
        open_ones = [output for output in self.outputs.values() if output.finish_reason is None]
        if open_ones:
            self._check_is_stream(unfinished)
            counts = ", ".join(f"index {output.index}: {len(output.token_ids)} tokens" for output in open_ones[:8])
            raise IncompleteStreamError(
                f"the body ended without a terminal finish_reason for {len(open_ones)} of {len(self.outputs)} outputs "
                f"({counts}; [DONE] {'seen' if self.done else 'not seen'}"
                f"{', cut inside an event' if self.cut else ''}{self._outputs.passed_over}). The server or a proxy "
                "closed early; resume from .partial"
            )

    def _check_is_stream(self, unfinished: bytes) -> None:
        """The body is not whole: was it an event stream at all, and did it stay one?

        :raises PayloadError: no; the message says from which byte on.
        """
        if are_events(unfinished):
            raise no_blank_lines(unfinished)
        stray = self._parser.stray
        # An unknown field is allowed in an event stream, and then no reason why it ended early.
        if stray is not None and not (self.outputs and _FIELD.match(stray[1])):
            at, line = self._stray_end - stray[0], stray[1]
            raise PayloadError(
                f"the body is no event stream {f'from byte {at} on' if at else 'at all'}: {line!r}. Look at what "
                "answered in the server's place: a gateway's error page, a shell, a log"
            )

    def _fail(self, error: StreamError) -> None:
        error.partial = self.snapshots()
        self.error = error
