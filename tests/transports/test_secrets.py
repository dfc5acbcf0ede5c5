"""No user, password or query of an url is in anything that a failing stream leaves behind, whoever said it."""

from __future__ import annotations

import base64
import logging
import traceback
from typing import Any

import pytest

from ssefold import StreamError
from ssefold.transports import TransportError
from tests.transports.raw import Answer, RawServer, head, sends
from tests.transports.stacks import BoundClient, Stack, read
from tests.transports.test_endless import stalls
from tests.transports.test_errors import unused_port
from tests.transports.test_hostile import LAST, event

USER, PASSWORD, QUERY = "us3r", "hunter2", "t0ken"
CREDENTIALS = base64.b64encode(f"{USER}:{PASSWORD}".encode()).decode()
SECRETS = (USER, PASSWORD, QUERY, CREDENTIALS)


def secret(url: str) -> str:
    """With user, password and query."""
    return url.replace("://", f"://{USER}:{PASSWORD}@") + f"/generate?key={QUERY}"


ANSWERS: dict[str, Answer] = {
    "status": sends(head("500 No", "application/json"), b'{"error":"no"}'),
    "no answer": sends(b""),
    "no HTTP": sends(b"SSH-2.0-OpenSSH_9.6\r\n\r\n"),
    "two lengths": sends(b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\nContent-Length: 9\r\n\r\n"),
    "redirect": sends(head("307 Go", location="http://127.0.0.1:1/generate")),
    "content type": sends(head(kind="text/html"), b"<html>"),
    "encoding": sends(head(content_encoding="br"), b"x"),
    "broken framing": sends(head(transfer_encoding="chunked"), b"zz\r\n"),
    "cut": sends(head(content_length="9999"), event(1)),
    "silence": stalls(head() + event(1)),
    "nothing": stalls(b""),
    "incomplete": sends(head(), event(1)),
}


class Everything:
    """Collects what a run leaves: events, and everything that hangs on its error."""

    def __init__(self) -> None:
        self.said: list[str] = []

    def hook(self, name: str, data: Any) -> None:
        self.said.append(f"{name} {dict(data)!r}")
        for value in data.values():
            if isinstance(value, BaseException):
                self.error(value)

    def error(self, error: BaseException) -> None:
        self.said += traceback.format_exception(error)
        seen: BaseException | None = error
        while seen is not None:
            self.said += [str(seen), repr(seen), repr(seen.args)]
            if isinstance(seen, StreamError):
                self.said.append(repr(vars(seen)))
            seen = seen.__cause__ or seen.__context__

    def check(self, records: list[logging.LogRecord]) -> None:
        # The clients' own records are theirs (httpx writes the url of each request, and says how to turn it off).
        self.said += [record.getMessage() for record in records if record.name.startswith("ssefold")]
        # The source lines that a traceback shows are this file's.
        text = "\n".join(line for line in "\n".join(self.said).splitlines() if "secret(" not in line)
        assert text
        for word in SECRETS:
            assert word not in text, word


@pytest.mark.parametrize("answer", ANSWERS)
def test_a_failing_stream(stack: Stack, answer: str, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    found = Everything()
    with RawServer(ANSWERS[answer]) as server:

        async def test(client: BoundClient) -> None:
            stream = client.generate(
                secret(server.url), {"text": "x"}, idle_timeout=0.2, abort_timeout=0.2, on_event=found.hook
            )
            found.said.append(repr(stream))
            with pytest.raises(StreamError) as caught:
                async with stream:
                    await read(stream)
            found.error(caught.value)
            found.said.append(repr([one.to_bytes() for one in stream.snapshot().values()]))

        stack.run(test)
    found.check(caplog.records)
    [request] = server.requests
    assert f"authorization: basic {CREDENTIALS}".lower() in request.decode().lower()
    assert f"key={QUERY}" in request.decode()


def test_no_connection(stack: Stack, caplog: pytest.LogCaptureFixture) -> None:
    found = Everything()

    async def test(client: BoundClient) -> None:
        for url in (secret(f"http://127.0.0.1:{unused_port()}"), secret("http://127.0.0.1:99999999")):
            with pytest.raises((TransportError, ValueError)) as caught:
                await client.collect(url, {"text": "x"}, on_event=found.hook)
            found.error(caught.value)

    stack.run(test)
    found.check(caplog.records)


@pytest.mark.parametrize("url", [f"http://{USER}:hunt/er2{PASSWORD}@host/x", f"http://{USER}:{PASSWORD}?@h/x"])
def test_an_url_that_nobody_can_split(stack: Stack, url: str) -> None:
    found = Everything()

    async def test(client: BoundClient) -> None:
        with pytest.raises(ValueError, match="%2F") as caught:
            client.generate(url, {"text": "x"})
        found.said += [str(caught.value), repr(caught.value)]

    stack.run(test)
    found.check([])


@pytest.mark.parametrize("answer", ["status", "no answer", "no HTTP", "two lengths", "nothing"])
@pytest.mark.parametrize("on_cancel", ["direct", "router"])
def test_urls_of_siblings(stack: Stack, answer: str, on_cancel: str, caplog: pytest.LogCaptureFixture) -> None:
    """``/abort_request`` and ``/workers`` are beside the secret url; their failures go to the hook, or are raised."""
    caplog.set_level(logging.DEBUG)
    found = Everything()
    with RawServer(stalls(head() + event(2)), ANSWERS[answer]) as server:

        async def test(client: BoundClient) -> None:
            stream = client.generate(
                secret(server.url), {"text": "x"}, on_cancel=on_cancel, abort_timeout=0.3, on_event=found.hook
            )
            async with stream:
                await stream.__anext__()
                with pytest.raises(TransportError) as caught:
                    await stream.abort()
                found.error(caught.value)

        stack.run(test)
    assert "abort_failed" in "".join(found.said)
    found.check(caplog.records)
    assert all(CREDENTIALS in request.decode() for request in server.requests)


def test_urls_of_workers(stack: Stack) -> None:
    """A router may name them with passwords of their own; the caller's own password is not for them."""
    found = Everything()
    other = base64.b64encode(b"w0rker:swordfish").decode()
    with RawServer(sends(head("401 No"), b"")) as worker:
        named = f'{{"workers":["{worker.url.replace("://", "://w0rker:swordfish@")}"]}}'.encode()
        with RawServer(stalls(head() + event(2)), sends(head(kind="application/json"), named)) as router:

            async def test(client: BoundClient) -> None:
                stream = client.generate(
                    secret(router.url), {"text": "x"}, on_cancel="router", abort_timeout=0.3, on_event=found.hook
                )
                async with stream:
                    await stream.__anext__()
                    with pytest.raises(TransportError, match="status 401") as caught:
                        await stream.abort()
                    found.error(caught.value)

            stack.run(test)
    found.check([])
    assert "swordfish" not in "".join(found.said)
    assert worker.requests
    for request in worker.requests:
        assert CREDENTIALS not in request.decode()
        assert other in request.decode()


def test_a_header_of_the_callers_outranks_the_url(stack: Stack) -> None:
    with RawServer(sends(head(), LAST)) as server:

        async def test(client: BoundClient) -> None:
            await client.collect(secret(server.url), {"text": "x"}, headers={"Authorization": "Bearer mine"})

        stack.run(test)
    assert b"Bearer mine" in server.requests[0]
    assert CREDENTIALS.encode() not in server.requests[0]
