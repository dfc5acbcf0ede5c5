"""Cancelled while connecting: no slot of a pool stays taken by a connection that nobody makes, and no socket is left.

httpcore leaves both behind by itself.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from ssefold.transports import TransportError
from tests.transports.stacks import BoundClient, Stack, read
from tests.transports.test_contract import ASK

anyio = pytest.importorskip("anyio", reason="the tests run on anyio")

STREAMS, SLOTS = 6, 3


@contextmanager
def no_handshake() -> Iterator[str]:
    """A server that accepts and never says a word; the system's backlog does the accepting."""
    with socket.create_server(("127.0.0.1", 0), backlog=64) as listener:
        yield f"https://127.0.0.1:{listener.getsockname()[1]}/generate"


def left_over(client: Any) -> list[Any]:
    """Connections that the pool counts, whatever their state."""
    transport = getattr(getattr(client, "client", None), "_transport", None)
    return list(transport._pool.connections) if transport is not None else []


async def connect(client: BoundClient, url: str, **options: Any) -> None:
    async with client.generate(url, ASK, **options) as stream:
        await read(stream)


@pytest.mark.parametrize("on_cancel", ["disconnect", "direct"])
@pytest.mark.parametrize("turns", [0, 1, 2, 3, 5, 8, 13, 40])
def test_by_a_scope(async_stack: Stack, turns: int, on_cancel: str) -> None:
    with no_handshake() as url:

        async def test(client: BoundClient) -> None:
            async with anyio.create_task_group() as group:
                for _ in range(STREAMS):
                    group.start_soon(lambda: connect(client, url, on_cancel=on_cancel, abort_timeout=0.2))
                for _ in range(turns):
                    await anyio.sleep(0)
                if turns == 40:
                    await anyio.sleep(0.05)
                group.cancel_scope.cancel()
            assert left_over(client) == []

        async_stack.run(test, connections=SLOTS)


@pytest.mark.parametrize("order", [lambda n: n, lambda n: -n, lambda n: n % 3], ids=["first", "last", "mixed"])
@pytest.mark.parametrize("pause", [0, 1, 3], ids=lambda turns: f"{turns} turns between")
def test_one_task_after_the_other(async_stack: Stack, order: Callable[[int], int], pause: int) -> None:
    if async_stack.backend != "asyncio":
        pytest.skip("a task of trio's is cancelled by a scope")
    with no_handshake() as url:

        async def test(client: BoundClient) -> None:
            tasks = [asyncio.ensure_future(connect(client, url)) for _ in range(STREAMS)]
            await asyncio.sleep(0.05)
            for number in sorted(range(STREAMS), key=order):
                tasks[number].cancel()
                for _ in range(pause):
                    await asyncio.sleep(0)
            await asyncio.wait(tasks)
            assert all(task.cancelled() for task in tasks)
            assert left_over(client) == []

        async_stack.run(test, connections=SLOTS)


def test_by_idle_timeout(async_stack: Stack) -> None:
    with no_handshake() as url:

        async def test(client: BoundClient) -> None:
            async def one() -> None:
                with pytest.raises(TransportError, match="idle_timeout"):
                    await connect(client, url, idle_timeout=0.1)

            async with anyio.create_task_group() as group:
                for _ in range(STREAMS):
                    group.start_soon(one)
            assert left_over(client) == []

        async_stack.run(test, connections=SLOTS)


def test_a_stream_that_waits_gets_the_slot_that_becomes_free(async_stack: Stack, server: Any) -> None:
    """The pool is full of connections that are not made; when they are given up, who waits for one gets it."""
    with no_handshake() as url:

        async def test(client: BoundClient) -> None:
            with anyio.fail_after(30):
                async with anyio.create_task_group() as group:
                    stuck = anyio.CancelScope()

                    async def connecting() -> None:
                        with stuck:
                            async with anyio.create_task_group() as inner:
                                for _ in range(STREAMS):
                                    inner.start_soon(connect, client, url)

                    group.start_soon(connecting)
                    await anyio.sleep(0.05)
                    whole: list[Any] = []

                    async def wanted() -> None:
                        whole.append(await client.collect(server.url + "/generate", ASK))

                    group.start_soon(wanted)
                    await anyio.sleep(0.05)
                    stuck.cancel()
            assert len(whole[0][0]["output_ids"]) == 24

        async_stack.run(test, connections=SLOTS)
