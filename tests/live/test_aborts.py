"""Aborts, and clients that go: no token that came is lost, and the scheduler stops."""

from __future__ import annotations

import json
import time
import urllib.request
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any

import pytest

from tests.live.asks import PATIENCE, PROMPTS, Held, ask, check_all, check_so_far, rid_of
from tests.live.server import LAYERS, RUNNING, TOP_K, LiveServer
from tests.transports.stacks import BoundClient, Stack, in_thread, read

anyio = pytest.importorskip("anyio", reason="the tests run on anyio")

LONG = 1500
SHAPES: dict[str, tuple[dict[str, Any], int]] = {
    "single": ({}, 1),
    "n=2": ({"n": 2}, 2),
    "batch": ({"prompt": PROMPTS}, 3),
    "batch with n=2": ({"prompt": PROMPTS[:2], "n": 2}, 4),
}


async def read_until(stream: Any, condition: Callable[[], bool], held: Held | None = None) -> None:
    """Read until the condition holds, or the stream ends."""
    with suppress(StopAsyncIteration):
        while not condition():
            update = await stream.__anext__()
            if held is not None:
                held.apply(update)


def each_has(stream: Any, count: int, tokens: int) -> Callable[[], bool]:
    """Every output has come, and holds so many tokens."""

    def condition() -> bool:
        outputs = stream.outputs
        return len(outputs) == count and all(len(output.token_ids) >= tokens for output in outputs.values())

    return condition


@contextmanager
def busy(server: LiveServer) -> Iterator[None]:
    """All of the server's places are taken, so that the next request has to queue."""
    rids = [uuid.uuid4().hex for _ in range(RUNNING)]
    payload = {**ask(LONG, prompt=[PROMPTS[0]] * RUNNING), "rid": rids, "stream": True}
    request = urllib.request.Request(
        server.generate, json.dumps(payload).encode(), {"content-type": "application/json"}
    )
    with urllib.request.urlopen(request, timeout=120) as response:
        response.readline()
        try:
            while len(server.truth.running()) < RUNNING:
                response.readline()
            yield
        finally:
            for rid in rids:
                server.abort(rid)
            response.read()


# ---- by id, from outside


@pytest.mark.parametrize("interval", [1, 8])
def test_abort_by_id(stack: Stack, live: LiveServer, interval: int) -> None:
    rid = uuid.uuid4().hex

    async def test(client: BoundClient) -> None:
        held = Held()
        async with client.generate(live.generate, ask(LONG, interval=interval), rid=rid, **PATIENCE) as stream:
            await read_until(stream, each_has(stream, 1, 5), held)
            await in_thread(live.abort, rid)
            for update in await read(stream):
                held.apply(update)
        check_all(live, stream.outputs)
        held.check(stream.outputs)
        output = stream.outputs[0]
        assert rid_of(output) == rid
        assert output.finish_reason.type == "abort"
        assert 5 <= len(output.token_ids) < LONG

    stack.run(test)


@pytest.mark.parametrize("shape", ["n=2", "batch"])
def test_abort_one_of_several(stack: Stack, live: LiveServer, shape: str) -> None:
    more, count = SHAPES[shape]

    async def test(client: BoundClient) -> None:
        async with client.generate(live.generate, ask(150, **more), **PATIENCE) as stream:
            await read_until(stream, each_has(stream, count, 3))
            await in_thread(live.abort, rid_of(stream.outputs[1]))
            await read(stream)
        check_all(live, stream.outputs, count)
        reasons = [stream.outputs[index].finish_reason.type for index in range(count)]
        assert reasons == ["length", "abort", "length", "length"][:count]

    stack.run(test)


def test_an_id_aborts_those_that_begin_with_it(live: LiveServer, async_stack: Stack) -> None:
    """Why ids that are made up are random and of one length."""
    rid = uuid.uuid4().hex

    async def test(client: BoundClient) -> None:
        async with (
            client.generate(live.generate, ask(LONG), rid=rid, **PATIENCE) as one,
            client.generate(live.generate, ask(LONG), rid=rid + "0", **PATIENCE) as other,
        ):
            await read_until(one, each_has(one, 1, 3))
            await read_until(other, each_has(other, 1, 3))
            await in_thread(live.abort, rid)
            await read(one)
            await read(other)
        for stream in (one, other):
            check_all(live, stream.outputs)
            assert stream.outputs[0].finish_reason.type == "abort"

    async_stack.run(test)


@pytest.mark.parametrize("shape", ["n=2", "batch"])
def test_the_request_s_own_id_does_not_abort_several(stack: Stack, live: LiveServer, shape: str) -> None:
    """The server knows ``id_0``, or an id of its own making; and an id that it does not know is ignored."""
    more, count = SHAPES[shape]
    rid = uuid.uuid4().hex

    async def test(client: BoundClient) -> None:
        async with client.generate(live.generate, ask(100, **more), rid=rid, **PATIENCE) as stream:
            await read_until(stream, each_has(stream, count, 3))
            await in_thread(live.abort, rid)
            await read(stream)
        check_all(live, stream.outputs, count)
        assert {output.finish_reason.type for output in stream.outputs.values()} == {"length"}

    stack.run(test)


def test_abort_in_the_queue(stack: Stack, live: LiveServer) -> None:
    rid = uuid.uuid4().hex

    async def test(client: BoundClient) -> None:
        async with client.generate(live.generate, ask(50), rid=rid, **PATIENCE) as stream:
            await in_thread(live.abort, rid)
            updates = await read(stream)
        output = stream.outputs[0]
        assert list(output.token_ids) == list(output.logprobs) == []
        assert output.finish_reason.type == "abort"
        assert output.finish_reason.message == "Abort in waiting queue"
        assert not output.finish_reason.is_failure
        assert len(updates) == 1
        assert live.truth.sent(rid).queue_abort

    with busy(live):
        stack.run(test)


# ---- stream.abort()


@pytest.mark.parametrize("interval", [1, 8])
@pytest.mark.parametrize("shape", SHAPES)
def test_abort_reads_on_to_the_end(stack: Stack, live: LiveServer, shape: str, interval: int) -> None:
    """And gets what only the end brings: the routing of all that was fed."""
    more, count = SHAPES[shape]
    payload = ask(LONG, interval=interval, return_routed_experts=True, **more)

    async def test(client: BoundClient) -> None:
        held = Held()
        async with client.generate(live.generate, payload, **PATIENCE) as stream:
            await read_until(stream, each_has(stream, count, 9), held)
            await stream.abort()
            for update in await read(stream):
                held.apply(update)
        check_all(live, stream.outputs, count)
        held.check(stream.outputs)
        for output in stream.outputs.values():
            assert output.finish_reason.type == "abort"
            assert 9 <= len(output.token_ids) < LONG
            total = output.meta_info["prompt_tokens"] + len(output.token_ids)
            placed = output.routed_experts.reshape(LAYERS, TOP_K, total_tokens=total)
            assert placed.array.tolist() == live.truth.sent(rid_of(output)).routing

    stack.run(test)


def test_abort_before_anything_came(stack: Stack, live: LiveServer) -> None:
    async def test(client: BoundClient) -> None:
        async with client.generate(live.generate, ask(LONG), **PATIENCE) as stream:
            await stream.abort()
        sent = live.truth.end_of(stream.rid)
        output = stream.outputs[0]
        assert output.finish_reason.type == "abort"
        assert len(output.token_ids) < LONG
        assert list(output.token_ids) == sent.token_ids
        assert list(output.logprobs) == sent.logprobs

    stack.run(test)


def test_abort_in_the_queue_by_the_stream(stack: Stack, live: LiveServer) -> None:
    async def test(client: BoundClient) -> None:
        async with client.generate(live.generate, ask(50), **PATIENCE) as stream:
            await stream.abort()
        assert stream.outputs[0].finish_reason.message == "Abort in waiting queue"

    with busy(live):
        stack.run(test)


# ---- clients that go


@pytest.mark.parametrize("on_cancel", ["disconnect", "direct"])
@pytest.mark.parametrize("shape", SHAPES)
def test_leaving_stops_the_scheduler(
    stack: Stack, live: LiveServer, seen: Callable[[str], None], shape: str, on_cancel: str
) -> None:
    more, count = SHAPES[shape]
    left: list[float] = []

    async def test(client: BoundClient) -> Any:
        async with client.generate(live.generate, ask(LONG, **more), on_cancel=on_cancel, **PATIENCE) as stream:
            await read_until(stream, each_has(stream, count, 4))
            left.append(time.time())
        return stream

    stream = stack.run(test)
    check_so_far(live, stream.outputs)
    ends = [live.truth.end_of(rid_of(output)) for output in stream.outputs.values()]
    assert all(end.finish is not None and end.finish["type"] == "abort" for end in ends)
    assert all(len(end.token_ids) < LONG for end in ends)
    last = max(end.times[-1] for end in ends) - left[0]
    more_tokens = max(end.after(left[0]) for end in ends)
    seen(f"the scheduler's last message {last:.3f} s after leaving, {more_tokens} messages an output")


@pytest.mark.parametrize("on_cancel", ["disconnect", "direct"])
def test_leaving_the_queue(stack: Stack, live: LiveServer, seen: Callable[[str], None], on_cancel: str) -> None:
    async def test(client: BoundClient) -> Any:
        async with client.generate(live.generate, ask(LONG), on_cancel=on_cancel, **PATIENCE) as stream:
            pass
        return stream

    with busy(live):
        left = time.time()
        rid = stack.run(test).rid
        sent = live.truth.end_of(rid)
    assert sent.token_ids == []
    seen(f"told to leave the queue {sent.times[-1] - left:.3f} s after leaving")


@pytest.mark.parametrize("on_cancel", ["disconnect", "direct"])
def test_a_cancelled_stream_stops_the_scheduler(async_stack: Stack, live: LiveServer, on_cancel: str) -> None:
    async def test(client: BoundClient) -> Any:
        stream = client.generate(live.generate, ask(LONG), on_cancel=on_cancel, **PATIENCE)
        with anyio.CancelScope() as scope:
            async with stream:
                async for _ in stream:
                    if len(stream.outputs[0].token_ids) >= 6:
                        scope.cancel()
        assert scope.cancelled_caught
        return stream

    stream = async_stack.run(test)
    check_so_far(live, stream.outputs)
    end = live.truth.end_of(stream.rid)
    assert end.finish is not None
    assert end.finish["type"] == "abort"
    assert 6 <= len(end.token_ids) < LONG
