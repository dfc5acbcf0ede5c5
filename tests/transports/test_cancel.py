"""Cancelling at every step: the cancellation goes on its way, what came is kept, and nothing else is left."""

from __future__ import annotations

import asyncio
import gc
import socket
import sys
from collections.abc import Callable
from typing import Any

import pytest

from ssefold.transports.testing import FakeSGLang, Script
from tests.transports.raw import RawServer, chunks, head
from tests.transports.stacks import ALL_STACKS, BoundClient, Stack, in_thread, read, requires, settle
from tests.transports.test_contract import ASK, check
from tests.transports.test_errors import chunk

anyio = pytest.importorskip("anyio", reason="the tests run on anyio")

Serve = Callable[..., FakeSGLang]


@pytest.fixture(params=[stack for stack in ALL_STACKS if stack.backend == "asyncio" and not stack.is_sync], ids=repr)
def asyncio_stack(request: pytest.FixtureRequest) -> Stack:
    requires(request.param)
    return request.param  # type: ignore[no-any-return]


def is_prefix(stream: Any, truth: Script) -> None:
    """What came is the start of what was generated."""
    for held in stream.snapshot().values():
        count = len(held.token_ids)
        assert tuple(held.token_ids) == truth.token_ids[:count]
        assert tuple(held.logprobs) == (truth.logprobs or ())[:count]


def tokens_of(stream: Any) -> int:
    return sum(len(output.token_ids) for output in stream.outputs.values())


def has_tokens(stream: Any, count: int) -> Callable[[], bool]:
    return lambda: tokens_of(stream) == count


async def spin(turns: int) -> None:
    """So many turns of the loop."""
    for _ in range(turns):
        await anyio.sleep(0)


async def until(condition: Callable[[], bool]) -> None:
    """As many turns of the loop as it takes.

    Not one behind the other: the server's thread, which lets go of the interpreter with every byte it sends, would have
    to wait 5 ms each time to get it back.
    """
    while not condition():
        await anyio.sleep(0.001)


@pytest.mark.parametrize("held_after", [0, 1, 7], ids=lambda tokens: f"{tokens} tokens")
def test_a_cancelled_scope_at_every_step(async_stack: Stack, server: FakeSGLang, held_after: int) -> None:
    """From before the connection to the wait for the next token, on anyio's scopes and on trio's own."""
    truth = server.truth(ASK)[0]
    server.hold(after=held_after)
    reached: set[int] = set()

    async def test(client: BoundClient) -> None:
        for turns in [*range(24), *range(24, 200, 16), None]:
            stream = client.generate(server.url + "/generate", ASK)
            scope = anyio.CancelScope()

            async def run(stream: Any = stream, scope: Any = scope) -> None:
                with scope:
                    async with stream:
                        await read(stream)
                assert scope.cancelled_caught

            async with anyio.create_task_group() as group:
                group.start_soon(run)
                if turns is not None:
                    await spin(turns)
                else:
                    await until(has_tokens(stream, held_after))
                scope.cancel()
            is_prefix(stream, truth)
            reached.add(tokens_of(stream))
            assert client.busy() == 0
        await in_thread(server.wait_until, lambda counters: counters.running == 0)

    async_stack.run(test)
    assert server.counters.orphans == 0
    assert {0, held_after} <= reached


@pytest.mark.parametrize("again", [None, 0, 1, 2, 3], ids=lambda turns: f"again after {turns}")
def test_a_cancelled_task_and_one_cancelled_twice(asyncio_stack: Stack, serve: Serve, again: int | None) -> None:
    """encode/httpx 3782: a second cancellation amid the clean-up of the first left the connection in the pool."""
    server = serve()
    truth = server.truth(ASK)[0]
    server.hold(after=5)

    async def test(client: BoundClient) -> None:
        for turns in [*range(16), 40, None]:
            stream = client.generate(server.url + "/generate", ASK)

            async def run(stream: Any = stream) -> None:
                async with stream:
                    await read(stream)

            task = asyncio.ensure_future(run())
            if turns is None:
                await until(has_tokens(stream, 5))
            else:
                await spin(turns)
            task.cancel()
            if again is not None:
                await spin(again)
                task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            is_prefix(stream, truth)
            assert turns is not None or tokens_of(stream) == 5
            assert client.busy() == 0
        await in_thread(server.wait_until, lambda counters: counters.running == 0)

    asyncio_stack.run(test)


def test_a_cancellation_amid_the_clean_up_waits_for_it(asyncio_stack: Stack, serve: Serve) -> None:
    """The server is told although the task is cancelled again and again."""
    server = serve(profile="0.5.18")
    server.hold(after=3)

    async def test(client: BoundClient) -> None:
        stream = client.generate(server.url + "/generate", ASK, on_cancel="direct")

        async def run() -> None:
            async with stream:
                await read(stream)

        task = asyncio.ensure_future(run())
        await until(lambda: tokens_of(stream) == 3)
        while not task.done():
            task.cancel()
            await asyncio.sleep(0)
        assert task.cancelled()
        assert len(stream.outputs[0].token_ids) >= 3

    asyncio_stack.run(test)
    server.wait_until(lambda counters: counters.running == 0)
    assert (server.counters.orphans, server.counters.orphaned, server.counters.abort_requests) == (0, 0, 1)


@pytest.mark.skipif(sys.version_info < (3, 11), reason="before Python 3.11 anyio itself takes the one for the other")
def test_a_native_cancellation_inside_a_scope_is_not_lost(asyncio_stack: Stack, server: FakeSGLang) -> None:
    """Cancelled by a scope and then by its task: the scope catches its own, the task's goes on."""
    server.hold(after=2)

    async def test(client: BoundClient) -> None:
        scopes: list[Any] = []

        async def run() -> None:
            with anyio.CancelScope() as scope:
                scopes.append(scope)
                async with client.generate(server.url + "/generate", ASK) as stream:
                    await read(stream)
            await asyncio.sleep(0)

        task = asyncio.ensure_future(run())
        await in_thread(server.wait_until, lambda counters: counters.tokens == 2)
        scopes[0].cancel()
        await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio_stack.run(test)


def test_a_deadline(async_stack: Stack, server: FakeSGLang) -> None:
    server.hold(after=4)

    async def test(client: BoundClient) -> None:
        stream = client.generate(server.url + "/generate", ASK)
        with pytest.raises(TimeoutError), anyio.fail_after(0.2):
            async with stream:
                await read(stream)
        is_prefix(stream, server.truth(ASK)[0])

    async_stack.run(test)


def test_the_partial_is_on_a_cancelled_collect(async_stack: Stack, server: FakeSGLang) -> None:
    server.hold(after=4)
    caught: list[BaseException] = []

    async def test(client: BoundClient) -> None:
        async def run() -> None:
            try:
                await client.collect(server.url + "/generate", ASK)
            except BaseException as error:
                caught.append(error)
                raise

        async with anyio.create_task_group() as group:
            group.start_soon(run)
            await in_thread(server.wait_until, lambda counters: counters.tokens == 4)
            await spin(50)
            group.cancel_scope.cancel()

    async_stack.run(test)
    [error] = caught
    assert isinstance(error, asyncio.CancelledError if async_stack.backend == "asyncio" else BaseException)
    held = error.partial  # type: ignore[attr-defined]
    assert tuple(held[0].token_ids) == server.truth(ASK)[0].token_ids[: len(held[0].token_ids)]


def test_breaking_off_leaves_nothing(stack: Stack, server: FakeSGLang) -> None:
    async def test(client: BoundClient) -> None:
        for count in (1, 2, 11):
            async with client.generate(server.url + "/generate", ASK) as stream:
                taken = 0
                async for update in stream:
                    taken += len(update.token_ids)
                    if taken >= count:
                        break
            is_prefix(stream, server.truth(ASK)[0])
            assert len(stream.outputs[0].token_ids) >= count
        await in_thread(server.wait_until, lambda counters: counters.running == 0)

    stack.run(test)


def test_a_dropped_iterator_leaves_nothing(stack: Stack, server: FakeSGLang) -> None:
    async def test(client: BoundClient) -> None:
        async with client.generate(server.url + "/generate", ASK) as stream:
            iterator = stream.__aiter__()
            await iterator.__anext__()
            del iterator
            gc.collect()
            await settle()

    stack.run(test)


def test_an_exception_of_the_callers_goes_through_unchanged(stack: Stack, server: FakeSGLang) -> None:
    class OwnError(Exception):
        pass

    async def test(client: BoundClient) -> None:
        stream = client.generate(server.url + "/generate", ASK)
        with pytest.raises(OwnError) as caught:  # noqa: PT012
            async with stream:
                async for _ in stream:
                    raise OwnError("mine")
        assert caught.value.__context__ is None
        is_prefix(stream, server.truth(ASK)[0])
        await in_thread(server.wait_until, lambda counters: counters.running == 0)

    stack.run(test)


def test_an_interrupt_in_blocking_code_cleans_up(serve: Serve) -> None:
    stack = next(stack for stack in ALL_STACKS if stack.is_sync)
    requires(stack)
    server = serve(profile="0.5.18")

    async def test(client: BoundClient) -> None:
        with pytest.raises(KeyboardInterrupt):  # noqa: PT012
            async with client.generate(server.url + "/generate", ASK, on_cancel="direct") as stream:
                async for _ in stream:
                    raise KeyboardInterrupt

    stack.run(test)
    server.wait_until(lambda counters: counters.running == 0)
    assert server.counters.orphaned == 0


def test_a_read_that_timed_out_may_be_tried_again_or_says_why_not(async_stack: Stack, server: FakeSGLang) -> None:
    server.hold(after=2)

    async def test(client: BoundClient) -> None:
        from ssefold.transports import TransportError

        async with client.generate(server.url + "/generate", ASK) as stream:
            await stream.__anext__()
            await stream.__anext__()
            with anyio.move_on_after(0.05):
                await stream.__anext__()
            server.release()
            if async_stack.name.startswith("httpx"):
                with pytest.raises(TransportError, match="was cancelled"):
                    await read(stream)
            else:
                await read(stream)
                check(stream.outputs, server.truth(ASK))

    async_stack.run(test)


@pytest.mark.parametrize("on_cancel", ["direct", "router"])
def test_leaving_is_bounded(stack: Stack, on_cancel: str, events: list[tuple[str, dict[str, Any]]]) -> None:
    """A server that takes an abort and never answers holds nobody up for longer than ``abort_timeout``."""

    def begins(connection: socket.socket) -> None:
        connection.sendall(head(transfer_encoding="chunked") + chunks(chunk(None, finish="null"))[0])
        connection.recv(1)

    def is_silent(connection: socket.socket) -> None:
        connection.recv(1)

    with RawServer(begins, is_silent) as server:

        async def test(client: BoundClient) -> None:
            async with client.generate(
                server.url + "/generate",
                {"text": "x"},
                on_cancel=on_cancel,
                abort_timeout=0.1,
                on_event=lambda *event: events.append(event),
            ) as stream:
                await stream.__anext__()

        stack.run(test)
    assert [name for name, _ in events[-4:]] == ["abort", "abort", "abort_failed", "close"]
    assert events[-2][1]["ids"] == ("r",)
