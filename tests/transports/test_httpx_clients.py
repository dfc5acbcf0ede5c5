"""Everything that looks like httpx: its test transports, httpx2, and clients that can do just enough."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import Any

import pytest

from ssefold.transports import SyncGenerateStream, TransportError
from ssefold.transports import httpx as transport
from ssefold.transports.testing import CUMULATIVE, Asked, FakeSGLang, Fault, GreedyModel, encode
from tests.transports.test_contract import ASK

anyio = pytest.importorskip("anyio", reason="the tests run on anyio")

SCRIPT = GreedyModel()(Asked(rid="r", prompt_ids=(1,), max_new_tokens=6))
BODY = encode(SCRIPT, CUMULATIVE).data
PAYLOAD = {"text": "x", "sampling_params": {"max_new_tokens": 6}}


async def in_parts() -> AsyncIterator[bytes]:
    for start in range(0, len(BODY), 100):
        yield BODY[start : start + 100]


@pytest.mark.parametrize("content", [lambda: BODY, in_parts], ids=["bytes", "generator"])
@pytest.mark.parametrize("backend", ["asyncio", "trio"])
def test_a_mock_transport(content: Callable[[], Any], backend: str) -> None:
    httpx = pytest.importorskip("httpx", reason="the transport is httpx's")
    pytest.importorskip(backend, reason=f"one of the two loops is {backend}")

    def answer(request: Any) -> Any:
        return httpx.Response(200, headers={"content-type": "text/event-stream"}, content=content())

    async def test() -> dict[int, dict[str, Any]]:
        async with httpx.AsyncClient(transport=httpx.MockTransport(answer)) as client:
            return await transport.collect(client, "http://server/generate", PAYLOAD, idle_timeout=5)

    assert anyio.run(test, backend=backend)[0]["output_ids"] == list(SCRIPT.token_ids)


def test_a_mock_transport_for_blocking_code() -> None:
    httpx = pytest.importorskip("httpx", reason="the transport is httpx's")

    def answer(request: Any) -> Any:
        return httpx.Response(200, headers={"content-type": "text/event-stream"}, content=BODY)

    with httpx.Client(transport=httpx.MockTransport(answer)) as client:
        answers = transport.collect_sync(client, "http://server/generate", PAYLOAD)
    assert answers[0]["output_ids"] == list(SCRIPT.token_ids)


def test_a_relative_url_on_a_client_with_a_base() -> None:
    httpx = pytest.importorskip("httpx", reason="the transport is httpx's")
    with FakeSGLang() as server, httpx.Client(base_url=server.url, verify=False) as client:
        with transport.generate(client, "/generate", {**ASK, "rid": "r"}, on_cancel="direct") as stream:
            next(stream)
        server.wait_until(lambda counters: counters.running == 0)
        assert [seen.path for seen in server.seen] == ["/generate", "/abort_request"]


@pytest.mark.parametrize("backend", ["asyncio", "trio"])
def test_httpx2(backend: str) -> None:
    httpx2 = pytest.importorskip("httpx2", reason="it has the surface of httpx, and is no extra of ours")
    pytest.importorskip(backend, reason=f"one of the two loops is {backend}")

    async def test(server: FakeSGLang) -> None:
        url = server.url + "/generate"
        async with httpx2.AsyncClient() as client:
            whole = await transport.collect(client, url, ASK)
            assert whole[0]["output_ids"] == list(server.truth(ASK)[0].token_ids)
            server.hold(after=5)
            with pytest.raises(TransportError, match="idle_timeout") as caught:
                await transport.collect(client, url, ASK, idle_timeout=0.5, on_cancel="direct")
            assert len(caught.value.partial[0].token_ids) >= 5
            with pytest.raises(TransportError, match="no connection"):
                await transport.collect(client, "http://127.0.0.1:1/generate", ASK)
        assert server.counters.aborted == 1

    with FakeSGLang() as server:
        anyio.run(test, server, backend=backend)
        server.release()
        with httpx2.Client() as client:
            whole = transport.collect_sync(client, server.url + "/generate", ASK)
        assert whole[0]["output_ids"] == list(server.truth(ASK)[0].token_ids)


class Response:
    """What a response must have, and no more."""

    status_code = 200
    headers: dict[str, str] = {"content-type": "text/event-stream"}  # noqa: RUF012

    def __init__(self, log: list[str], fails: bool = False) -> None:
        self.log = log
        self.fails = fails

    async def aiter_bytes(self) -> AsyncIterator[bytes]:
        async for part in in_parts():
            yield part
            if self.fails:
                raise OSError("the wire is cut")

    def iter_bytes(self) -> Iterator[bytes]:
        for start in range(0, len(BODY), 100):
            yield BODY[start : start + 100]


class Client:
    """An asynchronous client of one method."""

    def __init__(self, fails: bool = False) -> None:
        self.log: list[str] = []
        self.fails = fails

    @asynccontextmanager
    async def stream(self, method: str, url: str, *, content: bytes, headers: dict[str, str]) -> AsyncIterator[Any]:
        self.log.append(f"{method} {url}")
        try:
            yield Response(self.log, self.fails)
        finally:
            self.log.append("closed")


def test_a_client_that_can_do_just_enough() -> None:
    client = Client()
    answers = anyio.run(lambda: transport.collect(client, "http://s/generate", PAYLOAD, idle_timeout=9))  # type: ignore[arg-type]
    assert answers[0]["output_ids"] == list(SCRIPT.token_ids)
    assert client.log == ["POST http://s/generate", "closed"]


def test_what_such_a_client_raises_is_a_transport_error() -> None:
    client = Client(fails=True)
    with pytest.raises(TransportError, match="the wire is cut") as caught:
        anyio.run(lambda: transport.collect(client, "http://s/generate", PAYLOAD))  # type: ignore[arg-type]
    assert isinstance(caught.value.__cause__, OSError)
    assert client.log == ["POST http://s/generate", "closed"]


def test_a_blocking_client_that_can_do_just_enough() -> None:
    log: list[str] = []

    class Blocking:
        @contextmanager
        def stream(self, method: str, url: str, *, content: bytes, headers: dict[str, str]) -> Iterator[Any]:
            yield Response(log)
            log.append("closed")

        def close(self) -> None:
            raise AssertionError("the client is the caller's own")

    client: Any = Blocking()
    stream = transport.generate(client, "http://s/generate", PAYLOAD)
    assert isinstance(stream, SyncGenerateStream)
    with stream:
        assert sum(len(update.token_ids) for update in stream) == 6
    assert log == ["closed"]


def test_a_blocking_client_is_told_by_what_it_has() -> None:
    httpx = pytest.importorskip("httpx", reason="the transport is httpx's")
    with httpx.Client(verify=False) as client:
        assert isinstance(transport.generate(client, "http://s/generate", PAYLOAD), SyncGenerateStream)
    assert not isinstance(
        transport.generate(httpx.AsyncClient(verify=False), "http://s/g", PAYLOAD), SyncGenerateStream
    )


def test_the_transport_does_not_import_httpx() -> None:
    import subprocess
    import sys

    code = "import sys, ssefold.transports.httpx; sys.exit('httpx' in sys.modules or 'anyio' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0


def test_silence_is_told_to_the_server_before_the_client_closes(async_stack: Any, serve: Any) -> None:
    """On a version that forgets a request whose client has gone."""
    server = serve(profile="0.5.18", fault=Fault())
    server.hold(after=4)

    async def test(client: Any) -> None:
        with pytest.raises(TransportError, match="idle_timeout"):
            await client.collect(server.url + "/generate", ASK, on_cancel="direct", idle_timeout=0.5)

    async_stack.run(test)
    server.wait_until(lambda counters: counters.running == 0)
    assert (server.counters.aborted, server.counters.orphaned) == (1, 0)
