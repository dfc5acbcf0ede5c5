"""The client stacks, under one set of names, so that a test is written once and holds for all of them.

A stack opens a client, makes streams, and afterwards proves that nothing is left: no task, no socket, no pool slot.
The blocking client is wrapped so that it looks like the others; servers run in threads of their own, so it may block.
"""

from __future__ import annotations

import asyncio
import gc
import os
import socket
import ssl
import stat
import time
import warnings
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Protocol, TypeVar

import pytest

from ssefold import Update

T = TypeVar("T")
TLS = ssl.create_default_context()
"""One for all clients: reading the certificates takes longer than most tests."""
PATIENCE = 120.0
"""Seconds that a client of ours waits for a server on a machine that does much else."""
OPEN_FILES = Path("/proc/self/fd")


class Stream(Protocol):
    """What every stream can do."""

    outputs: Mapping[int, Any]
    metrics: Any
    rid: Any

    def snapshot(self) -> dict[int, Any]: ...
    async def __aenter__(self) -> Any: ...
    async def __aexit__(self, *exc_info: Any) -> None: ...
    def __aiter__(self) -> AsyncIterator[Update]: ...
    async def __anext__(self) -> Update: ...
    async def abort(self) -> None: ...
    async def aclose(self) -> None: ...


class BoundClient(Protocol):
    """A client of one stack."""

    def generate(self, url: str, payload: Mapping[str, Any], **options: Any) -> Any: ...
    async def collect(self, url: str, payload: Mapping[str, Any], **options: Any) -> dict[int, dict[str, Any]]: ...
    def busy(self) -> int: ...


class Stack:
    """One way of making requests."""

    def __init__(self, name: str, backend: str = "asyncio", *, needs: tuple[str, ...] = ()) -> None:
        self.name = name
        self.backend = backend
        self.needs = ("anyio", *needs)
        self.is_sync = name == "httpx-sync"

    def __repr__(self) -> str:
        return self.name

    def run(self, test: Callable[[BoundClient], Awaitable[T]], **limits: Any) -> T:
        """Run the test with a client; then look whether anything is left."""
        import anyio

        async def main() -> T:
            tasks = running_tasks()
            async with self._client(**limits) as client:
                result = await test(client)
                assert client.busy() == 0, "a pool slot is still taken"
            await settle()
            assert running_tasks() == tasks, "a task is left"
            return result

        before = client_sockets()
        with warnings.catch_warnings():
            # httpx sends a body from a generator, which it leaves behind when the sending is cancelled; trio minds.
            warnings.filterwarnings("ignore", "Async generator 'httpx._content", ResourceWarning)
            result = anyio.run(main, backend=self.backend)
            gc.collect()
        # A fake router's own connection to its worker is closed by the router's thread, a moment later.
        deadline = time.monotonic() + 5
        while client_sockets() > before and time.monotonic() < deadline:
            time.sleep(0.005)
        assert client_sockets() <= before, "a socket is left"
        return result

    @asynccontextmanager
    async def _client(self, **limits: Any) -> AsyncIterator[BoundClient]:
        if self.name.startswith("httpx"):
            import httpx

            options: dict[str, Any] = {
                "timeout": httpx.Timeout(PATIENCE),
                "limits": httpx.Limits(
                    max_connections=limits.get("connections"), max_keepalive_connections=limits.get("idle")
                ),
                "verify": TLS,
            }
            if self.is_sync:
                with httpx.Client(**options) as sync_client:
                    yield SyncHttpxClient(sync_client)
                return
            async with httpx.AsyncClient(**options) as client:
                yield HttpxClient(client)
        elif self.name == "aiohttp":
            import aiohttp

            connector = aiohttp.TCPConnector(limit=limits.get("connections") or 0)
            timeout = aiohttp.ClientTimeout(total=None, connect=PATIENCE, sock_read=PATIENCE)
            async with aiohttp.ClientSession(connector=connector, timeout=timeout) as session:
                yield AiohttpClient(session)
        else:
            yield AnyioClient()


ALL_STACKS = [
    Stack("httpx", needs=("httpx",)),
    Stack("httpx-trio", "trio", needs=("httpx", "trio")),
    Stack("httpx-sync", needs=("httpx",)),
    Stack("aiohttp", needs=("aiohttp",)),
    Stack("anyio-asyncio", needs=("h11",)),
    Stack("anyio-trio", "trio", needs=("h11", "trio")),
]


class HttpxClient:
    def __init__(self, client: Any) -> None:
        self.client = client

    def generate(self, url: str, payload: Mapping[str, Any], **options: Any) -> Any:
        from ssefold.transports import httpx

        return httpx.generate(self.client, url, payload, **options)

    async def collect(self, url: str, payload: Mapping[str, Any], **options: Any) -> dict[int, dict[str, Any]]:
        from ssefold.transports import httpx

        return await httpx.collect(self.client, url, payload, **options)

    def busy(self) -> int:
        return len(self.client._transport._pool._requests)


class SyncHttpxClient(HttpxClient):
    def generate(self, url: str, payload: Mapping[str, Any], **options: Any) -> Any:
        return AsyncLooking(super().generate(url, payload, **options))

    async def collect(self, url: str, payload: Mapping[str, Any], **options: Any) -> dict[int, dict[str, Any]]:
        from ssefold.transports import httpx

        return httpx.collect_sync(self.client, url, payload, **options)


class AsyncLooking:
    """A blocking stream with an asynchronous stream's methods."""

    def __init__(self, stream: Any) -> None:
        self.sync = stream

    def __getattr__(self, name: str) -> Any:
        return getattr(self.sync, name)

    async def __aenter__(self) -> AsyncLooking:
        self.sync.__enter__()
        return self

    async def __aexit__(self, *exc_info: Any) -> None:
        self.sync.__exit__(*exc_info)

    def __aiter__(self) -> AsyncLooking:
        return self

    async def __anext__(self) -> Update:
        try:
            return next(self.sync)  # type: ignore[no-any-return]
        except StopIteration:
            raise StopAsyncIteration from None

    async def abort(self) -> None:
        self.sync.abort()

    async def aclose(self) -> None:
        self.sync.close()


class AiohttpClient:
    def __init__(self, session: Any) -> None:
        self.session = session

    def generate(self, url: str, payload: Mapping[str, Any], **options: Any) -> Any:
        from ssefold.transports import aiohttp

        return aiohttp.generate(self.session, url, payload, **options)

    async def collect(self, url: str, payload: Mapping[str, Any], **options: Any) -> dict[int, dict[str, Any]]:
        from ssefold.transports import aiohttp

        return await aiohttp.collect(self.session, url, payload, **options)

    def busy(self) -> int:
        return len(self.session.connector._acquired)


class AnyioClient:
    def generate(self, url: str, payload: Mapping[str, Any], **options: Any) -> Any:
        from ssefold.transports import anyio

        return anyio.generate(url, payload, **options)

    async def collect(self, url: str, payload: Mapping[str, Any], **options: Any) -> dict[int, dict[str, Any]]:
        from ssefold.transports import anyio

        return await anyio.collect(url, payload, **options)

    def busy(self) -> int:
        return 0


def client_sockets() -> int:
    """TCP sockets of this process that are not a server's; 0 where the system does not tell.

    Servers of a test close their ends in threads of their own, when they come to it: they are left out, by their ports.
    """
    if not OPEN_FILES.exists():
        return 0
    listening: set[Any] = set()
    others: list[Any] = []
    for number in [int(entry.name) for entry in OPEN_FILES.iterdir()]:
        try:
            if not stat.S_ISSOCK(os.fstat(number).st_mode):
                continue
            with socket.socket(fileno=os.dup(number)) as one:
                if one.family not in (socket.AF_INET, socket.AF_INET6) or one.type != socket.SOCK_STREAM:
                    continue
                place = one.getsockname()
                if one.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN):
                    listening.add(place)
                else:
                    others.append(place)
        except OSError:
            continue  # closed meanwhile; the folder's own descriptor, for one
    return sum(place not in listening for place in others)


def running_tasks() -> set[Any]:
    """All tasks of the running loop."""
    try:
        return set(asyncio.all_tasks())
    except RuntimeError:
        import trio

        root = trio.lowlevel.current_root_task()
        found: set[Any] = set()
        todo = [root]
        while todo:
            task = todo.pop()
            found.add(task)
            todo += [child for nursery in task.child_nurseries for child in nursery.child_tasks] if task else []
        return found


async def settle() -> None:
    """Let callbacks that are due run."""
    import anyio

    for _ in range(5):
        await anyio.lowlevel.checkpoint()


def requires(stack: Stack) -> None:
    """Skip, saying why, where a stack's packages are absent."""
    for package in stack.needs:
        pytest.importorskip(package, reason=f"{stack.name} needs {package}")


async def in_thread(function: Callable[..., T], *args: Any) -> T:
    """Run what blocks without blocking the loop."""
    import anyio.to_thread

    return await anyio.to_thread.run_sync(function, *args)


async def read(stream: Any) -> list[Update]:
    """Every update of an entered stream."""
    return [update async for update in stream]
