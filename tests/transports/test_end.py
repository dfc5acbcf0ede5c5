"""The end of the outputs is the end of the stream: what comes after it, or does not come, is waited for and no failure.

Every output that was asked for has its ``finish_reason``; the rest of the body is only good for the connection.
"""

from __future__ import annotations

import socket
import threading
from typing import Any

import pytest

from ssefold.transports import TransportError
from tests.transports.raw import Answer, RawServer, chunks, head, sends
from tests.transports.stacks import BoundClient, Stack, read
from tests.transports.test_endless import endless, stalls
from tests.transports.test_hostile import DONE, event

END = event(3, end=True)
CHUNKED = head(transfer_encoding="chunked")


def chunked(*parts: bytes) -> bytes:
    return CHUNKED + b"".join(chunks(*parts, end=False))


AFTER: dict[str, Answer] = {
    "silence": stalls(chunked(event(2), END)),
    "silence, not chunked": stalls(head() + event(2) + END),
    "[DONE] and silence": stalls(chunked(event(2), END, DONE)),
    "half of [DONE]": stalls(chunked(event(2), END, DONE[:7])),
    "comments": endless(chunked(event(2), END), chunks(b": alive\n\n", end=False)[0], 0.02),
    "comments without a pause": endless(chunked(event(2), END), chunks(b": alive\n\n" * 500, end=False)[0]),
    "the end, again and again": endless(chunked(event(2), END), chunks(END, end=False)[0], 0.02),
    "another output": sends(chunked(event(2), END, event(4, top=',"index":7')), b"0\r\n\r\n"),
    "an error event": sends(chunked(event(2), END, b'data: {"error":{"message":"no"}}\n\n'), b"0\r\n\r\n"),
    "no JSON": sends(chunked(event(2), END, b"data: <html>\n\n"), b"0\r\n\r\n"),
    "an event without end": endless(chunked(event(2), END, b"data: "), chunks(b"x" * 5000, end=False)[0], 0.001),
    "a closed connection": sends(chunked(event(2), END)),
}
BREAKS: dict[str, tuple[bytes, Answer]] = {
    "a reset": (chunked(event(2), END), sends(reset=True)),
    "a reset after [DONE]": (chunked(event(2), END, DONE), sends(reset=True)),
    "broken framing": (chunked(event(2), END), sends(b"zz\r\n")),
}


@pytest.mark.parametrize("after", [*AFTER, *BREAKS])
def test_what_comes_after_the_end_is_no_failure(stack: Stack, after: str) -> None:
    read_whole = threading.Event()

    def answer(connection: socket.socket) -> None:
        if after not in BREAKS:
            AFTER[after](connection)
            return
        first, then = BREAKS[after]
        connection.sendall(first)
        read_whole.wait(30)  # a reset may overtake what was sent before it
        then(connection)

    with RawServer(answer) as server:

        async def test(client: BoundClient) -> None:
            stream = client.generate(
                server.url + "/generate", {"text": "x"}, abort_timeout=0.15, max_event_size=2**20, on_cancel="direct"
            )
            got: list[int] = []
            async with stream:
                async for update in stream:
                    got += update.token_ids
                    if len(got) == 3:
                        read_whole.set()
            assert got == [1, 2, 3]
            assert stream.outputs[0].finish_reason.type == "length"

        stack.run(test)
    assert len(server.requests) == 1, "a whole stream aborts nobody"


@pytest.mark.parametrize("idle_timeout", [None, 0.05, 60])
def test_abort_timeout_bounds_the_wait_whatever_else_is_set(stack: Stack, idle_timeout: float | None) -> None:
    with RawServer(AFTER["silence"]) as server:

        async def test(client: BoundClient) -> None:
            answer = await client.collect(
                server.url + "/generate", {"text": "x"}, abort_timeout=0.1, idle_timeout=idle_timeout
            )
            assert answer[0]["output_ids"] == [1, 2, 3]

        stack.run(test)


def test_every_output_counts(stack: Stack) -> None:
    """One of two is not the end: silence after it is a failure, and the partial has it whole."""
    body = chunked(event(3, end=True, top=',"index":0'))
    with RawServer(stalls(body)) as server:

        async def test(client: BoundClient) -> None:
            with pytest.raises(TransportError, match="idle_timeout") as caught:
                await client.collect(server.url + "/generate", {"text": ["x", "y"]}, idle_timeout=0.1)
            assert list(caught.value.partial[0].token_ids) == [1, 2, 3]

        stack.run(test)


def test_a_connection_whose_body_ends_in_time_is_used_again(stack: Stack) -> None:
    if stack.name.startswith("anyio"):
        pytest.skip("this transport has a connection for every request")
    asked = 0

    def answer(connection: socket.socket) -> None:
        nonlocal asked
        asked += 1
        for _ in range(2):
            parts = CHUNKED.replace(b"Connection: close\r\n", b"") + b"".join(chunks(event(2), END, end=False))
            connection.sendall(parts)
            connection.sendall(b"".join(chunks(DONE)))
            if not connection.recv(2**16):
                return

    with RawServer(answer) as server:

        async def test(client: BoundClient) -> None:
            for _ in range(2):
                async with client.generate(server.url + "/generate", {"text": "x"}) as stream:
                    await read(stream)

        stack.run(test)
    assert asked == 1


def test_an_output_that_the_server_failed_is_raised_at_the_end(stack: Stack) -> None:
    """The others are whole; the failure is the output's own, and no broken connection hides it."""
    failed: Any = b'data: {"error":{"message":"out of memory","code":500},"index":1}\n\n'
    with RawServer(stalls(chunked(event(3, end=True, top=',"index":0'), failed))) as server:

        async def test(client: BoundClient) -> None:
            with pytest.raises(Exception, match="out of memory") as caught:
                await client.collect(server.url + "/generate", {"text": ["x", "y"]}, abort_timeout=0.1)
            assert type(caught.value).__name__ == "ServerError"

        stack.run(test)
