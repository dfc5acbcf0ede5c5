"""Many streams at a time, under one limit; a stream that fails does not disturb the others."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from ssefold import StreamError

from .runtime import current_runtime, in_time

if TYPE_CHECKING:
    from ssefold import Accumulator, Snapshot

    from .runtime import Runtime, Scope, Work
    from .stream import GenerateStream


class StreamResult:
    """The result of one stream.

    :ivar stream: the stream itself.
    :ivar started: its request was sent; False if ``abort_when`` became true before.
    :ivar done: it has ended, well or not.
    :ivar error: the exception it failed with, or None.
    :ivar aborted: it was running when ``abort_when`` became true; ``outputs`` has its tokens.  An output may have
        finished before the server handled the abort: its ``finish_reason`` says so.
    """

    __slots__ = ("aborted", "done", "error", "started", "stream")

    def __init__(self, stream: GenerateStream) -> None:
        self.stream: GenerateStream = stream
        self.started: bool = False
        self.done: bool = False
        self.error: StreamError | None = None
        self.aborted: bool = False

    @property
    def outputs(self) -> Mapping[int, Accumulator]:
        """The outputs so far, by index."""
        return self.stream.outputs

    @property
    def responses(self) -> dict[int, dict[str, Any]]:
        """The outputs so far, in the form of ``stream: false``."""
        return {index: output.native_response() for index, output in self.outputs.items()}

    def snapshot(self) -> dict[int, Snapshot]:
        """A frozen copy of the outputs so far."""
        return self.stream.snapshot()

    def __repr__(self) -> str:
        tokens = sum(len(output.token_ids) for output in self.outputs.values())
        state = "failed" if self.error else "aborted" if self.aborted else "done" if self.done else "open"
        return f"StreamResult({state}, outputs={len(self.outputs)}, tokens={tokens}, error={self.error!r})"


AbortWhen = Callable[[Sequence[StreamResult]], bool]


async def gather(
    streams: Iterable[GenerateStream], *, limit: int, abort_when: AbortWhen | None = None
) -> list[StreamResult]:
    """Run streams that were not entered yet, at most ``limit`` at once, and return their results, in their order.

    A stream that fails leaves its :class:`~ssefold.StreamError` in ``error`` and the others alone.

    :param abort_when: looked at after every update and every end, with all results as they stand.  Once it is true,
        streams under way are aborted (:meth:`GenerateStream.abort`, for at most their ``abort_timeout``) and keep what
        came; the others are not started.
    :raises ValueError: ``limit`` is below 1.
    """
    if limit < 1:
        raise ValueError(f"limit must be at least 1, found {limit!r}")
    results = [StreamResult(stream) for stream in streams]
    if results:
        await _Gathering(results, abort_when, current_runtime()).run(limit)
    return results


class _Gathering:
    def __init__(self, results: list[StreamResult], abort_when: AbortWhen | None, runtime: Runtime) -> None:
        self._results = results
        self._abort_when = abort_when
        self._runtime = runtime
        self._queue: Iterator[StreamResult] = iter(results)
        self._scopes: dict[StreamResult, Scope] = {}
        self._workers = 0
        self._aborting = False
        self._news = runtime.event()

    async def run(self, limit: int) -> None:
        self._workers = min(limit, len(self._results))
        works: list[Work[None]] = [self._work] * self._workers
        await self._runtime.run_all([*works, self._watch])

    async def _work(self) -> None:
        for result in self._queue:
            if self._aborting:
                break
            scope = self._scopes[result] = self._runtime.scope()

            async def consume(result: StreamResult = result) -> None:
                await self._consume(result)

            await scope.run(consume)
            del self._scopes[result]
            result.done = True
            self._look()
        self._workers -= 1
        if not self._workers:
            self._news.set()

    async def _consume(self, result: StreamResult) -> None:
        result.started = True
        try:
            async with result.stream as stream:
                async for _ in stream:
                    self._look()
        except StreamError as error:
            result.error = error

    def _look(self) -> None:
        if not self._aborting and self._abort_when is not None and self._abort_when(self._results):
            self._aborting = True
            self._news.set()

    async def _watch(self) -> None:
        """Abort when ``abort_when`` is true; in its own task, because it may have to cancel any other."""
        await self._news.wait()
        if self._aborting:
            await self._runtime.run_all([self._aborter(result, scope) for result, scope in self._scopes.items()])

    def _aborter(self, result: StreamResult, scope: Scope) -> Work[None]:
        async def abort() -> None:
            result.aborted = True
            try:
                if await in_time(self._runtime, result.stream.abort, result.stream.abort_timeout):
                    return
            except (StreamError, RuntimeError):
                pass  # refused, or still opening: leaving the stream frees the server as far as that goes
            scope.cancel()

        return abort
