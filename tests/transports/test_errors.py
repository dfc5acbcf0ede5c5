"""What a caller gets when the server or the way to it fails: one kind of error, its cause, and everything that came."""

from __future__ import annotations

import pickle
import socket
from collections.abc import Callable
from typing import Any

import pytest

from ssefold import IncompleteStreamError, PayloadError, ProtocolError, ServerError, StreamError, Update
from ssefold.transports import TransportError
from ssefold.transports.testing import FakeSGLang, Fault, encode
from tests.transports.raw import RawServer, chunks, head, sends, stream
from tests.transports.stacks import BoundClient, Stack, read
from tests.transports.test_contract import ASK, check

Serve = Callable[..., FakeSGLang]


def failure_of(
    stack: Stack, url: str, payload: dict[str, Any] = ASK, **options: Any
) -> tuple[StreamError, list[Update], Any]:
    """The error that a stream ends with, the updates before it, and the stream."""

    async def test(client: BoundClient) -> tuple[StreamError, list[Update], Any]:
        updates: list[Update] = []
        reading = client.generate(url + "/generate", payload, **options)
        with pytest.raises(StreamError) as caught:  # noqa: PT012
            async with reading as entered:
                async for update in entered:
                    updates.append(update)  # noqa: PERF401  # kept also when it fails
        return caught.value, updates, reading

    return stack.run(test)


def unused_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return int(listener.getsockname()[1])


def test_no_connection(stack: Stack) -> None:
    error, _, _ = failure_of(stack, f"http://127.0.0.1:{unused_port()}")
    assert isinstance(error, TransportError)
    assert isinstance(error, OSError)
    assert error.status_code is None
    assert error.retryable
    assert error.__cause__ is not None
    assert error.partial == {}
    assert "no connection to http://127.0.0.1" in str(error)


@pytest.mark.parametrize("status", [400, 401, 404, 500, 503])
def test_an_http_error(stack: Stack, serve: Serve, status: int) -> None:
    body = b'{"error":{"message":"go away"}}'
    server = serve(fault=Fault(status=status, body=body))
    error, _, _ = failure_of(stack, server.url)
    assert isinstance(error, TransportError)
    assert (error.status_code, error.body) == (status, body)
    assert error.retryable is (status == 503)
    assert f"status {status}" in str(error)
    assert "go away" in str(error)
    assert server.counters.requests == 1


def test_of_a_long_error_the_first_4096_bytes_are_kept(stack: Stack, serve: Serve) -> None:
    body = bytes(range(65, 91)) * 1000
    error, _, _ = failure_of(stack, serve(fault=Fault(status=500, body=body)).url)
    assert isinstance(error, TransportError)
    assert error.body == body[:4096]
    assert len(str(error)) < 1000


@pytest.mark.parametrize("kind", ["text/html", "application/json", "text/event-stream2", ""])
def test_another_content_type(stack: Stack, kind: str) -> None:
    page = b"<h1>Welcome to the gateway</h1>"
    with RawServer(sends(head(kind=kind), page)) as server:
        error, _, _ = failure_of(stack, server.url)
    assert isinstance(error, TransportError)
    assert (error.status_code, error.body) == (200, page)
    assert "instead of text/event-stream" in str(error)
    assert not error.retryable


def test_the_status_counts_before_the_content_type(stack: Stack) -> None:
    """Old gateways call their JSON errors event streams (wire h)."""
    with RawServer(sends(head("500 Internal Server Error"), b'data: {"text":"no"}\n\n')) as server:
        error, updates, _ = failure_of(stack, server.url)
    assert isinstance(error, TransportError)
    assert error.status_code == 500
    assert updates == []


def test_a_redirect_is_not_an_answer(stack: Stack) -> None:
    with RawServer(sends(head("302 Found", location="http://127.0.0.1:1/"))) as server:
        error, _, _ = failure_of(stack, server.url)
    assert isinstance(error, TransportError)
    assert error.status_code == 302


def test_no_answer(stack: Stack, serve: Serve) -> None:
    server = serve(fault=Fault(refuse=True))
    error, _, _ = failure_of(stack, server.url)
    assert isinstance(error, TransportError)
    assert error.status_code is None
    assert error.retryable
    assert server.counters.requests == 1


@pytest.mark.parametrize("answer", [b"not http at all\r\n\r\n", b"HTTP/1.1 200 OK\r\nContent-Length: many\r\n\r\n"])
def test_an_answer_that_is_no_http(stack: Stack, answer: bytes) -> None:
    with RawServer(sends(answer)) as server:
        error, _, _ = failure_of(stack, server.url)
    assert isinstance(error, TransportError)
    assert error.__cause__ is not None


@pytest.mark.parametrize("cut", ["fin", "rst", "clean"])
@pytest.mark.parametrize("profile", ["0.5.23", "0.5.23-incremental"])
def test_a_cut_stream_keeps_every_token_that_came(stack: Stack, serve: Serve, cut: str, profile: str) -> None:
    server = serve(profile=profile)
    ask = {**ASK, "rid": "cut", "sampling_params": {"max_new_tokens": 12}}
    truth = server.truth(ask)
    body = encode(truth, server.profile)
    ends = [sum(map(len, body.events[:n])) for n in range(len(body.events))]
    for length in (5, ends[1], ends[1] + 1, ends[7] - 1, ends[11] + 40):
        held = body.cut(length).held[0]
        server.fault_next(Fault(cut_at=length, cut=cut))  # type: ignore[arg-type]
        error, updates, reading = failure_of(stack, server.url, ask)
        assert isinstance(error, IncompleteStreamError if cut == "clean" else TransportError)
        got = tuple(token for update in updates for token in update.token_ids)
        assert got == held.token_ids
        assert tuple(reading.outputs[0].token_ids if got else ()) == got
        assert tuple(error.partial[0].token_ids if got else ()) == got
    assert server.counters.requests == 5


@pytest.mark.parametrize("cut", ["fin", "rst", "clean"])
def test_a_stream_that_breaks_after_everything_has_come_is_whole(stack: Stack, serve: Serve, cut: str) -> None:
    server = serve()
    ask = {**ASK, "rid": "cut"}
    body = encode(server.truth(ask), server.profile)
    for length in (len(body.data) - 14, len(body.data) - 3, len(body.data)):
        server.fault_next(Fault(cut_at=length, cut=cut))  # type: ignore[arg-type]

        async def test(client: BoundClient) -> None:
            async with client.generate(server.url + "/generate", ask) as entered:
                await read(entered)
            check(entered.outputs, server.truth(ask))

        stack.run(test)


@pytest.mark.parametrize("reset", [False, True])
def test_a_broken_connection_takes_nothing_back_from_a_slow_reader(stack: Stack, reset: bool) -> None:
    """Bytes that had arrived when the connection broke are handed out, however late they are asked for."""
    events = [b'data: {"text":"%d","output_ids":[%d],"meta_info":{"id":"r","finish_reason":null,"prompt_tokens":1,'
              b'"completion_tokens":%d}}\n\n' % (n, n, n) for n in range(1, 4)]  # fmt: skip
    with RawServer(sends(head(transfer_encoding="chunked"), *chunks(*events, end=False), reset=reset)) as server:

        async def test(client: BoundClient) -> None:
            with pytest.raises(TransportError) as caught:  # noqa: PT012
                async with client.generate(server.url + "/generate", {"text": "x"}, mode="incremental") as entered:
                    await entered.__anext__()
                    if not stack.is_sync:
                        import anyio

                        await anyio.sleep(0.05)  # lets the loop see the connection break; nothing depends on how long
                    await read(entered)
            if not reset:  # a reset may overtake bytes in the kernel
                assert list(caught.value.partial[0].token_ids) == [1, 2, 3]

        stack.run(test)


def test_an_idle_server(stack: Stack, serve: Serve) -> None:
    server = serve(fault=Fault(stall_after=5))
    error, updates, _ = failure_of(stack, server.url, idle_timeout=0.5)
    assert isinstance(error, TransportError)
    assert "idle_timeout" in str(error)
    assert not error.retryable
    assert len(updates) == 5
    assert len(error.partial[0].token_ids) == 5


def test_a_server_that_never_answers(stack: Stack, serve: Serve) -> None:
    server = serve(fault=Fault(silent=True))
    error, _, _ = failure_of(stack, server.url, idle_timeout=0.1, retries=3)
    assert isinstance(error, TransportError)
    assert "idle_timeout" in str(error)
    assert server.counters.requests == 1


@pytest.mark.parametrize("client", ["httpx", "aiohttp"])
def test_the_clients_own_timeout_is_named(serve: Serve, client: str) -> None:
    module = pytest.importorskip(client, reason=f"{client} is an extra")
    pytest.importorskip("anyio", reason="the tests run on anyio")
    import anyio

    server = serve(fault=Fault(stall_after=3))

    async def test() -> TransportError:
        from ssefold.transports import aiohttp, httpx

        with pytest.raises(TransportError) as caught:  # noqa: PT012
            if client == "httpx":
                async with module.AsyncClient(timeout=0.1, verify=False) as session:
                    await httpx.collect(session, server.url + "/generate", ASK)
            else:
                async with module.ClientSession(timeout=module.ClientTimeout(total=0.1)) as session:
                    await aiohttp.collect(session, server.url + "/generate", ASK)
        return caught.value

    error = anyio.run(test)
    assert ("own read timeout" if client == "httpx" else "session's own timeout") in str(error)
    assert error.__cause__ is not None


def test_an_error_event_is_raised_after_what_came_before_it(stack: Stack, serve: Serve) -> None:
    sent = {"message": "KV cache pool is full", "type": "InternalServerError", "code": 500}
    server = serve(fault=Fault(error=sent, error_after=6))
    error, updates, _ = failure_of(stack, server.url)
    assert isinstance(error, ServerError)
    assert (error.message, error.code) == (sent["message"], 500)
    assert len(updates) == 6
    assert len(error.partial[0].token_ids) == 6


def test_a_prompt_that_is_too_long(stack: Stack, serve: Serve) -> None:
    error, _, _ = failure_of(stack, serve(context_length=4).url)
    assert isinstance(error, ServerError)
    assert "context length" in str(error)


def test_the_wrong_mode_is_named(stack: Stack, serve: Serve) -> None:
    error, _, _ = failure_of(stack, serve().url, mode="incremental")
    assert isinstance(error, ProtocolError)
    assert "mode" in str(error)


def test_an_event_that_is_too_large(stack: Stack, serve: Serve) -> None:
    error, updates, _ = failure_of(stack, serve(fault=Fault(padding=10**5)).url, max_event_size=2**16)
    assert type(error).__name__ == "EventTooLargeError"
    assert len(updates) == 23


def test_bad_json_is_raised_or_passed_over(stack: Stack, serve: Serve) -> None:
    server = serve(fault=Fault(junk=b"data: <html>\n\n"))
    error, _, _ = failure_of(stack, server.url)
    assert isinstance(error, PayloadError)

    async def test(client: BoundClient) -> None:
        async with client.generate(server.url + "/generate", ASK, on_bad_json="skip") as entered:
            await read(entered)
        check(entered.outputs, server.truth(ASK))

    stack.run(test)


def chunk(index: int | None, *, finish: str = '{"type":"length","length":1}') -> bytes:
    place = "" if index is None else f',"index":{index}'
    return (
        f'data: {{"text":"a","output_ids":[7],"meta_info":{{"id":"r","finish_reason":{finish},"prompt_tokens":1,'
        f'"completion_tokens":1}}{place}}}\n\n'
    ).encode()


def test_an_output_that_never_came_is_missed(stack: Stack) -> None:
    """A gateway that drops ``n`` answers with one output, complete in itself."""
    with RawServer(stream(chunk(None), b"data: [DONE]\n\n")) as server:
        error, updates, _ = failure_of(stack, server.url, {"text": "x", "sampling_params": {"n": 2}})
    assert isinstance(error, IncompleteStreamError)
    assert "1 of 2 outputs" in str(error)
    assert len(updates) == 1
    assert 0 in error.partial


def test_an_output_that_was_not_asked_for_is_refused(stack: Stack) -> None:
    with RawServer(stream(chunk(0, finish="null") + chunk(5), b"data: [DONE]\n\n")) as server:
        error, updates, _ = failure_of(stack, server.url, {"text": ["x", "y"]})
    assert isinstance(error, ProtocolError)
    assert "index 5" in str(error)
    assert [update.index for update in updates] == [0]


@pytest.mark.parametrize(
    "body",
    [b"", b"data: [DONE]\n\n", b": nothing\n\n", b'data: {"text"'],
    ids=["nothing", "only [DONE]", "only a comment", "half an event"],
)
def test_a_body_without_an_output(stack: Stack, body: bytes) -> None:
    with RawServer(stream(body)) as server:
        error, _, _ = failure_of(stack, server.url)
    assert isinstance(error, IncompleteStreamError)


def test_a_broken_encoding(stack: Stack) -> None:
    with RawServer(sends(head(content_encoding="gzip"), b"this is no gzip at all")) as server:
        error, _, _ = failure_of(stack, server.url)
    assert isinstance(error, TransportError)
    assert "not the gzip that its content-encoding says" in str(error)


def test_collect_has_the_partial_on_its_error(stack: Stack, serve: Serve) -> None:
    server = serve(fault=Fault(cut_at=3000))

    async def test(client: BoundClient) -> None:
        with pytest.raises(TransportError) as caught:
            await client.collect(server.url + "/generate", ASK)
        tokens = tuple(caught.value.partial[0].token_ids)
        assert tokens
        assert tokens == server.truth(ASK)[0].token_ids[: len(tokens)]

    stack.run(test)


def test_an_error_crosses_process_borders(stack: Stack, serve: Serve) -> None:
    error, _, _ = failure_of(stack, serve(fault=Fault(status=503, body=b"full")).url)
    again = pickle.loads(pickle.dumps(error))
    assert (type(again), str(again)) == (TransportError, str(error))
    assert (again.status_code, again.body, again.retryable) == (503, b"full", True)


def test_secrets_of_the_url_stay_out_of_messages(stack: Stack) -> None:
    error, _, _ = failure_of(stack, f"http://user:hunter2@127.0.0.1:{unused_port()}")
    assert "hunter2" not in str(error)
