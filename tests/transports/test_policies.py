"""What a client does by its own policy: raise for a status, raise in a hook.  An answer stays an answer."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from ssefold.transports import TransportError
from ssefold.transports.testing import FakeSGLang, Fault
from tests.transports.raw import RawServer, head, sends
from tests.transports.stacks import BoundClient, Stack
from tests.transports.test_contract import ASK
from tests.transports.test_endless import stalls
from tests.transports.test_hostile import event

Serve = Callable[..., FakeSGLang]
BUSY = sends(head("503 Busy", "application/json"), b'{"error":"busy"}')


class OwnError(Exception):
    pass


def strict(client: Any, how: str, seen: list[int]) -> None:
    """Make the client raise by itself for what is not 200."""
    if hasattr(client, "session"):

        async def raises(response: Any) -> None:
            seen.append(response.status)
            if response.status != 200:
                raise OwnError

        client.session._raise_for_status = True if how == "status" else raises
        return

    def check(response: Any) -> None:
        seen.append(response.status_code)
        if how == "status":
            response.raise_for_status()
        elif response.status_code != 200:
            raise OwnError

    async def check_later(response: Any) -> None:
        if how == "after reading":
            await response.aread()
        check(response)

    def check_blocking(response: Any) -> None:
        if how == "after reading":
            response.read()
        check(response)

    is_sync = not hasattr(client.client, "aclose")
    client.client.event_hooks = {"response": [check_blocking if is_sync else check_later]}


def _policies(stack: Stack, how: str) -> Callable[[BoundClient, list[int]], None]:
    if stack.name.startswith("anyio"):
        pytest.skip("this transport has no client with a policy")
    if stack.name == "aiohttp" and how == "after reading":
        pytest.skip("a session has no such hook")
    return lambda client, seen: strict(client, how, seen)


@pytest.fixture(params=["status", "own error", "after reading"])
def policy(stack: Stack, request: pytest.FixtureRequest) -> Callable[[BoundClient, list[int]], None]:
    return _policies(stack, request.param)


Policy = Callable[[BoundClient, list[int]], None]


@pytest.mark.parametrize(("status", "retryable"), [("503 Busy", True), ("500 No", False), ("400 Bad", False)])
def test_status_and_body_are_told(stack: Stack, policy: Policy, status: str, retryable: bool) -> None:
    body = b'{"error":{"message":"go away"}}'
    with RawServer(sends(head(status, "application/json"), body)) as server:

        async def test(client: BoundClient) -> None:
            policy(client, [])
            with pytest.raises(TransportError, match=f"status {status[:3]}.*go away") as caught:
                await client.collect(server.url + "/generate", {"text": "x"})
            error = caught.value
            assert (error.status_code, error.body, error.retryable) == (int(status[:3]), body, retryable)

        stack.run(test)
    assert len(server.requests) == 1


def test_a_503_is_tried_again(stack: Stack, policy: Policy, serve: Serve) -> None:
    server = serve()
    server.fault_next(Fault(status=503, body=b"busy"), Fault(status=503, body=b"busy"))
    seen: list[int] = []

    async def test(client: BoundClient) -> None:
        policy(client, seen)
        answer = await client.collect(server.url + "/generate", ASK, retries=2)
        assert answer[0]["output_ids"] == list(server.truth(ASK)[0].token_ids)

    stack.run(test)
    assert server.counters.requests == 3
    if stack.name != "aiohttp":
        assert seen == [503, 503, 200], "the hook is called all the same"


def test_the_client_stays_as_it_was(stack: Stack, policy: Policy, serve: Serve) -> None:
    if stack.name == "aiohttp":
        pytest.skip("hooks are httpx's")
    server = serve()

    async def test(client: Any) -> None:
        policy(client, [])
        before = client.client.event_hooks["response"]
        await client.collect(server.url + "/generate", ASK)
        assert client.client.event_hooks["response"] == before
        assert not client.client.is_closed

    stack.run(test)


def test_a_hook_that_refuses_a_good_answer_is_heard(stack: Stack, serve: Serve) -> None:
    if not stack.name.startswith("httpx"):
        pytest.skip("hooks are httpx's")
    server = serve()

    async def test(client: Any) -> None:
        async def refuse(response: Any) -> None:
            raise OwnError("not from this gateway")

        def refuse_blocking(response: Any) -> None:
            raise OwnError("not from this gateway")

        client.client.event_hooks = {"response": [refuse_blocking if stack.is_sync else refuse]}
        with pytest.raises(TransportError, match="not from this gateway") as caught:
            await client.collect(server.url + "/generate", ASK)
        assert isinstance(caught.value.__cause__, OwnError)
        assert not caught.value.retryable

    stack.run(test)


@pytest.mark.parametrize("how", ["status", "own error"])
def test_the_abort_is_taken_by_a_strict_client(stack: Stack, how: str) -> None:
    """A refused ``/abort_request`` is told with its status, whatever the client would make of it."""
    policy = _policies(stack, how)
    with RawServer(stalls(head() + event(2)), BUSY) as server:

        async def test(client: BoundClient) -> None:
            policy(client, [])
            async with client.generate(server.url + "/generate", {"text": "x"}, abort_timeout=0.5) as stream:
                await stream.__anext__()
                with pytest.raises(TransportError, match=r"status 503.*busy") as caught:
                    await stream.abort()
                assert (caught.value.status_code, caught.value.body) == (503, b'{"error":"busy"}')

        stack.run(test)
