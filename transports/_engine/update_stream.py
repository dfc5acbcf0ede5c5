"""Reading an exchange to its end, update by update: what every asynchronous stream is, wherever its bytes come from.

One read is under way at a time, whoever asked for it; a cancellation that interrupts it leaves what came readable.
Requests, attempts and servers are unknown here.
"""

from __future__ import annotations

from collections.abc import Mapping
from time import monotonic
from types import TracebackType
from typing import TYPE_CHECKING

from .answer import idle
from .errors import TransportError
from .runtime import current_runtime

if TYPE_CHECKING:
    from typing_extensions import Self

    from ssefold import Accumulator, Snapshot, Update

    from .exchange import Exchange
    from .folding import Folding
    from .metrics import StreamMetrics
    from .options import Options
    from .runtime import Event, Repeated, Runtime, Work


class UpdateStream:
    """The updates of one body::

        async with stream:
            async for update in stream:
                ...

    Leaving the block, in whatever way, closes the source exactly once.  What came stays readable afterwards.

    :raises StreamError: while iterating, after the updates before it; ``.partial`` has what came.
    """

    def __init__(self, folding: Folding, options: Options, *, place: str, anyio_based: bool) -> None:
        self._folding = folding
        self._options = options
        self._place = place
        self._anyio_based = anyio_based
        self._exchange: Exchange | None = None
        self._known_runtime: Runtime | None = None
        self._released = False
        self._reading = False
        self._reader: Repeated | None = None
        self._read_waiters: list[Event] = []
        self._before_cancelling: Work[object] | None = None

    # ---- what came

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
        """Leave the stream; what ``async with`` does at its end.  May be called again."""
        if self._released:
            return
        self._released = True
        if self._exchange is not None:
            await self._runtime.shielded(self._end)

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Update:
        while True:
            update = self._folding.next()
            if update is not None:
                return update
            if self._folding.ended:
                raise StopAsyncIteration
            await self._read_on()

    # ---- reading

    async def _read_on(self) -> None:
        """Read once; while another task reads, wait for that instead."""
        if self._reading:
            done = self._runtime.event()
            self._read_waiters.append(done)
            await done.wait()
            return
        if self._released:
            raise RuntimeError("the stream was left; what came is in .outputs")
        self._reading = True
        try:
            await self._read_once()
        finally:
            self._reading = False
            waiters, self._read_waiters = self._read_waiters, []
            for waiter in waiters:
                waiter.set()

    async def _read_once(self) -> None:
        exchange, folding = self._open_exchange, self._folding
        if folding.says_done:
            await self._read_to_end()
        elif exchange.fragile:
            seconds = self._options.idle_timeout
            if self._reader is None:
                self._reader = self._runtime.repeated(self._take)
            try:
                await self._reader.run(first=self._before_cancelling, seconds=seconds)
            except TimeoutError as error:
                silence = idle(self._place, seconds)
                silence.__cause__ = error
                folding.idled(silence)
        else:
            await self._take()

    async def _take(self) -> None:
        folding = self._folding
        try:
            data = await self._open_exchange.read()
        except TransportError as error:
            folding.broke(error)
            return
        if data:
            folding.received(data)
        else:
            folding.end()

    async def _read_to_end(self) -> None:
        """Only the end of the body is missing: the connection can be used again if it comes, and is closed if not."""
        exchange, folding = self._open_exchange, self._folding
        timeout = self._options.abort_timeout

        async def read() -> None:
            while not folding.over:
                await self._take()

        if exchange.fragile:
            await self._runtime.bounded(read, timeout)
        else:
            # A stream's end is no place for a task of its own: it would cost as much as several events.
            ends_at = monotonic() + timeout
            while not folding.over and (left := ends_at - monotonic()) > 0:
                exchange.hurry(left)
                await self._take()
        folding.end()

    # ---- leaving

    async def _end(self) -> None:
        """Runs shielded, once."""
        folding = self._folding
        await self._leave()
        folding.emit("close", metrics=folding.metrics, complete=folding.complete, error=folding.failure)

    async def _leave(self) -> None:
        exchange, folding = self._open_exchange, self._folding

        async def close() -> None:
            folding.received(await exchange.close())

        if exchange.closes_at_once:
            await close()
        else:
            await self._runtime.bounded(close, self._options.abort_timeout)
        if self._reader is not None:
            await self._reader.end()

    # ---- states

    @property
    def _runtime(self) -> Runtime:
        if self._known_runtime is None:
            self._known_runtime = current_runtime(anyio_based=self._anyio_based)
        return self._known_runtime

    @property
    def _open_exchange(self) -> Exchange:
        if self._exchange is None:
            raise RuntimeError("enter the stream first: async with generate(...) as stream")
        return self._exchange
