"""What streams need of the library that runs them: asyncio and trio under one set of names.

Cancelling is where they differ most.  On trio a scope shields what must not be interrupted.  On asyncio ``Task.cancel``
reaches a task at whatever it waits for, also a second time, in the middle of the cleanup after the first.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Protocol, TypeVar

T = TypeVar("T")
Work = Callable[[], Awaitable[T]]
"""Something to be done; what it returns has a coroutine's ``send`` and ``throw``."""


class OutOfTime(Exception):  # noqa: N818  # no failure; and clients raise errors of that name
    """Guarded work took longer than it was given."""


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


class Runtime(Protocol):
    """The library that runs a stream."""

    async def shielded(self, work: Work[T]) -> T:
        """Run to the end; a cancellation that comes meanwhile is raised afterwards."""
        ...

    async def guarded(self, work: Work[T], *, first: Work[object] | None = None, seconds: float | None = None) -> T:
        """Run so that a cancellation reaches ``work`` once, and is raised when ``work`` has cleaned up.

        :param first: runs, shielded, when a cancellation comes, before it reaches ``work``.
        :param seconds: after so many, ``work`` is cancelled in the same way.
        :raises OutOfTime: it was.
        """
        ...

    def reader(
        self,
        work: Work[T],
        *,
        keep: Callable[[T], object],
        fragile: bool,
        first: Work[object] | None,
        seconds: float | None,
    ) -> Callable[[], Awaitable[T]]:
        """The same for reads, of which there are many: what they cost most would be a task for each.

        :param keep: takes what was read by work that had ended when it was cancelled.
        :param fragile: without ``first`` and ``seconds``, work needs to be guarded at all.
        """
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


async def in_time(runtime: Runtime, work: Work[object], seconds: float) -> bool:
    """Run for at most so long; False if it was cut short."""
    try:
        await runtime.guarded(work, seconds=seconds)
    except OutOfTime:
        return False
    return True


def current_runtime() -> Runtime:
    """The runtime of the library that runs the caller.

    :raises RuntimeError: none does.
    """
    try:
        if asyncio.current_task() is not None:
            from .asyncio_runtime import ASYNCIO

            return ASYNCIO
    except RuntimeError:
        pass
    from .anyio_runtime import current_anyio_runtime

    return current_anyio_runtime()
