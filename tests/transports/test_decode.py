"""``decode``: bytes that come out of any anyio stream, on asyncio and on trio."""

from __future__ import annotations

import math
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from ssefold import IncompleteStreamError
from ssefold.transports import TransportError
from ssefold.transports.testing import PROFILES, Asked, Body, GreedyModel, encode
from tests.transports.stacks import read

anyio = pytest.importorskip("anyio", reason="decode is anyio's")
pytest.importorskip("h11", reason="its module has an HTTP client too")
decode = pytest.importorskip("ssefold.transports.anyio").decode

SCRIPT = GreedyModel()(Asked(rid="r", prompt_ids=(1, 2), max_new_tokens=9, return_logprob=True))
BODY: Body = encode(SCRIPT, PROFILES["0.5.23"])


@pytest.fixture(params=["asyncio", "trio"])
def run(request: pytest.FixtureRequest) -> Callable[[Callable[[], Awaitable[Any]]], Any]:
    pytest.importorskip(request.param, reason=f"one of the two loops is {request.param}")
    return lambda test: anyio.run(test, backend=request.param)


class Bytes:
    """A byte receive stream of the test's own."""

    def __init__(self, data: bytes, size: int, end: Exception | None = None) -> None:
        self.data, self.size, self.end = data, size, end or anyio.EndOfStream()
        self.closed = 0

    async def receive(self, max_bytes: int = 65536) -> bytes:
        await anyio.sleep(0)
        if not self.data:
            raise self.end
        part, self.data = self.data[: self.size], self.data[self.size :]
        return part

    async def aclose(self) -> None:
        self.closed += 1


@pytest.mark.parametrize("size", [1, 100, 10**6])
def test_a_byte_stream(run: Any, size: int) -> None:
    async def test() -> None:
        source = Bytes(BODY.data, size)
        async with decode(source) as stream:
            await read(stream)
        assert tuple(stream.outputs[0].token_ids) == SCRIPT.token_ids
        assert stream.metrics.bytes == len(BODY.data)
        assert source.closed == 1

    run(test)


def test_an_object_stream_without_a_block(run: Any) -> None:
    async def test() -> None:
        send, receive = anyio.create_memory_object_stream(math.inf)
        async with send, receive:
            for event in BODY.events:
                send.send_nowait(event)
            send.close()
            stream = decode(receive)
            updates = [update async for update in stream]
            assert [token for update in updates for token in update.token_ids] == list(SCRIPT.token_ids)

    run(test)


def test_the_end_before_the_end(run: Any) -> None:
    async def test() -> None:
        source = Bytes(BODY.cut(BODY.events_in(2000) * 10 + 700).data, 300)
        with pytest.raises(IncompleteStreamError) as caught:
            async with decode(source) as stream:
                await read(stream)
        held = tuple(caught.value.partial[0].token_ids)
        assert held == SCRIPT.token_ids[: len(held)]
        assert source.closed == 1

    run(test)


def test_a_broken_stream(run: Any) -> None:
    async def test() -> None:
        source = Bytes(BODY.data[:1500], 300, anyio.BrokenResourceError())
        with pytest.raises(TransportError, match="byte stream failed") as caught:
            async with decode(source) as stream:
                await read(stream)
        assert isinstance(caught.value.__cause__, anyio.BrokenResourceError)
        assert len(caught.value.partial[0].token_ids) == BODY.cut(1500).held[0].tokens

    run(test)


def test_an_idle_stream(run: Any) -> None:
    async def test() -> None:
        send, receive = anyio.create_memory_object_stream(math.inf)
        async with send, receive:
            send.send_nowait(BODY.events[0])
            stream = decode(receive, idle_timeout=0.05)
            with pytest.raises(TransportError, match="idle_timeout"):
                async with stream:
                    await read(stream)
            assert len(stream.outputs[0].token_ids) == 1

    run(test)


def test_two_readers_share_one_stream(run: Any) -> None:
    """Each update goes to one of them; none is lost, none doubled."""

    async def test() -> None:
        async with decode(Bytes(BODY.data, 50)) as stream:
            got: list[int] = []

            async def consume() -> None:
                async for update in stream:
                    got.extend(update.token_ids)
                    await anyio.sleep(0)

            async with anyio.create_task_group() as group:
                group.start_soon(consume)
                group.start_soon(consume)
        assert sorted(got) == sorted(SCRIPT.token_ids)

    run(test)


def test_nothing_runs(run: Any) -> None:
    stream = decode(Bytes(BODY.data, 50))
    with pytest.raises(RuntimeError, match="neither asyncio nor trio"):
        stream.aclose().send(None)
