"""Work that is driven in its caller's own task sees a cancellation as a task of its own would have it."""

from __future__ import annotations

import asyncio

import pytest

from ssefold.transports._engine.asyncio_runtime import ASYNCIO
from ssefold.transports._engine.runtime import OutOfTime

anyio = pytest.importorskip("anyio", reason="its locks are what clients wait for")


def test_a_lock_is_not_left_to_work_that_was_cancelled() -> None:
    """anyio's locks ask the future of a waiting task whether it was cancelled, and would give the lock to it."""

    async def main() -> None:
        lock = anyio.Lock()
        await lock.acquire()

        async def work() -> None:
            await asyncio.sleep(0)  # cancelled here, a mere turn of the loop; told where it waits for the lock
            async with lock:
                raise AssertionError("unreachable")

        task = asyncio.ensure_future(ASYNCIO.guarded(work))
        await asyncio.sleep(0)
        task.cancel()
        await asyncio.wait([task])
        assert task.cancelled()
        lock.release()
        lock.acquire_nowait()

    asyncio.run(main())


def test_work_ends_when_its_time_is_over() -> None:
    async def main() -> None:
        cleaned_up = False

        async def work() -> None:
            nonlocal cleaned_up
            await asyncio.sleep(0)
            try:
                await asyncio.Event().wait()
            finally:
                await asyncio.sleep(0)
                cleaned_up = True

        with pytest.raises(OutOfTime):
            await ASYNCIO.guarded(work, seconds=0.01)
        assert cleaned_up

    asyncio.run(main())


def test_work_that_has_no_time_at_all() -> None:
    """The time is over before the work waits for the first future: it still gets to know."""

    async def main() -> None:
        loop = asyncio.get_running_loop()

        async def work() -> None:
            for _ in range(3):
                await asyncio.sleep(0)
            await loop.create_future()

        with pytest.raises(OutOfTime):
            await ASYNCIO.guarded(work, seconds=0)

    asyncio.run(main())


def test_work_may_end_before_its_time() -> None:
    async def main() -> None:
        async def work() -> int:
            await asyncio.sleep(0.001)
            return 3

        assert await ASYNCIO.guarded(work, seconds=60) == 3

    asyncio.run(main())
