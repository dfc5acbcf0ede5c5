"""Waiting no longer than a bound, on every Python that is supported.  Knows nothing of what is waited for."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

_Result = TypeVar("_Result")


async def within(seconds: float, work: Coroutine[Any, Any, _Result]) -> _Result:
    """The result of ``work``, which is cancelled when it takes too long or the waiting itself is cancelled.

    :raises TimeoutError: after ``seconds``.
    """
    task = asyncio.ensure_future(work)
    try:
        await asyncio.wait([task], timeout=seconds)
    finally:
        if late := not task.done():
            task.cancel()
            await asyncio.wait([task])
    if late:
        raise TimeoutError(f"not within {seconds:g} s")
    return task.result()
