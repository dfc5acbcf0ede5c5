"""Servers that are not ours: uvicorn with Starlette (what SGLang runs on), aiohttp's, and TLS."""

from __future__ import annotations

import asyncio
import json
import ssl
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from ssefold import IncompleteStreamError
from ssefold.transports import TransportError
from ssefold.transports.testing import CUMULATIVE, Asked, FakeSGLang, GreedyModel, encode, read_request
from tests.transports.raw import RawServer, chunks, head, sends
from tests.transports.stacks import BoundClient, Stack, read
from tests.transports.test_contract import ASK, check

Events = Callable[[dict[str, Any]], list[bytes]]
MODEL = GreedyModel()


def truth(payload: dict[str, Any]) -> list[Any]:
    return [MODEL(asked) for asked in read_request(payload).outputs]


def events_of(payload: dict[str, Any]) -> list[bytes]:
    return encode(truth(payload), CUMULATIVE, listed=read_request(payload).listed).events


class Account:
    """What a foreign server saw."""

    def __init__(self) -> None:
        self.payloads: list[dict[str, Any]] = []
        self.gone = threading.Event()


@contextmanager
def uvicorn_server(account: Account, *, endless: bool = False) -> Iterator[str]:
    uvicorn = pytest.importorskip("uvicorn", reason="SGLang's own HTTP server")
    pytest.importorskip("starlette", reason="SGLang's own framework")
    from starlette.applications import Starlette
    from starlette.responses import JSONResponse, StreamingResponse
    from starlette.routing import Route

    async def generate(request: Any) -> Any:
        payload = await request.json()
        account.payloads.append(payload)
        if payload.get("text") == "refuse":
            return JSONResponse({"error": {"message": "no"}}, status_code=400)

        async def body() -> AsyncIterator[bytes]:
            try:
                for event in events_of(payload):
                    yield event
                    if payload.get("text") == "crash":
                        raise OSError("the scheduler died")
                    if endless:
                        await asyncio.Event().wait()
            finally:
                account.gone.set()

        return StreamingResponse(body(), media_type="text/event-stream")

    app = Starlette(routes=[Route("/generate", generate, methods=["POST"])])
    config = uvicorn.Config(app, host="127.0.0.1", port=0, log_level="critical", lifespan="off", ws="none")
    started = threading.Event()

    class Started(uvicorn.Server):  # type: ignore[name-defined,misc]
        async def startup(self, sockets: Any = None) -> None:
            await super().startup(sockets)
            started.set()

    server = Started(config)
    thread = threading.Thread(target=lambda: asyncio.run(server.serve()), daemon=True)
    thread.start()
    assert started.wait(30)
    try:
        yield f"http://127.0.0.1:{server.servers[0].sockets[0].getsockname()[1]}"
    finally:
        server.should_exit = True
        thread.join()


@contextmanager
def aiohttp_server(account: Account, *, endless: bool = False) -> Iterator[str]:
    pytest.importorskip("aiohttp", reason="the server is aiohttp's")
    from aiohttp import web

    async def generate(request: web.Request) -> web.StreamResponse:
        payload = json.loads(await request.read())
        account.payloads.append(payload)
        if payload.get("text") == "refuse":
            return web.json_response({"error": {"message": "no"}}, status=400)
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        await response.prepare(request)
        try:
            for event in events_of(payload):
                await response.write(event)
                if payload.get("text") == "crash":
                    assert request.transport is not None
                    request.transport.abort()
                    return response
                if endless:
                    await asyncio.Event().wait()
        finally:
            account.gone.set()
        return response

    app = web.Application()
    app.router.add_post("/generate", generate)
    with served(lambda: start_aiohttp(app)) as url:
        yield url


async def start_aiohttp(app: Any) -> tuple[str, Callable[[], Awaitable[None]]]:
    from aiohttp import web

    runner = web.AppRunner(app, handler_cancellation=True, shutdown_timeout=0.1)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    return f"http://127.0.0.1:{runner.addresses[0][1]}", runner.cleanup


@contextmanager
def served(start: Callable[[], Awaitable[tuple[str, Callable[[], Awaitable[None]]]]]) -> Iterator[str]:
    """Run an asyncio server in a thread of its own."""
    ready, stop = threading.Event(), asyncio.Event()
    found: list[Any] = []

    async def main() -> None:
        url, cleanup = await start()
        found.extend([url, asyncio.get_running_loop()])
        ready.set()
        await stop.wait()
        await cleanup()

    thread = threading.Thread(target=lambda: asyncio.run(main()), daemon=True)
    thread.start()
    assert ready.wait(30)
    try:
        yield found[0]
    finally:
        found[1].call_soon_threadsafe(stop.set)
        thread.join()


@pytest.fixture(params=[uvicorn_server, aiohttp_server], ids=["uvicorn", "aiohttp.web"])
def foreign(request: pytest.FixtureRequest) -> Callable[..., Any]:
    return request.param  # type: ignore[no-any-return]


@pytest.mark.parametrize("ask", [ASK, {**ASK, "input_ids": [[1], [2, 3]]}], ids=["single", "batch"])
def test_a_whole_stream(stack: Stack, foreign: Callable[..., Any], ask: dict[str, Any]) -> None:
    account = Account()
    with foreign(account) as url:

        async def test(client: BoundClient) -> None:
            for _ in range(2):
                async with client.generate(url + "/generate", ask, rid="r") as stream:
                    await read(stream)
                check(stream.outputs, truth(ask))

        stack.run(test)
    assert account.payloads == [{**ask, "stream": True, "rid": "r"}] * 2


def test_a_refusal(stack: Stack, foreign: Callable[..., Any]) -> None:
    with foreign(Account()) as url:

        async def test(client: BoundClient) -> None:
            with pytest.raises(TransportError, match="status 400") as caught:
                await client.collect(url + "/generate", {"text": "refuse"})
            assert json.loads(caught.value.body) == {"error": {"message": "no"}}

        stack.run(test)


def test_a_crash_amid_the_stream(stack: Stack, foreign: Callable[..., Any]) -> None:
    ask = {"text": "crash", "sampling_params": {"max_new_tokens": 4}}
    with foreign(Account()) as url:

        async def test(client: BoundClient) -> None:
            with pytest.raises((TransportError, IncompleteStreamError)) as caught:
                await client.collect(url + "/generate", ask)
            held = tuple(caught.value.partial[0].token_ids) if caught.value.partial else ()
            assert held == truth(ask)[0].token_ids[: len(held)]

        stack.run(test)


def test_the_server_sees_that_nobody_listens(stack: Stack, foreign: Callable[..., Any]) -> None:
    account = Account()
    with foreign(account, endless=True) as url:

        async def test(client: BoundClient) -> None:
            async with client.generate(url + "/generate", ASK) as stream:
                await stream.__anext__()

        stack.run(test)
        assert account.gone.wait(30)


@pytest.mark.parametrize(
    "framing",
    [
        lambda body: [head(), body],
        lambda body: [head(content_length=str(len(body))), body],
        lambda body: [head(transfer_encoding="chunked"), *chunks(*(body[i : i + 1] for i in range(len(body))))],
        lambda body: [
            head(transfer_encoding="chunked"),
            b"%x;name=value\r\n" % len(body),
            body,
            b"\r\n0\r\nX: y\r\n\r\n",
        ],
        lambda body: [b"HTTP/1.0 200 OK\r\nContent-Type: text/event-stream;charset=latin-1\r\n\r\n", body],
        lambda body: [b"HTTP/1.1 103 Early Hints\r\nLink: </x>\r\n\r\n", head(), body],
    ],
    ids=["until close", "length", "chunks of a byte", "chunk extension and trailer", "HTTP/1.0", "early hints"],
)
def test_every_framing_of_a_body(stack: Stack, framing: Callable[[bytes], list[bytes]]) -> None:
    script = MODEL(Asked(rid="r", prompt_ids=(1,), max_new_tokens=3))
    body = encode(script, CUMULATIVE).data
    with RawServer(sends(*framing(body))) as server:

        async def test(client: BoundClient) -> None:
            async with client.generate(server.url + "/generate", {"text": "x"}) as stream:
                await read(stream)
            assert tuple(stream.outputs[0].token_ids) == script.token_ids

        stack.run(test)


def test_a_body_shorter_than_its_length(stack: Stack) -> None:
    body = encode(MODEL(Asked(rid="r", prompt_ids=(1,), max_new_tokens=3)), CUMULATIVE).events[0]
    with RawServer(sends(head(content_length=str(len(body) + 10)), body)) as server:

        async def test(client: BoundClient) -> None:
            with pytest.raises(TransportError) as caught:
                await client.collect(server.url + "/generate", {"text": "x"})
            assert len(caught.value.partial[0].token_ids) == 1

        stack.run(test)


class TestTLS:
    @pytest.fixture
    def contexts(self) -> tuple[ssl.SSLContext, ssl.SSLContext]:
        trustme = pytest.importorskip("trustme", reason="certificates are made by trustme")
        authority = trustme.CA()
        server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        authority.issue_cert("127.0.0.1").configure_cert(server)
        client = ssl.create_default_context()
        authority.configure_trust(client)
        return server, client

    @pytest.mark.parametrize("backend", ["asyncio", "trio"])
    @pytest.mark.parametrize("cut", [False, True])
    def test_anyio(self, contexts: tuple[ssl.SSLContext, ssl.SSLContext], backend: str, cut: bool) -> None:
        anyio = pytest.importorskip("anyio", reason="the transport is anyio's")
        pytest.importorskip("h11", reason="the transport needs h11")
        pytest.importorskip(backend, reason=f"one of the two loops is {backend}")
        from ssefold.transports import anyio as transport
        from ssefold.transports.testing import Fault

        with FakeSGLang(ssl_context=contexts[0], fault=Fault(cut_at=3000) if cut else Fault()) as server:

            async def test() -> None:
                stream = transport.generate(server.url + "/generate", ASK, ssl_context=contexts[1])
                if cut:
                    with pytest.raises(TransportError):
                        async with stream:
                            await read(stream)
                else:
                    async with stream:
                        await read(stream)
                    check(stream.outputs, server.truth(ASK))

            anyio.run(test, backend=backend)

    def test_a_certificate_that_nobody_vouches_for(self, contexts: tuple[ssl.SSLContext, ssl.SSLContext]) -> None:
        anyio = pytest.importorskip("anyio", reason="the transport is anyio's")
        pytest.importorskip("h11", reason="the transport needs h11")
        from ssefold.transports import anyio as transport

        with FakeSGLang(ssl_context=contexts[0]) as server:
            with pytest.raises(TransportError, match="no connection") as caught:
                anyio.run(transport.collect, server.url + "/generate", ASK)
            assert "certificate" in str(caught.value).lower()

    def test_only_http_and_https(self) -> None:
        pytest.importorskip("h11", reason="the transport needs h11")
        from ssefold.transports import anyio as transport

        for url in ("ftp://127.0.0.1/generate", "/generate", "127.0.0.1:30000/generate"):
            with pytest.raises(ValueError, match="http or https"):
                transport.generate(url, ASK)
