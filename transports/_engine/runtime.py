"""The few things that asyncio and trio do differently, under one set of names.

Cancelling is where they differ most.  On trio a scope shields what must not be interrupted.  On asyncio
``Task.cancel`` reaches a task at whatever it waits for, also a second time, in the middle of the cleaning up that the
first time began; what must not be interrupted therefore runs in a task of its own, which nobody else knows and which is
waited for however often the waiting task is cancelled.  This module is asyncio's half; ``anyio_runtime`` is trio's.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any, Generic, Protocol, TypeVar

T = TypeVar("T")
Work = Callable[[], Awaitable[T]]


class Event(Protocol):
    """What both libraries call an event."""

    def set(self) -> object: ...
    async def wait(self) -> object: ...


class Scope(Protocol):
    """Work that can be cancelled from outside without its caller being cancelled."""

    async def run(self, work: Work[None]) -> None:
        """Run it; returns when it is done, or when it has cleaned up after :meth:`cancel`."""
        ...

    def cancel(self) -> object:
        """Cancel it, before or while it runs."""
        ...


class Repeated(Protocol):
    """Work that is done often, guarded each time."""

    async def run(self, *, first: Work[object] | None, seconds: float | None) -> None:
        """Do it once; see :meth:`Runtime.guarded`."""
        ...

    async def end(self) -> None:
        """It is not done again."""
        ...


class Runtime(Protocol):
    """What streams need of the library that runs them."""

    async def shielded(self, work: Work[T]) -> T:
        """Run to the end; a cancellation that comes meanwhile is raised afterwards."""
        ...

    async def guarded(self, work: Work[T], *, first: Work[object] | None = None, seconds: float | None = None) -> T:
        """Run so that a cancellation reaches ``work`` once, and is raised when ``work`` has cleaned up.

        :param first: runs, shielded, when a cancellation comes, before it reaches ``work``.
        :param seconds: when so many have gone by, ``work`` is cancelled in the same way.
        :raises TimeoutError: they have.
        """
        ...

    def repeated(self, work: Work[None]) -> Repeated:
        """The same for work that is done again and again, at less cost."""
        ...

    async def bounded(self, work: Work[object], seconds: float) -> bool:
        """Run for at most so long; False if it was cut short."""
        ...

    async def run_all(self, works: Sequence[Work[None]]) -> None:
        """Run side by side; the first failure, or a cancellation, cancels the others, and all have ended on return."""
        ...

    async def sleep(self, seconds: float) -> None:
        """Wait."""
        ...

    def event(self) -> Event:
        """A new event."""
        ...

    def scope(self) -> Scope:
        """A new scope, for one piece of work."""
        ...


class AsyncioRuntime:
    """asyncio, with or without anyio's scopes around.

    :param by_scope: the work is anyio's, and so must be what cancels it: a scope respects the shields around what must
        not be interrupted, and keeps cancelling until it is left; a task's cancellation does neither.  httpcore's end
        of a response is such a place, where a task's cancellation leaves the connection in the pool for ever.
    """

    def __init__(self, *, by_scope: bool) -> None:
        self._by_scope = by_scope

    async def shielded(self, work: Work[T]) -> T:
        """See :class:`Runtime`."""
        child = _Child(work, by_scope=self._by_scope)
        await _outlast(child.task)
        return child.task.result()

    async def guarded(self, work: Work[T], *, first: Work[object] | None = None, seconds: float | None = None) -> T:
        """See :class:`Runtime`."""
        child = _Child(work, by_scope=self._by_scope)
        in_time = False
        try:
            await asyncio.wait([child.task], timeout=seconds)
            in_time = child.task.done()
        finally:
            if not in_time:
                try:
                    if first is not None and not child.task.done():
                        await self.shielded(first)
                finally:
                    child.cancel()
                    await _outlast(child.task)
                    child.forget()
        if not in_time:
            raise TimeoutError
        return child.task.result()

    def repeated(self, work: Work[None]) -> Repeated:
        """See :class:`Runtime`."""
        return _Repeated(self, work, by_scope=self._by_scope)

    async def bounded(self, work: Work[object], seconds: float) -> bool:
        """See :class:`Runtime`."""
        child = _Child(work, by_scope=self._by_scope)
        try:
            await asyncio.wait([child.task], timeout=seconds)
        finally:
            child.cancel()
            await _outlast(child.task)
        if child.task.cancelled():
            return False
        child.task.result()
        return True

    async def run_all(self, works: Sequence[Work[None]]) -> None:
        """See :class:`Runtime`."""
        children = [_Child(work, by_scope=self._by_scope) for work in works]
        tasks = [child.task for child in children]
        if not tasks:
            return
        try:
            await asyncio.wait(tasks, return_when=asyncio.FIRST_EXCEPTION)
        finally:
            for child in children:
                child.cancel()
            await _outlast(*tasks)
        for task in tasks:
            if not task.cancelled():
                task.result()

    async def sleep(self, seconds: float) -> None:
        """See :class:`Runtime`."""
        await asyncio.sleep(seconds)

    def event(self) -> Event:
        """See :class:`Runtime`."""
        return asyncio.Event()

    def scope(self) -> Scope:
        """See :class:`Runtime`."""
        return _AsyncioScope(by_scope=self._by_scope)


class _Child(Generic[T]):
    """Work in a task of its own, which nobody else can cancel."""

    def __init__(self, work: Work[T], *, by_scope: bool) -> None:
        anyio = sys.modules.get("anyio") if by_scope else None
        self._scope: Any = None if anyio is None else anyio.CancelScope()
        self.task: asyncio.Task[T] = asyncio.ensure_future(self._run(work))

    async def _run(self, work: Work[T]) -> T:
        if self._scope is None:
            return await work()
        with self._scope:
            return await work()
        raise asyncio.CancelledError

    def cancel(self) -> None:
        """Cancel it, if it is not done."""
        if self.task.done():
            return
        if self._scope is None:
            self.task.cancel()
        else:
            self._scope.cancel()

    def forget(self) -> None:
        """Look at how it ended, so that nobody is told that nobody did: something else goes on."""
        if not self.task.cancelled():
            self.task.exception()


class _Repeated:
    """See :class:`Repeated`: one task for all turns, since a task and a scope for each cost more than most reads."""

    def __init__(self, runtime: AsyncioRuntime, work: Work[None], *, by_scope: bool) -> None:
        self._runtime = runtime
        self._work = work
        self._by_scope = by_scope
        self._child: _Child[None] | None = None
        self._turn: asyncio.Future[None] | None = None
        self._done: asyncio.Future[None] | None = None
        self._busy = False
        self._error: Exception | None = None

    async def run(self, *, first: Work[object] | None, seconds: float | None) -> None:
        loop = asyncio.get_running_loop()
        done = self._done = loop.create_future()
        self._busy, self._error = True, None
        if self._turn is None:
            self._turn = loop.create_future()
        _settle(self._turn)
        child = self._child
        if child is None:
            child = self._child = _Child(self._take_turns, by_scope=self._by_scope)
        timer = None if seconds is None else loop.call_later(seconds, _settle, done)
        in_time = False
        try:
            await done
            in_time = not self._busy
        finally:
            if timer is not None:
                timer.cancel()
            if self._busy:
                try:
                    if first is not None:
                        await self._runtime.shielded(first)
                finally:
                    await self.end()
        error, self._error = self._error, None
        if error is not None:
            raise error
        if not in_time:
            raise TimeoutError

    async def end(self) -> None:
        child, self._child, self._turn = self._child, None, None
        if child is not None:
            child.cancel()
            await _outlast(child.task)
            child.forget()

    async def _take_turns(self) -> None:
        try:
            while (turn := self._turn) is not None:
                await turn
                self._turn = asyncio.get_running_loop().create_future()
                try:
                    await self._work()
                except Exception as error:  # noqa: BLE001  # whoever runs it raises it
                    self._error = error
                self._busy = False
                _settle(self._done)
        finally:
            self._busy = False
            _settle(self._done)


def _settle(future: asyncio.Future[None] | None) -> None:
    if future is not None and not future.done():
        future.set_result(None)


class _AsyncioScope:
    def __init__(self, *, by_scope: bool) -> None:
        self._by_scope = by_scope
        self._child: _Child[None] | None = None
        self._cancelled = False

    async def run(self, work: Work[None]) -> None:
        if self._cancelled:
            return
        child = self._child = _Child(work, by_scope=self._by_scope)
        try:
            await asyncio.wait([child.task])
        finally:
            child.cancel()
            await _outlast(child.task)
        if not (self._cancelled and child.task.cancelled()):
            child.task.result()

    def cancel(self) -> None:
        self._cancelled = True
        if self._child is not None:
            self._child.cancel()


async def _outlast(*tasks: asyncio.Future[Any]) -> None:
    """Wait until the tasks are done, whoever is cancelled meanwhile; then let the cancellation go on its way."""
    pending = {task for task in tasks if not task.done()}
    if not pending:
        return
    cancelled: asyncio.CancelledError | None = None
    with _anyio_shield():
        while pending:
            try:
                _, pending = await asyncio.wait(pending)
            except asyncio.CancelledError as error:  # noqa: PERF203  # that is what the loop is for
                cancelled = error
                pending = {task for task in pending if not task.done()}
    if cancelled is not None:
        for task in tasks:
            if not task.cancelled():
                task.exception()  # looked at: the cancellation is what goes on
        raise cancelled


def _anyio_shield() -> AbstractContextManager[object]:
    # A cancelled scope of anyio cancels its task again with every turn of the loop, unless a shield stands between.
    # Where nobody has imported anyio there are no such scopes.
    anyio = sys.modules.get("anyio")
    return nullcontext() if anyio is None else anyio.CancelScope(shield=True)


ASYNCIO = AsyncioRuntime(by_scope=False)
ANYIO_ON_ASYNCIO = AsyncioRuntime(by_scope=True)


def current_runtime(*, anyio_based: bool) -> Runtime:
    """The runtime of the library that runs the caller.

    :param anyio_based: the work to be run is made of anyio, whatever runs it.
    :raises RuntimeError: none does.
    """
    try:
        if asyncio.current_task() is not None:
            return ANYIO_ON_ASYNCIO if anyio_based else ASYNCIO
    except RuntimeError:
        pass
    from .anyio_runtime import current_anyio_runtime

    return current_anyio_runtime()
