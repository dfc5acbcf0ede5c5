"""Habits and odd answers that a client meets: each is told in words that say what to do, on every client."""

from __future__ import annotations

import asyncio
import contextvars
import gzip
import subprocess
import sys
import zlib
from collections.abc import Callable
from email.utils import formatdate
from time import time
from typing import Any

import pytest

from ssefold.transports import TransportError
from ssefold.transports._engine import retry
from ssefold.transports.testing import FakeSGLang, Fault
from tests.transports.raw import RawServer, head, sends
from tests.transports.stacks import BoundClient, Stack, read
from tests.transports.test_contract import ASK
from tests.transports.test_endless import stalls
from tests.transports.test_hostile import LAST, event

Serve = Callable[..., FakeSGLang]

# ---- encodings


@pytest.mark.parametrize(
    ("encoding", "pack"),
    [("gzip", gzip.compress), ("x-gzip", gzip.compress), ("deflate", zlib.compress), ("X-Deflate", zlib.compress)],
)
def test_an_encoding_that_nobody_asked_for_is_undone(
    stack: Stack, encoding: str, pack: Callable[[bytes], bytes]
) -> None:
    body = pack(event(1) + event(2) + LAST)
    with RawServer(sends(head(content_encoding=encoding), body[:20], body[20:])) as server:

        async def test(client: BoundClient) -> None:
            assert (await client.collect(server.url + "/generate", {"text": "x"}))[0]["output_ids"] == [1, 2, 3]

        stack.run(test)


@pytest.mark.parametrize("encoding", ["compress", "x-compress", "br", "zstd", "gzip, gzip", "rot13"])
def test_another_encoding_is_refused_by_name(stack: Stack, encoding: str) -> None:
    with RawServer(sends(head(content_encoding=encoding), event(1) + LAST)) as server:

        async def test(client: BoundClient) -> None:
            with pytest.raises(TransportError, match=f"content-encoding '{encoding}' although identity") as caught:
                await client.collect(server.url + "/generate", {"text": "x"})
            assert caught.value.status_code == 200

        stack.run(test)


@pytest.mark.parametrize("encoding", ["gzip", "x-gzip"])
def test_an_error_is_readable_however_it_was_encoded(stack: Stack, encoding: str) -> None:
    body = gzip.compress(b'{"error":"go away"}')
    with RawServer(sends(head("500 No", "application/json", content_encoding=encoding), body)) as server:

        async def test(client: BoundClient) -> None:
            with pytest.raises(TransportError, match=r"status 500.*go away"):
                await client.collect(server.url + "/generate", {"text": "x"})

        stack.run(test)


# ---- on_event

VARIABLE = contextvars.ContextVar("VARIABLE", default="outside")


@pytest.mark.parametrize("on_cancel", ["disconnect", "direct"])
@pytest.mark.parametrize("way", ["whole", "left", "failed", "refused", "idle"])
def test_the_hook_runs_in_the_streams_own_task_and_context(
    stack: Stack, serve: Serve, way: str, on_cancel: str
) -> None:
    faults = {
        "failed": Fault(error={"message": "no"}, error_after=2),
        "refused": Fault(status=500),
        "idle": Fault(stall_after=2),
    }
    server = serve(fault=faults.get(way, Fault()), profile="0.5.23-incremental")
    heard: list[str] = []
    tokens: list[contextvars.Token[str]] = []
    tasks: set[Any] = set()

    def hook(name: str, data: Any) -> None:
        heard.append(name)
        tasks.add(current_task(stack))
        if name == "request":
            tokens.append(VARIABLE.set("in the stream"))
        assert VARIABLE.get() == "in the stream", name
        if name == "close":
            VARIABLE.reset(tokens.pop())

    async def test(client: BoundClient) -> None:
        if way == "left":
            server.hold(after=2)
        try:
            async with client.generate(
                server.url + "/generate",
                ASK,
                on_event=hook,
                on_cancel=on_cancel,
                idle_timeout=0.2 if way == "idle" else 30,
            ) as stream:
                async for _ in stream:
                    if way == "left" and len(stream.outputs[0].token_ids) == 2:
                        break
        except Exception:  # noqa: BLE001  # the ways that fail
            pass
        assert VARIABLE.get() == "outside"
        assert tasks == {current_task(stack)}

    stack.run(test)
    assert heard[0] == "request"
    assert heard[-1] == "close"
    assert tokens == []
    assert ("abort" in heard) is (on_cancel == "direct" and way in ("left", "idle"))


def current_task(stack: Stack) -> Any:
    if stack.backend == "trio":
        import trio

        return trio.lowlevel.current_task()
    return asyncio.current_task()


def test_the_hook_of_a_cancelled_stream_too(async_stack: Stack, serve: Serve) -> None:
    import anyio

    server = serve()
    server.hold(after=2)
    heard: list[tuple[str, Any]] = []

    async def test(client: BoundClient) -> None:
        own = []

        async def run(scope: Any) -> None:
            own.append(current_task(async_stack))
            with scope:
                async with client.generate(
                    server.url + "/generate",
                    ASK,
                    on_cancel="direct",
                    on_event=lambda name, data: heard.append((name, current_task(async_stack))),
                ) as stream:
                    await stream.__anext__()
                    await stream.__anext__()
                    scope.cancel()
                    await read(stream)

        async with anyio.create_task_group() as group:
            group.start_soon(run, anyio.CancelScope())
        assert {task for _, task in heard} == set(own)

    async_stack.run(test)
    assert [name for name, _ in heard] == ["request", "response", "first_token", "abort", "close"]


# ---- sessions that cannot


def test_a_closed_client(stack: Stack, serve: Serve) -> None:
    if stack.name.startswith("anyio"):
        pytest.skip("this transport has no client")
    server = serve()
    heard: list[str] = []

    async def test(client: Any) -> None:
        if stack.name == "aiohttp":
            await client.session.close()
        elif stack.is_sync:
            client.client.close()
        else:
            await client.client.aclose()
        with pytest.raises(TransportError, match="closed") as caught:
            await client.collect(server.url + "/generate", ASK, on_event=lambda name, _: heard.append(name))
        assert isinstance(caught.value.__cause__, RuntimeError)
        assert not caught.value.retryable
        client.busy = lambda: 0

    if stack.name == "aiohttp":
        Stack.run(stack, test)
    else:
        stack.run(test)
    assert heard == ["request", "close"]


def test_a_session_of_another_loop(serve: Serve) -> None:
    aiohttp = pytest.importorskip("aiohttp", reason="the session is aiohttp's")
    from ssefold.transports import aiohttp as over_aiohttp

    server = serve()

    async def make() -> Any:
        return aiohttp.ClientSession()

    session = asyncio.run(make())

    async def use() -> None:
        with pytest.raises(TransportError, match="RuntimeError"):
            await over_aiohttp.collect(session, server.url + "/generate", ASK)
        session._connector._close()
        session._connector = None

    asyncio.run(use())
    assert server.counters.requests == 0


def test_a_client_that_is_closed_amid_the_stream_cannot_be_told_and_says_so(stack: Stack) -> None:
    """Leaving raises nothing, and closes the response in any case."""
    if stack.name.startswith("anyio"):
        pytest.skip("this transport has no client")
    heard: dict[str, Any] = {}
    with RawServer(stalls(head() + event(2))) as server:

        async def test(client: Any) -> None:
            async with client.generate(
                server.url + "/generate",
                {"text": "x"},
                on_cancel="direct",
                abort_timeout=0.5,
                on_event=lambda name, data: heard.update({name: data}),
            ) as stream:
                await stream.__anext__()
                owner, name = (client.session, "_request") if stack.name == "aiohttp" else (client.client, "stream")
                whole = getattr(owner, name)
                setattr(owner, name, broken if stack.name == "aiohttp" else broken_now)
            setattr(owner, name, whole)
            assert list(stream.outputs[0].token_ids) == [1, 2]

        stack.run(test)
    assert isinstance(heard["abort_failed"]["error"], TransportError)
    assert "the session is closed" in str(heard["abort_failed"]["error"])


async def broken(*args: Any, **kwargs: Any) -> Any:
    raise RuntimeError("the session is closed")


def broken_now(*args: Any, **kwargs: Any) -> Any:
    raise RuntimeError("the session is closed")


# ---- options, extras, waits


def test_a_timeout_by_habit_is_told_its_name(stack: Stack) -> None:
    async def test(client: BoundClient) -> None:
        with pytest.raises(TypeError, match="use idle_timeout"):
            client.generate("http://127.0.0.1:1/generate", ASK, timeout=3)
        with pytest.raises(TypeError, match="use idle_timeout"):
            await client.collect("http://127.0.0.1:1/generate", ASK, timeout=3)

    stack.run(test)


@pytest.mark.parametrize(
    ("transport", "missing", "extra"),
    [("aiohttp", "aiohttp", "aiohttp"), ("anyio", "anyio", "anyio"), ("anyio", "h11", "anyio")],
)
def test_a_missing_extra_is_named(transport: str, missing: str, extra: str) -> None:
    code = f"import sys; sys.modules[{missing!r}] = None; import ssefold.transports.{transport}"
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert result.returncode == 1
    last = result.stderr.strip().splitlines()[-1]
    assert last.startswith(f"ImportError: ssefold.transports.{transport} needs {transport}")
    assert f"pip install 'ssefold[{extra}]'" in last


def test_a_server_may_ask_for_a_wait(stack: Stack, monkeypatch: pytest.MonkeyPatch) -> None:
    from ssefold.transports._engine import stream as _stream

    waits: list[float | None] = []

    def backoff(attempt: int, retry_after: float | None = None) -> float:
        waits.append(retry_after)
        return 0.0

    monkeypatch.setattr(_stream, "backoff", backoff)
    busy = [
        sends(head("503 Busy", "text/plain", retry_after=value), b"busy")
        for value in ("2", formatdate(time() + 3600, usegmt=True), "soon")
    ]
    with RawServer(*busy, sends(head(), LAST)) as server:

        async def test(client: BoundClient) -> None:
            await client.collect(server.url + "/generate", {"text": "x"}, retries=3)

        stack.run(test)
    assert waits[0] == 2.0
    assert waits[1] is not None
    assert 3500 < waits[1] <= 3600
    assert waits[2] is None


def test_the_wait_that_was_asked_for_is_respected_within_a_bound(stack: Stack) -> None:
    for asked, least, most in ((None, 0.125, 0.25), (2.0, 2.125, 2.25), (3600.0, 60.125, 60.25)):
        waits = [retry.backoff(1, asked) for _ in range(50)]
        assert least <= min(waits)
        assert max(waits) <= most
    with RawServer(sends(head("503 Busy", "text/plain", retry_after="7"), b"busy")) as server:

        async def test(client: BoundClient) -> None:
            with pytest.raises(TransportError) as caught:
                await client.collect(server.url + "/generate", {"text": "x"})
            assert caught.value.retry_after == 7.0

        stack.run(test)
