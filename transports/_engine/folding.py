"""A stream between its bytes and whoever iterates: what has come, what waits to be handed out, and how it ended.

States: open, then either failed or ended.  Updates that were folded before a failure are handed out before it is
raised.  This module does no I/O: it is told of bytes, of the end, and of a break; synchronous and asynchronous streams
share it.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Mapping
from time import perf_counter
from typing import TYPE_CHECKING, Any

from ssefold import IncompleteStreamError, ProtocolError, ServerError, StreamError

from .metrics import StreamMetrics

if TYPE_CHECKING:
    from ssefold import Accumulator, GenerateDecoder, Snapshot, Update

    from .errors import TransportError
    from .options import Options
    from .request import PreparedRequest

_log = logging.getLogger("ssefold.transports")


class Folding:
    """The receiving end of one ``/generate`` call, over all its attempts."""

    def __init__(self, options: Options, request: PreparedRequest | None = None) -> None:
        self.metrics: StreamMetrics = StreamMetrics()
        self.waiting: deque[Update] = deque()
        self.failure: StreamError | None = None
        self.ended: bool = False
        self._options = options
        self._request = request
        self._expected = request.expected if request is not None else None
        self._decoder: GenerateDecoder = options.decoder()
        self._handed_out = False

    # ---- what has come

    @property
    def outputs(self) -> Mapping[int, Accumulator]:
        """Outputs by index."""
        return self._decoder.outputs

    def snapshots(self) -> dict[int, Snapshot]:
        """A frozen copy of every output that was asked for."""
        expected = self._expected
        found = self._decoder.snapshots()
        return {index: one for index, one in found.items() if expected is None or index < expected}

    @property
    def over(self) -> bool:
        """Nothing more will come."""
        return self.ended or self.failure is not None

    @property
    def complete(self) -> bool:
        """All outputs that were asked for have come to their end, whatever the connection does next."""
        outputs = self.outputs
        wanted = self._expected if self._expected is not None else len(outputs) if self._decoder.done else 0
        return len(outputs) >= wanted > 0 and all(
            output.finish_reason is not None or output.error is not None for output in outputs.values()
        )

    @property
    def says_done(self) -> bool:
        """Complete, and ``[DONE]`` was seen: only the end of the body is missing."""
        return self._decoder.done and self.complete

    # ---- what happens

    def attempt(self) -> None:
        """A request is about to be sent; what an earlier one brought is forgotten (it brought no update)."""
        if self.metrics.attempts:
            self._decoder = self._options.decoder()
            self.failure = None
            self.waiting.clear()
        self.metrics.request_started(perf_counter())
        request = self._request
        if request is not None:
            self.emit("request", url=request.place, rid=request.rid, attempt=self.metrics.attempts)

    def received(self, data: bytes | bytearray | memoryview) -> None:
        """Bytes of the body."""
        if self.over or not data:
            return
        arrived = perf_counter()
        updates: list[Update] = []
        try:
            updates = self._decoder.feed(data)
            self.failure = self._decoder.error
        except StreamError as error:
            self.failure = error
        had_token = self.metrics.ttft is not None
        self.metrics.received(len(data), updates, arrived, perf_counter() - arrived)
        if updates:
            self._accept(updates)
        if self.failure is None and self._expected is not None and len(self.outputs) > self._expected:
            self._fail(self._stray(max(self.outputs)))  # a failure that is said of an output makes it one
        if not had_token and self.metrics.ttft is not None:
            self.emit("first_token", ttft=self.metrics.ttft)

    def _accept(self, updates: list[Update]) -> None:
        expected = self._expected
        if expected is not None:
            for place, update in enumerate(updates):
                if update.index >= expected:
                    del updates[place:]
                    self._fail(self._stray(update.index))
                    break
        self.waiting.extend(updates)

    def _stray(self, index: int) -> ProtocolError:
        return ProtocolError(
            f"index {index} came, and the payload asks for {self._expected} output(s) (prompts x sampling_params.n): "
            "this is the answer to another request"
        )

    def end(self) -> None:
        """The body has ended as HTTP says it should."""
        if self.over:
            return
        try:
            self._decoder.close()
        except StreamError as error:
            self.failure = error
            return
        expected = self._expected
        if expected is not None and len(self.outputs) < expected:
            self._fail(
                IncompleteStreamError(
                    f"the body ended with {len(self.outputs)} of {expected} outputs (prompts x sampling_params.n); "
                    f"indexes that came: {sorted(self.outputs)}. Did a gateway drop sampling_params.n or a prompt?"
                )
            )
            return
        self.ended = True

    def broke(self, error: TransportError) -> None:
        """The connection failed.  After everything has come that is no failure any more."""
        if self.over:
            return
        if self.complete:
            self.end()
            return
        self._fail(error)

    def idled(self, error: TransportError) -> None:
        """Nothing came for too long.  What came since then, while the server was told to stop, is kept."""
        if self.failure is None:
            self._fail(error)

    def _fail(self, error: StreamError) -> None:
        error.partial = self.snapshots()
        self.failure = error
        if not self.ended:
            self._decoder.error = self._decoder.error or error

    # ---- handing out

    def next(self) -> Update | None:
        """The next update, or None when more has to be read.

        :raises StreamError: the stream failed, and everything before that was handed out.
        """
        if self.waiting:
            self._handed_out = True
            return self.waiting.popleft()
        if self.failure is not None:
            raise self.failure
        return None

    # ---- decisions

    def shed(self) -> StreamError | None:
        """Why this attempt was turned away with 503 inside the stream, if it was and nothing else has come."""
        if self._handed_out:
            return None
        failure = self.failure
        if isinstance(failure, ServerError) and failure.index is None and not self.waiting and not self.outputs:
            return failure if str(failure.code) == "503" else None
        if self._expected == 1 and len(self.waiting) == 1:
            reason = self.waiting[0].finish_reason
            if reason is not None and reason.retryable and not self.waiting[0].token_ids:
                return ServerError(reason.message or "the server shed the request", code=503)
        return None

    def ids_to_abort(self) -> list[str]:
        """The ids of what the server may still be generating.

        Seen outputs are named by their ``meta_info.id``; those not yet seen by the ids that the server gives them,
        which with ``n > 1`` nobody knows before they come.
        """
        failure = self.failure
        if self.complete or (isinstance(failure, ServerError) and failure.index is None and self._expected == 1):
            return []
        ids: list[str] = []
        for output in self.outputs.values():
            if output.finish_reason is None and output.error is None:
                found = output.meta_info.get("id")
                if isinstance(found, str) and found:
                    ids.append(found)
        request = self._request
        if request is not None and (request.samples == 1 or not self.outputs):
            ids += [rid for index, rid in enumerate(request.rids) if index not in self.outputs]
        return list(dict.fromkeys(ids))

    def emit(self, name: str, /, **data: Any) -> None:
        """Tell the caller's hook; its failures are logged, never raised."""
        hook = self._options.on_event
        if hook is None:
            return
        try:
            hook(name, data)
        except Exception:  # noqa: BLE001  # whatever it is, the stream is worth more than its observer
            _log.exception("on_event(%r, ...) failed", name)
