"""Servers that never come to an end: what bounds the wait, and what is there when it is over.

``idle_timeout`` bounds silence, ``max_event_size`` an event, ``abort_timeout`` what follows the end, and a limit on the
whole is the caller's own, in a loop; a blocking client has no clock but its timeouts.  Servers that are silent from the
beginning, or between two events, are in ``test_errors``.
"""

from __future__ import annotations

import socket
import time
from typing import Any

import pytest

from ssefold import EventTooLargeError
from ssefold.transports import TransportError
from tests.transports.raw import Answer, RawServer, head, sends
from tests.transports.stacks import BoundClient, Stack, read
from tests.transports.test_hostile import DONE, LAST, event

COMMENTS = b": nothing\n\n" * 1000


def endless(first: bytes, again: bytes, pause: float = 0.0) -> Answer:
    """``first``, and then ``again`` until the client has gone."""

    def answer(connection: socket.socket) -> None:
        connection.sendall(first)
        while True:
            connection.sendall(again)
            time.sleep(pause)

    return answer


def stalls(first: bytes) -> Answer:
    """``first``, and then nothing until the client has gone."""

    def answer(connection: socket.socket) -> None:
        connection.sendall(first)
        connection.recv(1)

    return answer


@pytest.mark.parametrize(
    ("first", "tokens"),
    [
        (b"", 0),
        (b"HTTP/1.1 200 OK\r\nContent-Ty", 0),
        (head(), 0),
        (head() + event(2), 2),
        (head() + event(2) + event(3)[:-2], 2),
        (head() + event(2) + event(3)[:-1], 2),
        (head() + event(2) + DONE, 2),
    ],
    ids=["nothing", "half a head", "a head", "an event", "half an event", "all but its last byte", "[DONE] too early"],
)
def test_silence(stack: Stack, first: bytes, tokens: int) -> None:
    with RawServer(stalls(first)) as server:

        async def test(client: BoundClient) -> None:
            with pytest.raises(TransportError, match=r"idle_timeout=0\.1") as caught:
                await client.collect(server.url + "/generate", {"text": "x"}, idle_timeout=0.1)
            held = [list(one.token_ids) for one in caught.value.partial.values()]
            assert held == [list(range(1, tokens + 1))] * bool(tokens)

        stack.run(test)


@pytest.mark.parametrize(
    ("again", "pause"),
    [(b"x", 0.005), (COMMENTS, 0.0), (b"x" * 10_000 + b"\n", 0.0), (b"event: x\nid: 1\n\n", 0.0)],
    ids=["drips", "comments", "unknown fields", "events without data"],
)
def test_life_without_tokens(async_stack: Stack, again: bytes, pause: float) -> None:
    """No silence and no event that grows: how long is enough is for the caller to say, and costs nothing that came."""
    import anyio

    first = head() + event(2) + (event(3)[:-2] if again == b"x" else b"")
    with RawServer(endless(first, again, pause)) as server:

        async def test(client: BoundClient) -> None:
            async with client.generate(server.url + "/generate", {"text": "x"}, idle_timeout=5) as entered:
                assert (await entered.__anext__()).token_ids == (1, 2)
                with pytest.raises(TimeoutError), anyio.fail_after(0.05):
                    await entered.__anext__()
                assert list(entered.outputs[0].token_ids) == [1, 2]

        async_stack.run(test)


@pytest.mark.parametrize("between", [COMMENTS * 50, b"x" * 500_000 + b"\n", b"event: x\n\n" * 20_000])
def test_much_of_nothing_is_passed_over(stack: Stack, between: bytes) -> None:
    with RawServer(sends(head(), event(2), between, LAST)) as server:

        async def test(client: BoundClient) -> None:
            answer = await client.collect(server.url + "/generate", {"text": "x"}, max_event_size=2**12)
            assert answer[0]["output_ids"] == [1, 2, 3]

        stack.run(test)


@pytest.mark.parametrize(
    ("first", "again"),
    [(b"data: ", b"x" * 5000), (b"", b"data: xxxx\n" * 500), (b"event: ", b"x" * 5000), (b"id: ", b"x" * 5000)],
    ids=["data", "data lines", "type", "id"],
)
def test_an_endless_event(stack: Stack, first: bytes, again: bytes) -> None:
    with RawServer(endless(head() + event(2) + first, again)) as server:

        async def test(client: BoundClient) -> None:
            with pytest.raises(EventTooLargeError, match=r"max_event_size=65536.* raise max_event_size") as caught:
                await client.collect(server.url + "/generate", {"text": "x"}, max_event_size=2**16)
            assert list(caught.value.partial[0].token_ids) == [1, 2]

        stack.run(test)


@pytest.mark.parametrize("again", [b": alive\n\n", DONE, LAST, b"data: "], ids=["comments", "[DONE]", "end", "x"])
def test_a_body_that_goes_on_after_the_end(stack: Stack, again: bytes) -> None:
    """Silence after it is in ``test_contract``."""
    with RawServer(endless(head() + event(2) + LAST, again, 0.002)) as server:

        async def test(client: BoundClient) -> None:
            async with client.generate(server.url + "/generate", {"text": "x"}, abort_timeout=0.1) as entered:
                updates = await read(entered)
            assert [token for update in updates for token in update.token_ids] == [1, 2, 3]

        stack.run(test)


@pytest.mark.parametrize(
    "again", [b"X-A: " + b"y" * 50 + b"\r\n", b"y" * 1000], ids=["many headers", "one long header"]
)
def test_an_endless_head(stack: Stack, again: bytes) -> None:
    with RawServer(endless(b"HTTP/1.1 200 OK\r\nX: ", again)) as server:

        async def test(client: BoundClient) -> None:
            with pytest.raises(TransportError, match="no answer"):
                await client.collect(server.url + "/generate", {"text": "x"})

        stack.run(test)


def test_endless_promises_of_an_answer(async_stack: Stack) -> None:
    with RawServer(endless(b"", b"HTTP/1.1 103 Early Hints\r\n\r\n" * 100)) as server:

        async def test(client: BoundClient) -> None:
            with pytest.raises(TransportError, match=r"idle_timeout=0\.2"):
                await client.collect(server.url + "/generate", {"text": "x"}, idle_timeout=0.2)

        async_stack.run(test)


@pytest.mark.parametrize(("again", "pause"), [(b"x" * 1000, 0.0), (b"x", 0.01), (b"", 0.01)], ids=repr)
def test_a_refusal_that_is_explained_for_ever(stack: Stack, again: bytes, pause: float) -> None:
    answer = endless(head("500 No"), again, pause) if again else stalls(head("500 No"))
    with RawServer(answer) as server:

        async def test(client: BoundClient) -> None:
            with pytest.raises(TransportError, match="status 500") as caught:
                await client.collect(server.url + "/generate", {"text": "x"}, abort_timeout=0.1, idle_timeout=0.1)
            assert caught.value.status_code == 500
            assert len(caught.value.body) <= 4096

        stack.run(test)


@pytest.mark.parametrize("on_cancel", ["direct", "router"])
def test_leaving_a_server_that_takes_no_leave(
    stack: Stack, on_cancel: str, events: list[tuple[str, dict[str, Any]]]
) -> None:
    """The server is told to stop, and drips its answer to that: ``abort_timeout`` bounds the leaving."""
    with RawServer(stalls(head() + event(2)), endless(head(kind="application/json"), b"[", 0.01)) as server:

        async def test(client: BoundClient) -> None:
            async with client.generate(
                server.url + "/generate",
                {"text": "x"},
                on_cancel=on_cancel,
                abort_timeout=0.2,
                on_event=lambda *one: events.append(one),
            ) as entered:
                await entered.__anext__()
            assert list(entered.outputs[0].token_ids) == [1, 2]

        stack.run(test)
    assert "abort" in dict(events)
    assert on_cancel == "direct" or "abort_failed" in dict(events)


def test_aborting_what_does_not_stop(async_stack: Stack) -> None:
    """``abort()`` reads on to the end that a server owes; one that sends none is left by ``idle_timeout``."""
    with RawServer(stalls(head() + event(2)), sends(head(kind="application/json"), b"{}")) as server:

        async def test(client: BoundClient) -> None:
            async with client.generate(server.url + "/generate", {"text": "x"}, idle_timeout=0.2) as entered:
                await entered.__anext__()
                with pytest.raises(TransportError, match="idle_timeout") as caught:
                    await entered.abort()
            assert list(caught.value.partial[0].token_ids) == [1, 2]

        async_stack.run(test)
