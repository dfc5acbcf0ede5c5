"""Reading an exchange to its end, update by update: the base of every asynchronous stream.

Only one read runs at a time, whichever task asked for it; a cancellation of it keeps the outputs readable.  This module
knows no requests, attempts or servers.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from types import TracebackType
from typing import TYPE_CHECKING

from .answer import failed, idle
from .errors import TransportError
from .runtime import OutOfTime, current_runtime, in_time

if TYPE_CHECKING:
    from typing_extensions import Self

    from ssefold import Accumulator, Snapshot, Update

    from .encoding import Undo
    from .exchange import Exchange
    from .folding import Folding
    from .metrics import StreamMetrics
    from .options import Options
    from .runtime import Event, Runtime, Work


class UpdateStream:
    """The updates of one body::

        async with stream:
            async for update in stream:
                ...

    Leaving the block, in any way, closes the source exactly once.  The partial result stays readable afterwards.

    :raises StreamError: while iterating, after the updates before it; ``.partial`` has the partial result.
    """

    def __init__(self, folding: Folding, options: Options, place: str, url: str = "") -> None:
        self._folding = folding
        self._options = options
        self._place = place
        self._url = url
        self._exchange: Exchange | None = None
        self._undo: Undo | None = None
        self._known_runtime: Runtime | None = None
        self._released = False
        self._next: Callable[[], Awaitable[bytes]] | None = None
        self._kept = False
        self._may_be_shed = False
        self._reading = False
        self._read_waiters: list[Event] = []
        self._before_cancelling: Work[object] | None = None

    # ---- the outputs

    @property
    def outputs(self) -> Mapping[int, Accumulator]:
        """Everything that has arrived, by index; may be ahead of the updates that were iterated over."""
        return self._folding.outputs

    @property
    def metrics(self) -> StreamMetrics:
        """Times and counts so far."""
        return self._folding.metrics

    def snapshot(self) -> dict[int, Snapshot]:
        """A frozen copy of every output, to keep or to send elsewhere."""
        return self._folding.snapshots()

    # ---- the block

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self.aclose()

    async def aclose(self) -> None:
        """Close the stream, as ``async with`` does at its end.  May be called again."""
        if self._released:
            return
        self._released = True
        if self._exchange is None:
            return
        folding = self._folding
        folding.hold_events()
        try:
            await self._runtime.shielded(self._leave)
        finally:  # here, in the stream's own task
            folding.release_events()
            folding.emit("close", metrics=folding.metrics, complete=folding.complete, error=folding.failure)

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Update:
        folding = self._folding
        waiting = folding.waiting
        while not waiting:
            if folding.over:
                if folding.failure is not None:
                    raise folding.failure
                raise StopAsyncIteration
            await self._read_on()
        folding.handed_out = True
        return waiting.popleft()

    # ---- reading

    async def _read_on(self) -> None:
        """Read once; while another task reads, wait for that instead."""
        if self._reading:
            done = self._runtime.event()
            self._read_waiters.append(done)
            await done.wait()
            return
        folding = self._folding
        if self._next is None or self._released or folding.complete:
            await self._read_to_end()
            return
        self._reading = True
        try:
            data = await self._next()
            if data and self._undo is None:
                folding.received(data)
            else:
                self._received(data)
            if self._may_be_shed:
                await self._look_at_shed()
        except OutOfTime as error:
            folding.idled(idle(self._place, self._options.idle_timeout, error))
        except Exception as error:  # noqa: BLE001  # whatever a client raises
            self._broke(error)
        except BaseException:
            if self._open_exchange.fragile and not self._kept:
                self._next = self._closed_by_client
            self._kept = False
            raise
        finally:
            self._reading = False
            if self._read_waiters:
                self._has_read()

    def _broke(self, error: Exception) -> None:
        with suppress(Exception):  # of an encoding: the other failure is the one that counts
            rest = self._open_exchange.rest()
            if rest:
                self._received(rest)
        self._folding.broke(self._error_of(error))

    def _has_read(self) -> None:
        self._reading = False
        waiters, self._read_waiters = self._read_waiters, []
        for waiter in waiters:
            waiter.set()

    def _received(self, data: bytes) -> None:
        if not data:
            self._folding.end()
        else:
            self._folding.received(data if self._undo is None else self._undo(data))

    def _keep(self, data: bytes) -> None:
        """Keep the bytes of a cancelled read."""
        self._kept = True
        self._received(data)

    async def _closed_by_client(self) -> bytes:
        raise TransportError(
            f"an earlier read from {self._place} was cancelled, and the client closed the response then"
        )

    async def _look_at_shed(self) -> None:
        """A server may turn a request away inside the stream; for streams that can send another."""

    def _error_of(self, error: Exception, *, began: bool = True) -> TransportError:
        if isinstance(error, TransportError):
            return error
        verdict = self._open_exchange.judge(error)
        if verdict.idle:
            return idle(self._place, self._options.idle_timeout, error)
        return failed(error, verdict, self._place, self._url, began=began)

    async def _read_to_end(self) -> None:
        """Only the end of the body is missing: the connection can be used again if it comes, and is closed if not."""
        exchange, folding, timeout = self._open_exchange, self._folding, self._options.abort_timeout
        if self._released:
            raise RuntimeError("the stream is closed; .outputs has what arrived")
        self._reading = True

        async def read() -> None:
            try:
                while not folding.over:
                    self._received(await exchange.read())
            except Exception:  # noqa: BLE001  # nothing is missing that counts
                folding.end()

        try:
            exchange.hurry(timeout)
            await in_time(self._runtime, read, timeout)
            folding.end()
        finally:
            self._has_read()

    # ---- leaving

    async def _leave(self) -> None:
        """Runs shielded, once."""
        exchange = self._open_exchange

        async def close() -> None:
            with suppress(Exception):  # whatever it is, the connection is gone, as was wanted
                left = await exchange.close()
                if left:
                    self._received(left)

        await in_time(self._runtime, close, self._options.abort_timeout)

    # ---- states

    def _use(self, exchange: Exchange) -> None:
        """From now on this is what is read."""
        self._exchange, self._undo = exchange, None
        self._next = self._runtime.reader(
            exchange.read,
            keep=self._keep,
            fragile=exchange.fragile,
            first=self._before_cancelling if exchange.fragile else None,
            seconds=self._options.idle_timeout,
        )

    @property
    def _runtime(self) -> Runtime:
        if self._known_runtime is None:
            self._known_runtime = current_runtime()
        return self._known_runtime

    @property
    def _open_exchange(self) -> Exchange:
        if self._exchange is None:
            raise RuntimeError("enter the stream first: async with generate(...) as stream")
        return self._exchange
