"""A stream between its bytes and its iteration: the outputs so far, the updates that wait, and how the stream ended.

States: open, then either failed or ended.  Updates that were folded before a failure are returned before it is raised.
This module does no I/O: its methods get the bytes, the end, or the failure.  Synchronous and asynchronous streams share
it.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Mapping, Sequence
from math import inf
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
    """The receiving end of one ``/generate`` call, over all its attempts.

    :ivar waiting: updates to be returned by the iteration; ``handed_out``: one was returned.
    :ivar complete: all outputs that were asked for have come to their end; whatever the connection does next is no
        failure any more.
    :ivar over: nothing more will come.
    """

    def __init__(self, options: Options, request: PreparedRequest | None = None) -> None:
        self.metrics: StreamMetrics = StreamMetrics()
        self.waiting: deque[Update] = deque()
        self.handed_out: bool = False
        self.failure: StreamError | None = None
        self.ended: bool = False
        self.over: bool = False
        self.complete: bool = False
        self._options = options
        self._request = request
        self._expected = request.expected if request is not None else None
        # No output has this index or a higher one.
        self._limit: float = inf if self._expected is None else self._expected
        self._awaits_token: bool = True
        self._decoder: GenerateDecoder = options.decoder()
        self._held: list[tuple[str, dict[str, Any]]] | None = None

    # ---- what has come

    @property
    def outputs(self) -> Mapping[int, Accumulator]:
        """Outputs by index."""
        return self._decoder.outputs

    def snapshots(self) -> dict[int, Snapshot]:
        """A frozen copy of every output that was asked for."""
        return {index: one for index, one in self._decoder.snapshots().items() if index < self._limit}

    def _is_complete(self) -> bool:
        expected, outputs = self._expected, self.outputs
        if expected is None:
            expected = len(outputs) if self._decoder.done else 0
        return expected > 0 and all(
            index in outputs and (outputs[index].finish_reason is not None or outputs[index].error is not None)
            for index in (range(expected) if self._expected is not None else outputs)
        )

    # ---- what happens

    def attempt(self) -> None:
        """A request is about to be sent; what an earlier one brought is forgotten (it brought no update)."""
        if self.metrics.attempts:
            self._decoder = self._options.decoder()
            self.failure = None
            self.over = self.complete = False
            self.waiting.clear()
        self.metrics.request_started(perf_counter())
        request = self._request
        if request is not None:
            self.emit("request", url=request.place, rid=request.rid, attempt=self.metrics.attempts)

    def received(self, data: bytes) -> None:
        """Bytes of the body."""
        if self.over or not data:
            return
        decoder, metrics = self._decoder, self.metrics
        updates: Sequence[Update] = ()
        arrived = perf_counter()
        try:  # noqa: SIM105  # suppress() would cost as much as the rest of this method
            updates = decoder.feed(data)
        except StreamError:  # it stays in decoder.error
            pass
        metrics.received(arrived, len(data), updates)
        self.waiting.extend(updates)
        if (
            len(updates) != 1
            or updates[0].finish_reason is not None
            or updates[0].index >= self._limit
            or len(decoder.outputs) > self._limit
            or decoder.error is not None
        ):
            self._look(decoder.error)
        if self._awaits_token and metrics.ttft is not None:
            self._awaits_token = False
            self.emit("first_token", ttft=metrics.ttft)

    def _look(self, failure: StreamError | None) -> None:
        """Something other happened than one more update of an output that goes on."""
        self.complete = self._is_complete()
        strays = max(self.outputs, default=0) >= self._limit
        if strays:
            # Nothing counts after the first of them, unless what was asked for is complete without it.
            for update in [self.waiting.popleft() for _ in range(len(self.waiting))]:
                if update.index < self._limit:
                    self.waiting.append(update)
                elif not self.complete:
                    break
        if self.complete and not isinstance(failure, ProtocolError):
            return  # a chunk that contradicts the end is a failure, nothing else is
        if failure is not None:
            self.failure, self.over = failure, True
        elif strays:
            self._fail(
                ProtocolError(
                    f"index {max(self.outputs)} came, and the payload asks for {self._expected} output(s) (prompts x "
                    "sampling_params.n): this is the answer to another request"
                )
            )

    def end(self) -> None:
        """The body has ended as HTTP says it should, or is not waited for any longer."""
        if self.over:
            return
        expected, outputs = self._expected, self.outputs
        failed = [output.error for output in outputs.values() if output.error is not None]
        if self.complete and not failed:
            self.ended = self.over = True
            return
        try:
            self._decoder.close()
        except StreamError as error:
            self._fail(failed[0] if self.complete else error)
            return
        if expected is not None and len(outputs) < expected:
            self._fail(
                IncompleteStreamError(
                    f"the body ended with {len(outputs)} of {expected} outputs (prompts x sampling_params.n); "
                    f"indexes that came: {sorted(outputs)}. Did a gateway drop sampling_params.n or a prompt?"
                )
            )
            return
        self.ended = self.over = True

    def broke(self, error: TransportError) -> None:
        """The connection failed."""
        if self.complete:
            self.end()
        elif not self.over:
            self._fail(error)

    def idled(self, error: TransportError) -> None:
        """The server was silent for too long.  Bytes that arrive during the abort are kept."""
        if self.failure is None:
            self.ended = False
            self._fail(error)

    def _fail(self, error: StreamError) -> None:
        error.partial = self.snapshots()
        self.failure, self.over = error, True
        self._decoder.error = self._decoder.error or error

    # ---- decisions

    def shed(self) -> StreamError | None:
        """Why this attempt was turned away with 503 inside the stream, if it was and nothing else has come."""
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
        which with ``n > 1`` are not known before the first chunk.
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

    # ---- events

    def emit(self, name: str, /, **data: Any) -> None:
        """Tell the caller's hook; its failures are logged, never raised."""
        hook = self._options.on_event
        if hook is None:
            return
        if self._held is not None:
            self._held.append((name, data))
            return
        try:
            hook(name, data)
        except Exception:  # noqa: BLE001  # whatever it is, the stream is worth more than its observer
            _log.exception("on_event(%r, ...) failed", name)

    def hold_events(self) -> None:
        """What follows runs in another task: the hook hears of it later, in the stream's own."""
        if self._held is None:
            self._held = []

    def release_events(self) -> None:
        """This is the stream's own task again."""
        held, self._held = self._held or (), None
        for name, data in held:
            self.emit(name, **data)
