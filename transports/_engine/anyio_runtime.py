"""Trio's half of :mod:`.runtime`, by way of anyio: its scopes shield, bound and group."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING, TypeVar

import anyio

from .runtime import OutOfTime

if TYPE_CHECKING:
    from .runtime import Event, Scope, Work

T = TypeVar("T")


class AnyioRuntime:
    """See :class:`.runtime.Runtime`."""

    async def shielded(self, work: Work[T]) -> T:
        """See :class:`.runtime.Runtime`."""
        results: list[T] = []
        with anyio.CancelScope(shield=True):
            results.append(await work())
        return results[0]

    def reader(
        self,
        work: Work[T],
        *,
        keep: Callable[[T], object],
        fragile: bool,
        first: Work[object] | None,
        seconds: float | None,
    ) -> Callable[[], Awaitable[T]]:
        """See :class:`.runtime.Runtime`.

        Without ``first`` there is nothing to guard: what cleans up shields itself, and is left alone.
        """
        if first is None and seconds is None:
            return work
        return lambda: self.guarded(work, first=first, seconds=seconds, keep=keep)

    async def guarded(
        self,
        work: Work[T],
        *,
        first: Work[object] | None = None,
        seconds: float | None = None,
        keep: Callable[[T], object] | None = None,
    ) -> T:
        """See :class:`.runtime.Runtime`."""
        if first is None:
            with anyio.move_on_after(seconds):
                return await work()
            raise OutOfTime
        results: list[T] = []
        failures: list[Exception] = []
        done = anyio.Event()
        scope = anyio.CancelScope(shield=True)

        async def run() -> None:
            with scope:
                try:
                    results.append(await work())
                except Exception as error:  # noqa: BLE001  # raised below, by itself instead of in a group
                    failures.append(error)
            done.set()

        in_time = False
        try:
            async with anyio.create_task_group() as group:
                group.start_soon(run)
                try:
                    with anyio.move_on_after(seconds):
                        await done.wait()
                    in_time = done.is_set()
                finally:
                    if not in_time:
                        try:
                            await self.shielded(first)
                        finally:
                            scope.cancel()
        finally:
            if not in_time and results and keep is not None:
                keep(results[0])
        if not in_time:
            raise OutOfTime
        if failures:
            raise failures[0]
        return results[0]

    async def run_all(self, works: Sequence[Work[None]]) -> None:
        """See :class:`.runtime.Runtime`."""
        failures: list[BaseException] = []

        async def run(work: Work[None], scope: anyio.CancelScope) -> None:
            try:
                await work()
            except Exception as error:  # noqa: BLE001  # raised below, by itself instead of in a group
                failures.append(error)
                scope.cancel()

        async with anyio.create_task_group() as group:
            for work in works:
                group.start_soon(run, work, group.cancel_scope)
        if failures:
            raise failures[0]

    async def sleep(self, seconds: float) -> None:
        """See :class:`.runtime.Runtime`."""
        await anyio.sleep(seconds)

    def event(self) -> Event:
        """See :class:`.runtime.Runtime`."""
        return anyio.Event()

    def scope(self) -> Scope:
        """See :class:`.runtime.Runtime`."""
        return _AnyioScope()


class _AnyioScope:
    def __init__(self) -> None:
        self._scope = anyio.CancelScope()

    async def run(self, work: Work[None]) -> None:
        with self._scope:
            await work()

    def cancel(self) -> None:
        self._scope.cancel()


ANYIO = AnyioRuntime()


def current_anyio_runtime() -> AnyioRuntime:
    """The runtime, if anything that anyio knows runs the caller.

    :raises RuntimeError: nothing does.
    """
    try:
        anyio.get_current_task()
    except Exception as error:
        raise RuntimeError("an asynchronous stream is used where neither asyncio nor trio runs") from error
    return ANYIO
