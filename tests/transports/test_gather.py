"""Many streams under one limit."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest

from ssefold import ServerError
from ssefold.transports import StreamResult, TransportError, gather
from ssefold.transports.testing import FakeSGLang, Fault
from tests.transports.stacks import BoundClient, Stack, in_thread
from tests.transports.test_cancel import tokens_of, until
from tests.transports.test_contract import ASK, check

anyio = pytest.importorskip("anyio", reason="the tests run on anyio")

Serve = Callable[..., FakeSGLang]
URL = "/generate"


def asks(count: int, tokens: int = 20) -> list[dict[str, Any]]:
    return [{**ASK, "input_ids": [n, n + 1], "sampling_params": {"max_new_tokens": tokens}} for n in range(count)]


def test_every_stream_ends_and_the_order_is_kept(async_stack: Stack, server: FakeSGLang) -> None:
    async def test(client: BoundClient) -> None:
        streams = [client.generate(server.url + URL, ask) for ask in asks(20)]
        results = await gather(streams, limit=4)
        assert [result.stream for result in results] == streams
        for ask, result in zip(asks(20), results, strict=True):
            check(result.outputs, server.truth(ask))
            assert (result.started, result.done, result.error, result.aborted) == (True, True, None, False)
            assert result.responses[0]["output_ids"] == list(server.truth(ask)[0].token_ids)
            assert list(result.snapshot()[0].token_ids) == result.responses[0]["output_ids"]
            assert "done" in repr(result)

    async_stack.run(test)


def test_no_more_than_the_limit_run_at_once(async_stack: Stack, server: FakeSGLang) -> None:
    server.hold(after=1)

    async def test(client: BoundClient) -> None:
        results: list[StreamResult] = []

        async def run() -> None:
            results.extend(await gather([client.generate(server.url + URL, ask) for ask in asks(9)], limit=3))

        async with anyio.create_task_group() as group:
            group.start_soon(run)
            await in_thread(server.wait_until, lambda counters: counters.tokens == 3)
            for _ in range(200):
                await anyio.sleep(0)
            assert server.counters.requests == 3
            server.release()
        assert len(results) == 9

    async_stack.run(test)
    assert server.counters.requests == 9


def test_what_one_suffers_is_its_own_affair(async_stack: Stack, server: FakeSGLang) -> None:
    server.fault_next(Fault(status=500), Fault(error={"message": "no"}, error_after=3), Fault(cut_at=3000, cut="rst"))

    async def test(client: BoundClient) -> None:
        results = await gather([client.generate(server.url + URL, ask) for ask in asks(8)], limit=1)
        kinds = [type(result.error) for result in results]
        assert kinds == [TransportError, ServerError, TransportError] + [type(None)] * 5
        assert tokens_of(results[0]) == 0
        assert tokens_of(results[1]) == 3
        assert 0 < tokens_of(results[2]) < 20
        assert [tokens_of(result) for result in results[3:]] == [20] * 5
        assert "failed" in repr(results[0])

    async_stack.run(test)


def test_enough_is_enough(async_stack: Stack, serve: Serve) -> None:
    """As many as are wanted have ended: the others are stopped, and keep what they have."""
    server = serve(profile="0.5.18-incremental")
    short, long = asks(3, tokens=4), asks(6, tokens=400)

    def enough(results: Sequence[StreamResult]) -> bool:
        return sum(result.done for result in results) >= 3 and all(tokens_of(result) for result in results[3:6])

    async def test(client: BoundClient) -> None:
        streams = [client.generate(server.url + URL, ask, on_cancel="direct") for ask in (*short, *long)]
        results = await gather(streams, limit=6, abort_when=enough)
        assert [result.aborted for result in results[:3]] == [False] * 3
        for ask, result in zip((*short, *long), results, strict=True):
            truth = server.truth(ask)[0].token_ids
            held = tuple(result.outputs[0].token_ids) if result.outputs else ()
            assert held == truth[: len(held)]
            if result.aborted:
                assert result.outputs[0].finish_reason is not None
                assert (result.outputs[0].routed_experts is not None) is bool(held)
        assert any(result.aborted for result in results[3:])

    async_stack.run(test)
    server.wait_until(lambda counters: counters.running == 0)
    assert server.counters.orphaned == 0


def test_streams_that_were_not_begun_are_not(async_stack: Stack, server: FakeSGLang) -> None:
    async def test(client: BoundClient) -> None:
        streams = [client.generate(server.url + URL, ask) for ask in asks(5)]
        results = await gather(streams, limit=1, abort_when=lambda results: results[1].done)
        assert [result.started for result in results] == [True, True, False, False, False]
        assert results[4].outputs == {}
        assert "open" in repr(results[4])

    async_stack.run(test)
    assert server.counters.requests == 2


def test_a_server_that_does_not_stop_is_left(async_stack: Stack, serve: Serve) -> None:
    server = serve(fault=Fault(stall_after=2))

    async def test(client: BoundClient) -> None:
        streams = [client.generate(server.url + URL, ask, abort_timeout=0.1) for ask in asks(3)]
        results = await gather(streams, limit=3, abort_when=lambda results: sum(map(tokens_of, results)) == 6)
        assert [result.aborted for result in results] == [True] * 3
        assert [tokens_of(result) for result in results] == [2] * 3

    async_stack.run(test)


def test_a_cancelled_gather_cancels_them_all(async_stack: Stack, server: FakeSGLang) -> None:
    server.hold(after=2)

    async def test(client: BoundClient) -> None:
        streams = [client.generate(server.url + URL, ask) for ask in asks(6)]
        async with anyio.create_task_group() as group:
            group.start_soon(lambda: gather(streams, limit=4))
            await until(lambda: sum(map(tokens_of, streams)) == 8)
            group.cancel_scope.cancel()
        assert sum(map(tokens_of, streams)) == 8

    async_stack.run(test)
    server.wait_until(lambda counters: counters.running == 0)


def test_a_mistake_in_abort_when_stops_everything(async_stack: Stack, server: FakeSGLang) -> None:
    def mistake(results: Sequence[StreamResult]) -> bool:
        raise ZeroDivisionError

    async def test(client: BoundClient) -> None:
        with pytest.raises(ZeroDivisionError):
            await gather([client.generate(server.url + URL, ask) for ask in asks(4)], limit=2, abort_when=mistake)

    async_stack.run(test)
    server.wait_until(lambda counters: counters.running == 0)


def test_nothing_to_do(async_stack: Stack) -> None:
    async def test(client: BoundClient) -> None:
        assert await gather([], limit=1) == []
        with pytest.raises(ValueError, match="limit"):
            await gather([], limit=0)

    async_stack.run(test)
