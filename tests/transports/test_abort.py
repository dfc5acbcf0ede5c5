"""Freeing the server: whoever stops listening makes it stop decoding, and whoever aborts keeps what the end brings."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import pytest

from ssefold import ServerError
from ssefold.transports import TransportError
from ssefold.transports.testing import FakeRouter, FakeSGLang, Fault
from tests.transports.raw import RawServer, chunks, head, sends
from tests.transports.stacks import BoundClient, Stack, in_thread, read
from tests.transports.test_cancel import tokens_of, until
from tests.transports.test_contract import ASK, fold
from tests.transports.test_errors import chunk

anyio = pytest.importorskip("anyio", reason="the tests run on anyio")

Serve = Callable[..., FakeSGLang]
# No output ends by itself before anybody can leave, however quick the machine: servers are held, mostly.  Where one
# has to be decoding when its client leaves, the answer is long instead.
LONG = {**ASK, "sampling_params": {"max_new_tokens": 8_000}}


async def leave_after(client: BoundClient, url: str, payload: dict[str, Any], tokens: int, **options: Any) -> Any:
    """Read so many tokens of every output, then leave."""
    async with client.generate(url + "/generate", payload, **options) as stream:
        with suppress(StopAsyncIteration):
            while tokens_of(stream) < tokens:
                await stream.__anext__()
    return stream


def test_a_closed_connection_frees_most_versions(stack: Stack, serve: Serve) -> None:
    server = serve(profile="0.5.23")
    server.hold(after=3)

    async def test(client: BoundClient) -> None:
        await leave_after(client, server.url, ASK, 3)

    stack.run(test)
    server.wait_until(lambda counters: counters.running == 0)
    assert server.counters.abort_requests == 0
    assert server.counters.orphaned == 0


def test_a_closed_connection_leaves_a_zombie_in_0_5_18(stack: Stack, serve: Serve) -> None:
    """sglang 36333: what on_cancel is for."""
    server = serve(profile="0.5.18")
    server.hold(after=3)

    async def test(client: BoundClient) -> None:
        await leave_after(client, server.url, ASK, 3)

    stack.run(test)
    server.wait_until(lambda counters: counters.disconnects == 1)
    server.release()
    server.wait_until(lambda counters: counters.running == 0)
    assert server.counters.orphaned == 1


@pytest.mark.parametrize(
    ("ask", "tokens"),
    [
        (LONG, 1),
        ({**ASK, "sampling_params": {"max_new_tokens": 24, "n": 4}}, 30),
        ({**ASK, "input_ids": [[1], [2], [3]]}, 20),
        ({**ASK, "input_ids": [[1], [2]], "rid": ["first", "second"]}, 10),
        ({**ASK, "input_ids": [[1, 2]], "rid": "batch"}, 1),
    ],
    ids=["single", "n=4", "batch", "batch with ids", "batch of one"],
)
@pytest.mark.parametrize("on_cancel", ["direct", "router"])
def test_leaving_stops_every_output(
    stack: Stack, serve: Serve, ask: dict[str, Any], tokens: int, on_cancel: str
) -> None:
    workers = [serve(profile="0.5.18"), serve(profile="0.5.18")]
    if ask is not LONG:
        for worker in workers:
            worker.hold(after=8)
    with FakeRouter(workers) as router:
        url = router.url if on_cancel == "router" else workers[0].url

        async def test(client: BoundClient) -> None:
            await leave_after(client, url, ask, tokens, on_cancel=on_cancel)

        stack.run(test)
        for worker in workers:
            worker.wait_until(lambda counters: counters.running == 0)
    assert sum(worker.counters.aborted for worker in workers) == sum(worker.counters.outputs for worker in workers) > 0
    assert sum(worker.counters.orphaned for worker in workers) == 0


def test_leaving_before_the_first_token_stops_it_too(async_stack: Stack, serve: Serve) -> None:
    """The id was ours to give, so it is known before the server says it."""
    server = serve(profile="0.5.18")
    server.hold(after=0)

    async def test(client: BoundClient) -> None:
        with anyio.CancelScope() as scope:
            async with client.generate(server.url + "/generate", ASK, on_cancel="direct") as stream:
                await in_thread(server.wait_until, lambda counters: counters.running == 1)
                scope.cancel()
                await read(stream)
        assert tokens_of(stream) == 0

    async_stack.run(test)
    server.wait_until(lambda counters: counters.running == 0)
    assert (server.counters.aborted, server.counters.abort_requests) == (1, 1)


def test_a_whole_stream_aborts_nobody(stack: Stack, server: FakeSGLang) -> None:
    async def test(client: BoundClient) -> None:
        await client.collect(server.url + "/generate", ASK, on_cancel="direct")
        server.fault_next(Fault(error={"message": "no", "code": 400}), Fault(status=500))
        for kind in (ServerError, TransportError):
            with pytest.raises(kind):
                await client.collect(server.url + "/generate", ASK, on_cancel="direct")

    stack.run(test)
    assert server.counters.abort_requests == 0


def test_a_broken_stream_frees_the_server_as_well(stack: Stack, serve: Serve) -> None:
    server = serve()
    server.hold(after=4)

    async def test(client: BoundClient) -> None:
        with pytest.raises(TransportError, match="idle_timeout"):
            await client.collect(server.url + "/generate", ASK, on_cancel="direct", idle_timeout=0.2)

    stack.run(test)
    server.wait_until(lambda counters: counters.running == 0)
    assert (server.counters.aborted, server.counters.abort_requests) == (1, 1)


def test_the_abort_carries_the_callers_headers(stack: Stack, server: FakeSGLang) -> None:
    server.hold(after=1)

    async def test(client: BoundClient) -> None:
        await leave_after(client, server.url, ASK, 1, on_cancel="direct", headers={"Authorization": "Bearer t"})

    stack.run(test)
    seen = server.seen[-1]
    assert (seen.path, seen.headers["authorization"]) == ("/abort_request", "Bearer t")
    assert seen.json == {"rid": server.seen[0].json["rid"]}


def test_abort_reads_on_to_the_end_that_carries_the_replay_arrays(stack: Stack, serve: Serve) -> None:
    server = serve(profile="0.5.15.post1-slime")
    ask = {
        **ASK,
        "sampling_params": {"max_new_tokens": 24, "custom_params": {"return_top_p_token_ids": True}},
    }
    truth = server.truth(ask)[0]
    server.hold(after=6)

    async def test(client: BoundClient) -> None:
        async with client.generate(server.url + "/generate", ask) as stream:
            updates = []
            async for update in stream:
                updates.append(update)
                if tokens_of(stream) == 6:
                    await stream.abort()
                    assert stream.outputs[0].finish_reason is not None
        output = stream.outputs[0]
        assert tuple(output.token_ids) == truth.token_ids[:7], "one more token, and the end"
        assert output.finish_reason.raw == {
            "type": "abort",
            "message": "Aborted",
            "status_code": None,
            "err_type": None,
        }
        assert [token for update in updates for token in update.token_ids][-1] == truth.token_ids[6]
        assert output.routed_experts is not None
        rows = output.routed_experts.reshape(2, 4, total_tokens=len(ask["input_ids"]) + 7)
        assert rows.shape == (len(ask["input_ids"]) + 6, 2, 4)
        assert output.top_p is not None
        assert tuple(output.top_p.kept(6)) == truth.top_p_rows[6]

    stack.run(test)
    assert (server.counters.aborted, server.counters.disconnects) == (1, 0)


@pytest.mark.parametrize("profile", ["0.5.23", "0.5.23-incremental", "0.5.10", "0.5.3"])
def test_abort_of_a_request_that_waits(stack: Stack, serve: Serve, profile: str) -> None:
    server = serve(profile=profile)
    server.hold(after=0)

    async def test(client: BoundClient) -> None:
        async with client.generate(server.url + "/generate", ASK) as stream:
            server.wait_until(lambda counters: counters.running == 1)
            await stream.abort()
            [update] = await read(stream)
        assert update.token_ids == ()
        assert update.finish_reason is not None
        assert update.finish_reason.type == "abort"

    stack.run(test)


@pytest.mark.parametrize("profile", ["0.5.23", "0.5.23-incremental", "0.5.19-incremental", "0.5.9"])
def test_abort_of_a_request_that_was_retracted(stack: Stack, serve: Serve, profile: str) -> None:
    """The queue's abort is a snapshot with the last id alone (wire d.4, d.5): no token is lost or doubled."""
    server = serve(profile=profile, fault=Fault(retract_after=5))
    truth = server.truth(ASK)[0]

    async def test(client: BoundClient) -> None:
        async with client.generate(server.url + "/generate", ASK) as stream:
            updates = []
            while tokens_of(stream) < 5:
                updates.append(await stream.__anext__())
            await stream.abort()
            updates += await read(stream)
        assert fold(updates) == {0: list(truth.token_ids[:5])}
        assert tuple(stream.outputs[0].token_ids) == truth.token_ids[:5]

    stack.run(test)


def test_abort_of_several_outputs(stack: Stack, server: FakeSGLang) -> None:
    ask = {**ASK, "sampling_params": {"max_new_tokens": 24, "n": 3}}
    server.hold(after=4)

    async def test(client: BoundClient) -> None:
        async with client.generate(server.url + "/generate", ask) as stream:
            while not (len(stream.outputs) == 3 and tokens_of(stream) >= 12):
                await stream.__anext__()
            await stream.abort()
            await read(stream)
        assert {output.finish_reason.type for output in stream.outputs.values()} == {"abort"}

    stack.run(test)
    assert server.counters.aborted == 3


def test_abort_from_another_task_while_the_stream_is_read(async_stack: Stack, server: FakeSGLang) -> None:
    server.hold(after=3)
    truth = server.truth(ASK)[0]

    async def test(client: BoundClient) -> None:
        got: list[int] = []

        async with client.generate(server.url + "/generate", ASK) as stream, anyio.create_task_group() as group:

            async def consume() -> None:
                async for update in stream:
                    got.extend(update.token_ids)

            group.start_soon(consume)
            await until(lambda: tokens_of(stream) == 3)
            await stream.abort()
            assert stream.outputs[0].finish_reason is not None
        assert tuple(got) == truth.token_ids[:4]

    async_stack.run(test)
    assert server.counters.abort_requests == 1


def test_abort_that_nobody_takes(stack: Stack, serve: Serve, events: list[tuple[str, dict[str, Any]]]) -> None:
    server = serve()
    server.hold(after=2)
    with FakeRouter([server]) as router:

        async def test(client: BoundClient) -> None:
            async with client.generate(
                router.url + "/generate", ASK, on_cancel="direct", on_event=lambda *event: events.append(event)
            ) as stream:
                await stream.__anext__()
                with pytest.raises(TransportError, match="status 404") as caught:
                    await stream.abort()
                assert caught.value.status_code == 404
                await stream.__anext__()

        stack.run(test)
    assert events[-2][0] == "abort_failed"
    assert "status 404" in str(events[-2][1]["error"])


@pytest.mark.parametrize(
    "answer",
    [
        head("404 Not Found", "application/json") + b'{"detail":"Not Found"}',
        head(kind="application/json") + b"[]",
        head(kind="application/json") + b'{"workers":[]}',
        head(kind="text/html") + b"<html>",
    ],
    ids=["404", "list", "none", "html"],
)
def test_a_router_that_names_no_workers(stack: Stack, answer: bytes) -> None:
    def begins(connection: socket.socket) -> None:
        connection.sendall(head(transfer_encoding="chunked") + chunks(chunk(None, finish="null"))[0])
        connection.recv(1)

    with RawServer(begins, sends(answer)) as server:

        async def test(client: BoundClient) -> None:
            async with client.generate(server.url + "/generate", {"text": "x"}, on_cancel="router") as stream:
                await stream.__anext__()
                with pytest.raises(TransportError, match="named no workers"):
                    await stream.abort()

        stack.run(test)


def test_200_aborted_streams_leave_no_orphan(stack: Stack, serve: Serve) -> None:
    """All at once, over a pool that their aborts do not fit into; the version is one that forgets and decodes on."""
    server = serve(profile="0.5.18-incremental")
    server.hold(after=3)
    streams: list[Any] = []

    async def one(client: BoundClient) -> None:
        stream = client.generate(server.url + "/generate", ASK, on_cancel="direct", abort_timeout=120)
        streams.append(stream)
        async with stream:
            await read(stream)

    async def all_at_once(client: BoundClient) -> None:
        async with anyio.create_task_group() as group:
            for _ in range(200):
                group.start_soon(one, client)
            await in_thread(server.wait_until, lambda counters: counters.tokens == 600)
            await until(lambda: sum(map(tokens_of, streams)) == 600)
            group.cancel_scope.cancel()

    async def one_by_one(client: BoundClient) -> None:
        streams.extend([await leave_after(client, server.url, ASK, 3, on_cancel="direct") for _ in range(200)])

    stack.run(one_by_one if stack.is_sync else all_at_once, connections=None if stack.is_sync else 220)
    server.wait_until(lambda counters: counters.running == 0)
    counters = server.counters
    assert (counters.outputs, counters.aborted, counters.orphans, counters.orphaned) == (200, 200, 0, 0)
    truth = server.truth(ASK)[0]
    for stream in streams:
        held = tuple(stream.outputs[0].token_ids)
        assert len(held) >= 3
        assert held == truth.token_ids[: len(held)]


def test_a_full_pool_gives_its_own_connection_to_the_abort(async_stack: Stack, serve: Serve) -> None:
    """Every connection is a stream's: one has to be given up before the server can be told."""
    server = serve(profile="0.5.23")
    server.hold(after=2)

    async def test(client: BoundClient) -> None:
        streams: list[Any] = []

        async def one() -> None:
            stream = client.generate(server.url + "/generate", ASK, on_cancel="direct", abort_timeout=2)
            streams.append(stream)
            async with stream:
                await read(stream)

        async with anyio.create_task_group() as group:
            for _ in range(8):
                group.start_soon(one)
            await until(lambda: sum(map(tokens_of, streams)) == 16)
            group.cancel_scope.cancel()

    async_stack.run(test, connections=8)
    server.wait_until(lambda counters: counters.running == 0)
    assert server.counters.abort_requests >= 8


def test_ids_of_one_length_do_not_stop_each_other(stack: Stack, server: FakeSGLang) -> None:
    """The scheduler matches ids by prefix: aborting ``r1`` would also stop ``r10``."""
    server.hold(after=2)

    async def test(client: BoundClient) -> None:
        url = server.url + "/generate"
        async with client.generate(url, ASK) as kept:
            await kept.__anext__()
            for _ in range(20):
                await leave_after(client, server.url, ASK, 1, on_cancel="direct")
            await in_thread(server.wait_until, lambda counters: counters.running == 1)
            assert kept.outputs[0].finish_reason is None

    stack.run(test)


def test_the_server_itself_matches_by_prefix(stack: Stack, server: FakeSGLang) -> None:
    server.hold(after=2)

    async def test(client: BoundClient) -> None:
        url = server.url + "/generate"
        async with client.generate(url, ASK, rid="r10") as longer:
            await longer.__anext__()
            await leave_after(client, server.url, ASK, 1, on_cancel="direct", rid="r1")
            await read(longer)
        assert longer.outputs[0].finish_reason.type == "abort"

    stack.run(test)


def test_cancelling_many_tasks_natively(serve: Serve) -> None:
    """Plain asyncio, no scopes: each task is cancelled twice."""
    stack = Stack("aiohttp", needs=("aiohttp",))
    pytest.importorskip("aiohttp", reason="the session is aiohttp's")
    server = serve(profile="0.5.18")
    server.hold(after=2)

    async def test(client: BoundClient) -> None:
        streams = [client.generate(server.url + "/generate", ASK, on_cancel="direct") for _ in range(32)]

        async def one(stream: Any) -> None:
            async with stream:
                await read(stream)

        tasks = [asyncio.ensure_future(one(stream)) for stream in streams]
        await until(lambda: sum(map(tokens_of, streams)) == 64)
        for _ in range(2):
            for task in tasks:
                task.cancel()
            await asyncio.sleep(0)
        await asyncio.wait(tasks)
        assert all(task.cancelled() for task in tasks)

    stack.run(test)
    server.wait_until(lambda counters: counters.running == 0)
    assert server.counters.orphaned == 0
