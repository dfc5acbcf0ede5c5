"""One response body: bytes in, updates out.

Splits events, parses payloads, sends each chunk to the accumulator of its output, and keeps the account of failures:
no update that was folded before a failure is lost, and nothing after one is folded.  Knows nothing of HTTP, sockets,
requests or time.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import suppress
from types import MappingProxyType
from typing import Any, Literal

from .accumulator import Accumulator, server_error
from .errors import IncompleteStreamError, PayloadError, ServerError, StreamError
from .lanes import Mode
from .payload import BadJSONError, parse_payload
from .snapshot import Snapshot
from .sse import SSEParser
from .sse_event import ServerSentEvent
from .update import Update

_MAX_EVENT_SIZE = 256 * 2**20
_DONE = b"[DONE]"


class GenerateDecoder:
    """Fold the body of one ``POST /generate`` with ``stream: true``.

    :param mode: see :class:`~ssefold.Accumulator`.
    :param on_bad_json: ``"skip"`` passes over payloads that are not JSON and counts them in :attr:`skipped`; counters
        still catch tokens that were lost with them.
    :param max_event_size: bound, in bytes, on what is buffered for one event.
    :raises ValueError: an argument that is none of these.
    """

    def __init__(
        self,
        *,
        mode: Mode = "auto",
        on_bad_json: Literal["raise", "skip"] = "raise",
        max_event_size: int = _MAX_EVENT_SIZE,
    ) -> None:
        if on_bad_json not in ("raise", "skip"):
            raise ValueError(f"on_bad_json must be 'raise' or 'skip', not {on_bad_json!r}")
        Accumulator(mode)  # an unknown mode is refused here, not at the first chunk
        self._mode: Mode = mode
        self._skip_bad_json = on_bad_json == "skip"
        self._parser = SSEParser(max_event_size=max_event_size)
        self._outputs: dict[int, Accumulator] = {}
        self._closed = False
        #: Outputs by SGLang's ``index`` (``n > 1``, batches); ``{0: ...}`` otherwise.
        self.outputs: Mapping[int, Accumulator] = MappingProxyType(self._outputs)
        #: ``[DONE]`` was seen.  It does not mean success.
        self.done = False
        #: What ended the stream early; raised by the next ``feed`` or ``close``.
        self.error: StreamError | None = None
        #: Payloads passed over under ``on_bad_json="skip"``.
        self.skipped = 0
        #: The body ended inside an event, which was dropped.
        self.cut = False

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
        events: Iterator[ServerSentEvent] = iter(())
        try:
            events = iter(self._parser.feed(data))
            for event in events:
                update = self._take(event)
                if update is not None:
                    updates.append(update)
        except StreamError as error:
            self._fail(error)
            self.done = self.done or any(event.data_bytes == _DONE for event in events)
            if not updates:
                raise
        return updates

    def close(self) -> None:
        """The body has ended.

        :raises StreamError: the failure that ended the stream early, or of one output (an error event with ``index``).
        :raises IncompleteStreamError: an output lacks its ``finish_reason``, or none came.
        """
        if self.error is None and not self._closed:
            self._closed = True
            try:
                self.cut = self._parser.close()
                self._check_complete()
            except StreamError as error:
                self._fail(error)
        if self.error is not None:
            raise self.error

    def snapshots(self) -> dict[int, Snapshot]:
        """A frozen copy of every output so far."""
        return {index: output.snapshot() for index, output in self._outputs.items()}

    def _look_for_done(self, data: bytes | bytearray | memoryview) -> None:
        # Nothing is folded after a failure, but [DONE] behind an error event is still worth knowing.
        with suppress(StreamError, ValueError):
            self.done = self.done or any(event.data_bytes == _DONE for event in self._parser.feed(data))

    def _take(self, event: ServerSentEvent) -> Update | None:
        data = event.data_bytes
        if data == _DONE:
            self.done = True
            return None
        if event.event == "error":
            self._reported(event)
            return None
        try:
            payload = parse_payload(data)
        except BadJSONError:
            if self._skip_bad_json:
                self.skipped += 1
                return None
            raise
        failure = server_error(payload)
        if failure is not None:
            self._refuse(failure, payload)
            return None
        index = _index(payload.get("index"))
        output = self._outputs.get(index)
        if output is None:
            output = Accumulator(self._mode, index=index)
            update = output.fold(payload)
            self._outputs[index] = output
            return update
        if output.finish_reason is not None or output.error is not None:
            return None
        return output.fold(payload)

    def _reported(self, event: ServerSentEvent) -> None:
        """``event: error``: whatever its data is, the server says that it failed."""
        try:
            payload = parse_payload(event.data_bytes)
        except PayloadError:
            payload = {"error": event.data or "event: error without data"}
        failure = server_error(payload) or server_error({"error": payload})
        if failure is not None:
            self._refuse(failure, payload)

    def _refuse(self, failure: ServerError, payload: dict[str, Any]) -> None:
        index = payload.get("index")
        if type(index) is not int or index < 0:
            raise failure
        failure.index = index
        if index not in self._outputs:
            self._outputs[index] = Accumulator(self._mode, index=index)
        self._outputs[index].fail(failure)

    def _check_complete(self) -> None:
        if not self._outputs:
            raise IncompleteStreamError(
                "the body ended and no output came"
                + (", only [DONE]" if self.done else "")
                + ". Servers up to 0.5.5 answer overload like this; a proxy may have cut the stream: retry the request"
            )
        for output in self._outputs.values():
            if output.error is not None:
                raise output.error
        open_ones = [output for output in self._outputs.values() if output.finish_reason is None]
        if open_ones:
            counts = ", ".join(f"index {output.index}: {len(output.token_ids)} tokens" for output in open_ones[:8])
            raise IncompleteStreamError(
                f"the body ended without a terminal finish_reason for {len(open_ones)} of {len(self._outputs)} outputs "
                f"({counts}; [DONE] {'seen' if self.done else 'not seen'}"
                f"{', cut inside an event' if self.cut else ''}). The server or a proxy closed early; what came is in "
                ".partial and can be resumed"
            )

    def _fail(self, error: StreamError) -> None:
        error.partial = self.snapshots()
        self.error = error


def _index(value: Any) -> int:
    if value is None:
        return 0
    if type(value) is int and value >= 0:
        return value
    raise PayloadError(f"index must be a whole number from 0, found {type(value).__name__} {value!r:.80}")
