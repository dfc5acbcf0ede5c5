"""asyncio's half of :mod:`.runtime`.

What must not be interrupted a second time while it cleans up runs in one of two ways.  A read runs in its caller's own
task, driven step by step (:func:`_driven`), since a task for each would cost more than most reads.  What happens once a
stream runs in its own task, which no other code knows and which is waited for however often the waiting task is
cancelled.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Awaitable, Callable, Generator, Sequence
from contextlib import AbstractContextManager, nullcontext
from types import coroutine
from typing import TYPE_CHECKING, Any, TypeVar, cast

from .runtime import OutOfTime

if TYPE_CHECKING:
    from .runtime import Event, Scope, Work

T = TypeVar("T")
_AGAIN = 0.05
"""Seconds after which a cancellation is repeated that led to nothing."""


class AsyncioRuntime:
    """See :class:`.runtime.Runtime`."""

    async def shielded(self, work: Work[T]) -> T:
        """See :class:`.runtime.Runtime`."""
        task = asyncio.ensure_future(work())
        await _outlast(task)
        return task.result()

    def reader(
        self,
        work: Work[T],
        *,
        keep: Callable[[T], object],
        fragile: bool,
        first: Work[object] | None,
        seconds: float | None,
    ) -> Callable[[], Awaitable[T]]:
        """See :class:`.runtime.Runtime`."""
        if not fragile and first is None and seconds is None:
            return work
        return lambda: _driven(work(), keep, first, seconds)

    async def guarded(self, work: Work[T], *, first: Work[object] | None = None, seconds: float | None = None) -> T:
        """See :class:`.runtime.Runtime`."""
        # Connecting has anyio's scopes inside.  In a task of its own, a cancellation from outside is none of theirs;
        # and before Python 3.11 anyio may take one for theirs.
        if first is None and sys.version_info >= (3, 11):
            return cast("T", await _driven(work(), None, None, seconds))
        task = asyncio.ensure_future(_driven(work(), None, None, None))
        in_time = False
        try:
            await asyncio.wait([task], timeout=seconds)
            in_time = task.done()
        finally:
            if not in_time:
                try:
                    if first is not None:
                        await self.shielded(first)
                finally:
                    await _outlast(task, cancel=True)
                    if not task.cancelled():
                        task.exception()  # looked at: something else goes on
        if not in_time:
            raise OutOfTime
        return cast("T", task.result())

    async def run_all(self, works: Sequence[Work[None]]) -> None:
        """See :class:`.runtime.Runtime`."""
        if not works:
            return
        tasks = [asyncio.ensure_future(work()) for work in works]
        try:
            await asyncio.wait(tasks, return_when=asyncio.FIRST_EXCEPTION)
        finally:
            for task in tasks:
                task.cancel()
            await _outlast(*tasks)
        for task in tasks:
            if not task.cancelled():
                task.result()

    async def sleep(self, seconds: float) -> None:
        """See :class:`.runtime.Runtime`."""
        await asyncio.sleep(seconds)

    def event(self) -> Event:
        """See :class:`.runtime.Runtime`."""
        return asyncio.Event()

    def scope(self) -> Scope:
        """See :class:`.runtime.Runtime`."""
        return _AsyncioScope()


# ---- in the caller's own task


@coroutine
def _driven(
    work: Any, keep: Callable[[Any], object] | None, first: Work[object] | None, seconds: float | None
) -> Generator[Any, Any, Any]:
    """``await work``, but for a cancellation of the task, or the end of the time: see :func:`_cleaned_up`.

    Work is left alone while ``first`` runs.
    """
    send = work.send
    timer = None if seconds is None else _Timer(seconds)
    try:
        waits_for = send(None)
        while True:
            try:
                if first is None and timer is None:
                    yield waits_for
                else:
                    yield from _until(waits_for, timer)
            except BaseException as error:  # noqa: BLE001, PERF203  # what the future ended with, too
                ended = OutOfTime() if timer is not None and timer.expired else error
                if first is not None and isinstance(error, asyncio.CancelledError):
                    try:
                        yield from ASYNCIO.shielded(first).__await__()
                    except asyncio.CancelledError as again:
                        ended = again
                    first = None
                if isinstance(ended, OutOfTime) or _is_native(ended):
                    return (yield from _cleaned_up(work, waits_for, ended, keep))
                waits_for = work.throw(ended)
            else:
                waits_for = send(None)
    except StopIteration as done:
        return done.value
    finally:
        if timer is not None:
            timer.cancel()


class _Timer:
    """Cancels what is waited for when the seconds are over."""

    def __init__(self, seconds: float) -> None:
        self.expired: bool = False
        self._future: asyncio.Future[None] | None = None
        self._handle = asyncio.get_running_loop().call_later(seconds, self._expire)

    def guard(self, future: asyncio.Future[None]) -> None:
        self._future = future
        if self.expired:
            future.cancel()

    def _expire(self) -> None:
        self.expired = True
        if self._future is not None:
            self._future.cancel()

    def cancel(self) -> None:
        self._handle.cancel()


def _cleaned_up(
    work: Any, waits_for: Any, error: BaseException, keep: Callable[[Any], object] | None
) -> Generator[Any, Any, Any]:
    """Cancel work that waits for ``waits_for``, once, see it to its end, and raise ``error``.

    It is cancelled where it waits for a future.  A mere turn of the loop is no place to be cancelled: httpcore, for
    one, has such turns in the middle of giving a connection back, shielded from anyio's scopes alone.  Later
    cancellations do not reach it.  Work that makes something else of the cancellation had asked for it (a timeout of
    its own), and ends as it will.
    """
    told = False
    again: BaseException | None = None
    try:
        while True:
            if not told and waits_for is not None and (waits_for.cancelled() or not waits_for.done()):
                told = True
                waits_for.cancel()
            try:
                yield from _until(waits_for)
            except asyncio.CancelledError as caught:
                if _is_native(caught):
                    again = caught
            if waits_for is None or waits_for.done():
                waits_for = work.send(None)
    except StopIteration as done:
        if told and again is None and not isinstance(error, OutOfTime) and not _is_cancelled():
            return done.value
        if keep is not None:
            keep(done.value)
    except asyncio.CancelledError:
        pass
    except Exception:
        if told and again is None and not isinstance(error, OutOfTime):
            raise
    raise again or error


def _is_native(error: BaseException) -> bool:
    """The task itself was cancelled, by ``Task.cancel``.

    anyio's scopes do so again and again until they have been left, but for what shields itself: work needs no other
    protection from them.
    """
    if not isinstance(error, asyncio.CancelledError) or (error.args and str(error.args[0]).startswith("Cancelled ")):
        return False
    return _is_cancelled()


def _is_cancelled() -> bool:
    count = getattr(asyncio.current_task(), "cancelling", None)  # Python 3.11
    return count is None or count() > 0


def _until(future: asyncio.Future[Any] | None, timer: _Timer | None = None) -> Generator[Any, None, None]:
    """Wait until it is done, without cancelling it when the waiting is cancelled; None: a turn of the loop."""
    if future is None:
        yield
        return
    future._asyncio_future_blocking = False  # as a task does that takes it over
    proxy: asyncio.Future[None] = future.get_loop().create_future()

    def settle(_: object) -> None:
        if not proxy.done():
            proxy.set_result(None)

    if timer is not None:
        timer.guard(proxy)
    future.add_done_callback(settle)
    try:
        yield from proxy
    finally:
        future.remove_done_callback(settle)


# ---- in tasks of their own


class _AsyncioScope:
    def __init__(self) -> None:
        self._task: asyncio.Task[None] | None = None
        self._cancelled = False

    async def run(self, work: Work[None]) -> None:
        if self._cancelled:
            return
        task = self._task = asyncio.ensure_future(work())
        try:
            await asyncio.wait([task])
        finally:
            task.cancel()
            await _outlast(task)
        if not (self._cancelled and task.cancelled()):
            task.result()

    def cancel(self) -> None:
        self._cancelled = True
        if self._task is not None:
            self._task.cancel()


async def _outlast(*tasks: asyncio.Future[Any], cancel: bool = False) -> None:
    """Wait until the tasks are done, whoever is cancelled meanwhile; then let the cancellation go on its way.

    :param cancel: cancel them, and again if that was swallowed (anyio before Python 3.11); what they do is driven.
    """
    pending = {task for task in tasks if not task.done()}
    if not pending:
        return
    cancelled: asyncio.CancelledError | None = None
    with _anyio_shield():
        while pending:
            if cancel:
                for task in pending:
                    task.cancel()
            try:
                _, pending = await asyncio.wait(pending, timeout=_AGAIN if cancel else None)
            except asyncio.CancelledError as error:  # that is what the loop is for
                cancelled = error
                pending = {task for task in pending if not task.done()}
    if cancelled is not None:
        for task in tasks:
            if not task.cancelled():
                task.exception()  # looked at: the cancellation is what goes on
        raise cancelled


def _anyio_shield() -> AbstractContextManager[object]:
    # A cancelled scope of anyio cancels its task again with every turn of the loop, unless a shield stands between.
    # If anyio is not imported, there are no such scopes.
    anyio = sys.modules.get("anyio")
    return nullcontext() if anyio is None else anyio.CancelScope(shield=True)


ASYNCIO = AsyncioRuntime()
