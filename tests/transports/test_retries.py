"""Trying again: only while nothing has come, only where it can help, and never more often than was asked for."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from ssefold import IncompleteStreamError, ServerError
from ssefold.transports import TransportError
from ssefold.transports._engine import retry as _retry
from ssefold.transports.testing import FakeSGLang, Fault
from tests.transports.raw import RawServer, chunks, head, sends
from tests.transports.stacks import BoundClient, Stack, read
from tests.transports.test_contract import ASK, check
from tests.transports.test_errors import chunk, unused_port

Serve = Callable[..., FakeSGLang]

OVERLOADED = Fault(overloaded=True)
ERROR_503 = Fault(error={"message": "busy", "type": "overloaded", "code": 503, "retryable": True})
HTTP_503 = Fault(status=503, body=b'{"error":"busy"}')
REFUSED = Fault(refuse=True)


@pytest.mark.parametrize(
    "faults",
    [[HTTP_503], [ERROR_503], [OVERLOADED], [REFUSED], [HTTP_503, OVERLOADED, REFUSED, ERROR_503]],
    ids=["status", "error event", "shed", "no answer", "all of them"],
)
def test_a_request_that_was_turned_away_is_sent_again(
    stack: Stack, server: FakeSGLang, faults: list[Fault], events: list[tuple[str, dict[str, Any]]]
) -> None:
    server.fault_next(*faults)

    async def test(client: BoundClient) -> None:
        async with client.generate(
            server.url + "/generate", ASK, retries=len(faults), on_event=lambda *event: events.append(event)
        ) as stream:
            await read(stream)
        check(stream.outputs, server.truth(ASK))
        assert stream.metrics.attempts == len(faults) + 1

    stack.run(test)
    assert server.counters.requests == len(faults) + 1
    assert len({json.dumps(seen.json) for seen in server.seen}) == 1, "the same bytes each time"
    assert [data["attempt"] for name, data in events if name == "retry"] == list(range(1, len(faults) + 1))


@pytest.mark.parametrize("fault", [HTTP_503, ERROR_503, REFUSED], ids=["status", "error event", "no answer"])
def test_attempts_are_counted(stack: Stack, serve: Serve, fault: Fault) -> None:
    server = serve(fault=fault)

    async def test(client: BoundClient) -> None:
        with pytest.raises((TransportError, ServerError)) as caught:
            await client.collect(server.url + "/generate", ASK, retries=2)
        assert getattr(caught.value, "status_code", None) == (503 if fault is HTTP_503 else None)
        if fault is HTTP_503:
            assert isinstance(caught.value, TransportError)
            assert caught.value.body == HTTP_503.body

    stack.run(test)
    assert server.counters.requests == 3


def test_without_retries_there_are_none(stack: Stack, serve: Serve) -> None:
    server = serve(fault=HTTP_503)

    async def test(client: BoundClient) -> None:
        with pytest.raises(TransportError):
            await client.collect(server.url + "/generate", ASK)

    stack.run(test)
    assert server.counters.requests == 1


def test_a_request_shed_for_the_last_time_ends_as_the_server_said(stack: Stack, serve: Serve) -> None:
    server = serve(fault=OVERLOADED)

    async def test(client: BoundClient) -> None:
        async with client.generate(server.url + "/generate", ASK, retries=1) as stream:
            [update] = await read(stream)
        assert update.finish_reason is not None
        assert update.finish_reason.retryable
        assert update.token_ids == ()

    stack.run(test)
    assert server.counters.requests == 2


@pytest.mark.parametrize(
    "fault",
    [
        Fault(status=500),
        Fault(status=429),
        Fault(error={"message": "bad", "code": 400}),
        Fault(error={"message": "busy", "code": 503}, error_after=1),
        Fault(cut_at=1),
        Fault(cut_at=2000, cut="rst"),
        Fault(content_type="text/html"),
    ],
    ids=["500", "429", "400 in band", "503 after a token", "cut before", "cut amid", "type"],
)
def test_nothing_else_is_tried_again(stack: Stack, serve: Serve, fault: Fault) -> None:
    server = serve(fault=fault)

    async def test(client: BoundClient) -> None:
        with pytest.raises((TransportError, ServerError, IncompleteStreamError)):
            await client.collect(server.url + "/generate", ASK, retries=5)

    stack.run(test)
    assert server.counters.requests == 1


def test_an_output_of_several_that_was_shed_is_the_callers_to_repeat(stack: Stack, server: FakeSGLang) -> None:
    server.fault_next(OVERLOADED)

    async def test(client: BoundClient) -> None:
        ask = {**ASK, "input_ids": [[1], [2]]}
        async with client.generate(server.url + "/generate", ask, retries=5) as stream:
            updates = await read(stream)
        assert [update.finish_reason is not None for update in updates] == [True, True]

    stack.run(test)
    assert server.counters.requests == 1


def test_no_connection_is_tried_again(stack: Stack, events: list[tuple[str, dict[str, Any]]]) -> None:
    async def test(client: BoundClient) -> None:
        url = f"http://127.0.0.1:{unused_port()}/generate"
        with pytest.raises(TransportError, match="no connection") as caught:
            await client.collect(url, ASK, retries=2, on_event=lambda *event: events.append(event))
        assert events[-1][1]["error"] is caught.value

    stack.run(test)
    assert [name for name, _ in events] == ["request", "retry", "request", "retry", "request", "close"]


def test_another_attempt_gets_another_connection(stack: Stack) -> None:
    """A server that says 503 and then is gone must not be found again in the pool."""
    body = b"full"
    refusal = sends(b"HTTP/1.1 503 Busy\r\nContent-Length: 400\r\n\r\n" + body)
    answer = sends(head(transfer_encoding="chunked"), *chunks(chunk(None), b"data: [DONE]\n\n"))
    with RawServer(refusal, refusal, answer) as server:

        async def test(client: BoundClient) -> None:
            result = await client.collect(server.url + "/generate", {"text": "x"}, retries=2)
            assert result[0]["output_ids"] == [7]

        stack.run(test)
        assert len(server.requests) == 3


def test_attempts_wait_longer_and_longer_and_never_alike() -> None:
    for attempt in range(1, 30):
        longest = min(0.25 * 2 ** (attempt - 1), 10.0)
        waits = {_retry.backoff(attempt) for _ in range(50)}
        assert len(waits) > 1
        assert longest / 2 <= min(waits)
        assert max(waits) <= longest
