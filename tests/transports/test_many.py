"""Many streams, slow readers, and everything going wrong at once: no token is lost, doubled or invented."""

from __future__ import annotations

import random
import resource
from collections.abc import Callable
from typing import Any

import pytest

from ssefold import IncompleteStreamError, ServerError
from ssefold.transports import TransportError
from ssefold.transports.testing import NO_FAULT, PROFILES, Asked, FakeSGLang, Fault, GreedyModel, encode
from tests.transports.serve_process import ServerProcess
from tests.transports.stacks import ALL_STACKS, BoundClient, Stack, in_thread, read
from tests.transports.test_cancel import tokens_of
from tests.transports.test_contract import ASK, PROMPT

anyio = pytest.importorskip("anyio", reason="the tests run on anyio")

Serve = Callable[..., FakeSGLang]


def test_512_streams_at_once(async_stack: Stack) -> None:
    """On one event loop, against a server in another process: none fails, each gets its own tokens."""
    if resource.getrlimit(resource.RLIMIT_NOFILE)[0] < 700:
        pytest.skip("the limit on open files is below 700")
    model = GreedyModel()
    truth = {n: model(Asked(rid="", prompt_ids=(n, 1), max_new_tokens=24)).token_ids for n in range(512)}
    sampling = {"max_new_tokens": 24, "stream_interval": 4}
    got: dict[int, tuple[int, ...]] = {}

    async def test(client: BoundClient) -> None:
        opened = 0
        all_open = anyio.Event()

        async def one(n: int) -> None:
            nonlocal opened
            ask = {"input_ids": [n, 1], "sampling_params": sampling, "return_logprob": True}
            async with client.generate(server.url + "/generate", ask) as stream:
                opened += 1
                if opened == 512:
                    all_open.set()
                await all_open.wait()
                await read(stream)
            got[n] = tuple(stream.outputs[0].token_ids)

        async with anyio.create_task_group() as group:
            for n in range(512):
                group.start_soon(one, n)

    with ServerProcess(profile="0.5.23-incremental") as server:
        # httpcore looks at all connections for every idle one, whenever a request ends: none is kept.
        async_stack.run(test, idle=0)
    assert got == truth
    assert (server.account["finished"], server.account["disconnects"]) == (512, 0)


def test_a_slow_reader_slows_the_server(stack: Stack, serve: Serve) -> None:
    """What the server is ahead by fits into buffers of fixed size: it stops until somebody reads."""
    tokens, size = 120, 2**19
    server = serve(fault=Fault(junk=b":" + b"x" * size + b"\n\n"), profile="0.5.23-incremental")
    ask = {**ASK, "sampling_params": {"max_new_tokens": tokens}}

    async def test(client: BoundClient) -> None:
        async with client.generate(server.url + "/generate", ask) as stream:
            await stream.__anext__()
            await in_thread(server.wait_until, lambda counters: counters.slow_clients == 1)
            assert server.counters.tokens < tokens // 2
            await read(stream)
        assert tuple(stream.outputs[0].token_ids) == server.truth(ask)[0].token_ids

    stack.run(test)


class Soak:
    """Random requests with random fates, each checked against what must have come of it."""

    def __init__(
        self, server: FakeSGLang, client: BoundClient, faults: dict[str, Fault], *, seed: int, can_cancel: bool
    ) -> None:
        self.server = server
        self.client = client
        self.faults = faults
        self.random = random.Random(seed)
        self.can_cancel = can_cancel
        self.fates: dict[str, int] = {}

    async def one(self, number: int) -> None:
        fates = ["whole", "pieces", "cut", "reset", "clean cut", "stall", "error", "shed", "leave", "abort"]
        fate = self.random.choice(fates + ["cancel"] * self.can_cancel)
        self.fates[fate] = self.fates.get(fate, 0) + 1
        await getattr(self, "_" + fate.replace(" ", "_"))(number)

    def ask(self, number: int, tokens: int = 30) -> dict[str, Any]:
        sampling = {"max_new_tokens": tokens}
        return {"input_ids": [*PROMPT, number], "sampling_params": sampling, "return_logprob": True}

    def stream(self, number: int, fault: Fault, *, tokens: int = 30, **options: Any) -> tuple[Any, tuple[int, ...]]:
        # The fault travels in the payload, since requests overtake each other.
        ask = self.ask(number, tokens)
        rid = f"{number:08d}"
        self.faults[rid] = fault
        options = {"on_cancel": self.random.choice(["disconnect", "direct"]), **options}
        stream = self.client.generate(self.server.url + "/generate", ask, rid=rid, **options)
        return stream, self.server.truth(ask)[0].token_ids

    async def _finish(
        self, stream: Any, error: type[BaseException] | tuple[type[BaseException], ...] | None
    ) -> list[int]:
        got: list[int] = []
        caught: BaseException | None = None
        try:
            async with stream:
                async for update in stream:
                    got.extend(update.token_ids)
        except Exception as problem:  # noqa: BLE001
            caught = problem
        assert caught is None if error is None else isinstance(caught, error), repr(caught)
        assert tokens_of(stream) == len(got)
        if caught is not None and got:
            assert list(caught.partial[0].token_ids) == got  # type: ignore[attr-defined]
        return got

    async def _whole(self, number: int, fault: Fault = NO_FAULT) -> None:
        stream, truth = self.stream(number, fault)
        assert tuple(await self._finish(stream, None)) == truth

    async def _pieces(self, number: int) -> None:
        await self._whole(number, Fault(pieces=number, junk=self.random.choice([b"", b": ping\n\n"])))

    async def _cut(self, number: int, how: Any = "fin") -> None:
        body = encode(self.server.truth({**self.ask(number), "rid": f"{number:08d}"}), self.server.profile)
        length = self.random.randrange(1, sum(map(len, body.events[:-2])))
        held = body.cut(length).held[0].token_ids
        stream, _ = self.stream(number, Fault(cut_at=length, cut=how))
        got = tuple(await self._finish(stream, IncompleteStreamError if how == "clean" else TransportError))
        # A reset may overtake bytes in the kernel; an orderly end may not.
        assert got == (held[: len(got)] if how == "rst" else held)

    async def _reset(self, number: int) -> None:
        await self._cut(number, "rst")

    async def _clean_cut(self, number: int) -> None:
        await self._cut(number, "clean")

    async def _stall(self, number: int) -> None:
        after = self.random.randrange(1, 30)
        stream, truth = self.stream(number, Fault(stall_after=after), idle_timeout=0.1, abort_timeout=5)
        got = tuple(await self._finish(stream, TransportError))
        # On a busy machine the time may be over before the server has come to its end.
        assert got == truth[: len(got)]
        assert len(got) <= after

    async def _error(self, number: int) -> None:
        after = self.random.randrange(30)
        stream, truth = self.stream(number, Fault(error={"message": "no", "code": 400}, error_after=after))
        assert tuple(await self._finish(stream, ServerError)) == truth[:after]

    async def _shed(self, number: int) -> None:
        stream, _ = self.stream(number, Fault(overloaded=True))
        assert await self._finish(stream, None) == []
        assert stream.outputs[0].finish_reason.retryable

    async def _leave(self, number: int) -> None:
        stream, truth = self.stream(number, Fault(), tokens=60)
        after = self.random.randrange(1, 30)
        async with stream:
            while tokens_of(stream) < after:
                await stream.__anext__()
        held = tuple(stream.outputs[0].token_ids)
        assert len(held) >= after
        assert held == truth[: len(held)]

    async def _abort(self, number: int) -> None:
        stream, truth = self.stream(number, Fault(), tokens=60)
        after = self.random.randrange(1, 30)
        got: list[int] = []
        async with stream:
            async for update in stream:
                got.extend(update.token_ids)
                if len(got) == after:
                    await stream.abort()
        assert tuple(got) == truth[: len(got)]
        assert tokens_of(stream) == len(got) >= after
        assert stream.outputs[0].finish_reason is not None

    async def _cancel(self, number: int) -> None:
        stream, truth = self.stream(number, Fault(), tokens=60)
        turns = self.random.randrange(60)
        got: list[int] = []
        with anyio.CancelScope() as scope:
            async with anyio.create_task_group() as group:

                async def consume() -> None:
                    async with stream:
                        async for update in stream:
                            got.extend(update.token_ids)

                group.start_soon(consume)
                for _ in range(turns):
                    await anyio.sleep(0)
                scope.cancel()
        held = tuple(stream.outputs[0].token_ids) if stream.outputs else ()
        assert held == truth[: len(held)]
        assert tuple(got) == held[: len(got)]


@pytest.mark.slow
@pytest.mark.parametrize("profile", ["0.5.23", "0.5.23-incremental"])
def test_2000_streams_of_every_fate(stack: Stack, profile: str) -> None:
    count = -(-2000 // (2 * len(ALL_STACKS)))
    fates: dict[str, int] = {}

    async def test(client: BoundClient) -> None:
        soak = Soak(server, client, faults, seed=count, can_cancel=not stack.is_sync)
        numbers = iter(range(count))

        async def work() -> None:
            for number in numbers:
                await soak.one(number)

        if stack.is_sync:
            await work()
        else:
            async with anyio.create_task_group() as group:
                for _ in range(16):
                    group.start_soon(work)
        fates.update(soak.fates)
        await in_thread(server.wait_until, lambda counters: counters.running == 0)

    faults: dict[str, Fault] = {}
    with FakeSGLang(profile=PROFILES[profile], fault=lambda payload: faults[payload["rid"]]) as server:
        stack.run(test)
        server.wait_until(lambda counters: counters.connections == 0)
    assert sum(fates.values()) == count
    assert min(fates.values()) > 2
    assert (server.counters.running, server.counters.orphans, server.counters.orphaned) == (0, 0, 0)
