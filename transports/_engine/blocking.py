"""A blocking stream: :class:`.stream.GenerateStream` for clients without an event loop.

A blocking client's exchange never suspends, so the same code runs to its end in one step.  No cancellation reaches
blocking code, only exceptions in it, ``KeyboardInterrupt`` included; leaving the block cleans up in any case.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Any, TypeVar

from .stream import GenerateStream

if TYPE_CHECKING:
    from ssefold import Accumulator, Snapshot, Update

    from .exchange import Client
    from .metrics import StreamMetrics
    from .options import Options
    from .request import PreparedRequest
    from .runtime import Event, Scope, Work

T = TypeVar("T")


class SyncGenerateStream:
    """One ``/generate`` call, blocking::

        with generate(client, url, payload) as stream:
            for update in stream:
                ...

    Everything is as in :class:`GenerateStream`; time limits are as exact as the client's own timeouts.
    """

    def __init__(self, client: Client, request: PreparedRequest, options: Options) -> None:
        self._stream = _Unsuspended(client, request, options)

    @property
    def outputs(self) -> Mapping[int, Accumulator]:
        """Everything that has arrived, by index; may be ahead of the updates that were iterated over."""
        return self._stream.outputs

    @property
    def metrics(self) -> StreamMetrics:
        """Times and counts so far."""
        return self._stream.metrics

    @property
    def rid(self) -> str | tuple[str, ...]:
        """The request's id; a tuple if the payload gave a list."""
        return self._stream.rid

    def snapshot(self) -> dict[int, Snapshot]:
        """A frozen copy of every output, to keep or to send elsewhere."""
        return self._stream.snapshot()

    def __enter__(self) -> SyncGenerateStream:
        _run(self._stream.__aenter__())
        return self

    def __exit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def __iter__(self) -> SyncGenerateStream:
        return self

    def __next__(self) -> Update:
        try:
            return _run(self._stream.__anext__())
        except StopAsyncIteration:
            raise StopIteration from None

    def abort(self) -> None:
        """Ask the server to stop, and read on to the terminal chunk, which alone carries the replay arrays.

        May be called from another thread than the one that iterates.

        :raises TransportError: the server could not be asked.
        :raises StreamError: the stream failed on its way to the end.
        """
        _run(self._stream.abort())

    def close(self) -> None:
        """Close the stream, as ``with`` does at its end.  May be called again."""
        _run(self._stream.aclose())


def _run(work: Coroutine[Any, Any, T]) -> T:
    try:
        work.send(None)
    except StopIteration as done:
        return done.value  # type: ignore[no-any-return]
    raise RuntimeError("a blocking client has suspended")


class _Unsuspended(GenerateStream):
    """Reads of several threads take turns."""

    def __init__(self, client: Client, request: PreparedRequest, options: Options) -> None:
        super().__init__(client, request, options)
        self._known_runtime = _BLOCKING
        self._before_cancelling = None
        self._lock = threading.Lock()

    async def _read_on(self) -> None:
        reads_already = self._lock.locked()
        with self._lock:
            if not reads_already:  # otherwise another thread has read meanwhile
                await super()._read_on()


class _Blocking:
    """See :class:`.runtime.Runtime`: nothing is cancelled, and only the client's own timeouts end a wait."""

    async def shielded(self, work: Work[T]) -> T:
        return await work()

    async def guarded(self, work: Work[T], *, first: Work[object] | None = None, seconds: float | None = None) -> T:
        return await work()

    def reader(
        self,
        work: Work[T],
        *,
        keep: Callable[[T], object],
        fragile: bool,
        first: Work[object] | None,
        seconds: float | None,
    ) -> Callable[[], Awaitable[T]]:
        return work

    async def run_all(self, works: Sequence[Work[None]]) -> None:
        raise NotImplementedError

    async def sleep(self, seconds: float) -> None:
        time.sleep(seconds)  # noqa: ASYNC251  # blocking it is

    def event(self) -> Event:
        raise NotImplementedError

    def scope(self) -> Scope:
        raise NotImplementedError


_BLOCKING = _Blocking()
