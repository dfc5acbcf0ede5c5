"""A limit on concurrent aborts, shared by all streams of one client.

When hundreds of streams are cancelled at once, each sends an abort.  A pool with hundreds of waiting requests spends
its time on searching them (httpcore checks every connection for each waiting request, after every request).  So the
aborts wait here, at no cost.
"""

from __future__ import annotations

from collections import deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING
from weakref import WeakKeyDictionary

if TYPE_CHECKING:
    from .runtime import Event, Runtime

_AT_ONCE = 8


class Gate:
    """Lets ``_AT_ONCE`` through; the others wait in the order of their coming."""

    def __init__(self) -> None:
        self._free = _AT_ONCE
        self._waiting: deque[Event] = deque()

    @asynccontextmanager
    async def passed(self, runtime: Runtime) -> AsyncIterator[None]:
        """The time inside."""
        if self._free:
            self._free -= 1
        else:
            turn = runtime.event()
            self._waiting.append(turn)
            try:
                await turn.wait()
            except BaseException:
                if turn in self._waiting:
                    self._waiting.remove(turn)
                else:
                    self._leave()  # it was our turn already
                raise
        try:
            yield
        finally:
            self._leave()

    def _leave(self) -> None:
        if self._waiting:
            self._waiting.popleft().set()
        else:
            self._free += 1


_gates: WeakKeyDictionary[object, Gate] = WeakKeyDictionary()


def gate_of(client: object) -> Gate:
    """The client's own gate; a new one if the client cannot be remembered."""
    try:
        return _gates.setdefault(client, Gate())
    except TypeError:
        return Gate()
