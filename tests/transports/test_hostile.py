"""Servers that mean harm, over a real socket: what the caller gets, what is left of the stream, and that nothing stays.

Each case is the bytes of one answer.  Whatever is wrong with them, the caller gets one typed error that says what to
look at, and in ``.partial`` exactly the tokens that came before it; ``Stack.run`` looks for tasks, sockets and pool
slots that are left.  Servers that never come to an end are in ``test_endless``; silence, refusals, other content types,
broken connections and outputs that never came are in ``test_errors``.
"""

from __future__ import annotations

import gzip
import json
import socket
import threading
import tracemalloc
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import pytest

from ssefold import EventTooLargeError, IncompleteStreamError, PayloadError, ProtocolError, StreamError
from ssefold.transports import TransportError
from tests.transports.raw import Answer, RawServer, chunks, head, sends, stream
from tests.transports.stacks import BoundClient, Stack

DONE = b"data: [DONE]\n\n"
END = {"type": "length", "length": 3}


def event(count: int, *, ids: Sequence[int] | None = None, end: bool = False, meta: str = "", top: str = "") -> bytes:
    """A cumulative chunk of the tokens 1 to ``count``, with other ids or more keys if asked."""
    listed = list(range(1, count + 1)) if ids is None else ids
    reason = json.dumps(END if end else None)
    return (
        f'data: {{"text":"x","output_ids":{json.dumps(listed)},"meta_info":{{"id":"r","finish_reason":{reason},'
        f'"prompt_tokens":1,"completion_tokens":{count}{meta}}}{top}}}\n\n'
    ).encode(errors="surrogatepass")


LAST = event(3, end=True) + DONE


@dataclass(frozen=True)
class Case:
    """An answer, the error it ends with (None: whole), a fragment of its message, and how many tokens came before."""

    name: str
    answer: Answer
    error: type[StreamError] | tuple[type[StreamError], ...] | None
    says: str
    tokens: int = 1
    has_read: threading.Event = field(default_factory=threading.Event)


def after_one(name: str, bad: bytes, error: Any, says: str) -> Case:
    """One good token, then ``bad``."""
    return Case(name, stream(event(1), bad), error, says)


COUNTERS = [
    after_one("more tokens than came", event(5, ids=[1, 2]), ProtocolError, "the counter says 5 in all"),
    after_one("fewer tokens than came", event(2, ids=[1, 2, 3], end=True), ProtocolError, "output_ids has 3 entries"),
    after_one("negative", event(-2, ids=[1, 2]), PayloadError, "completion_tokens must be a whole number from 0"),
    after_one("2**63", event(2**63, ids=[1, 2]), PayloadError, "completion_tokens must be a whole number from 0"),
    after_one("text", event(2).replace(b'tokens":2', b'tokens":"2"'), PayloadError, "completion_tokens must be"),
    after_one(
        "rows against their counter",
        event(2, meta=',"output_token_logprobs":[[-1,1,null],[-1,2,null]],"output_token_logprobs_length":7'),
        ProtocolError,
        "the counter says 7 in all",
    ),
    Case("falls", stream(event(1), event(2), event(1)), ProtocolError, "completion_tokens fell from 2 to 1", 2),
]
OTHER_IDS = [*range(1, 1000), 7]
PREFIX = [
    Case("at token 1,000", stream(event(1000), event(1100, ids=[*OTHER_IDS, *range(1001, 1101)])), ProtocolError,
         "output_ids[999] was 1000 and is now 7", 1000),
    Case("in the last of many chunks", stream(*map(event, range(100, 1001, 100)), event(1001, ids=[*OTHER_IDS, 1001])),
         ProtocolError, "output_ids[999] was 1000 and is now 7", 1000),
]  # fmt: skip
ENDS = [
    Case("[DONE] in the text", stream(event(1, top=',"note":"data: [DONE]\\n\\ndata: [DONE]"'), LAST), None, "", 3),
    Case("[DONE] as a key", stream(event(1), b'data: "[DONE]"\n\n', LAST), PayloadError, "must be a JSON object"),
    Case("[DONE] before the end", stream(event(1), DONE), IncompleteStreamError, "[DONE] seen"),
    Case("[DONE] amid", stream(event(1), DONE, LAST), None, "", 3),
    Case("[DONE] twice", stream(event(1), LAST, DONE), None, "", 3),
    Case("terminal twice", stream(event(1), event(3, end=True), event(3, end=True), DONE), None, "", 3),
    Case(
        "another terminal",
        stream(event(1), event(3, end=True), event(4, end=True), DONE),
        ProtocolError,
        "a later chunk goes on",
        3,
    ),
    Case(
        "tokens after the terminal",
        stream(event(1), event(3, end=True), event(4), DONE),
        ProtocolError,
        "a later chunk goes on",
        3,
    ),
]
INDEXES = [
    after_one(f"index {index}", event(1, top=f',"index":{index}'), error, says)
    for index, error, says in [
        ("1", ProtocolError, "index 1 came, and the payload asks for 1 output"),
        ("1000000000", ProtocolError, "this is the answer to another request"),
        ("-1", PayloadError, "index must be a whole number from 0, found int -1"),
        ('"0"', PayloadError, "found str '0'"),
        ("0.0", PayloadError, "found float 0.0"),
        ("true", PayloadError, "found bool True"),
        ("1" + "0" * 60, PayloadError, "index must be a whole number from 0"),
        ("[0]", PayloadError, "found list [0]"),
    ]
] + [
    after_one(
        "failures of others",
        b"".join(b'data: {"error":"no","index":%d}\n\n' % index for index in range(1, 99)),
        ProtocolError,
        "index 98 came, and the payload asks for 1 output",
    ),
]
JSON = [
    after_one(name, event(2, meta=f',"x":{value}'), PayloadError, "the event's data is not JSON")
    for name, value in [
        ("NaN", "NaN"), ("Infinity", "-Infinity"), ("1e999", "1e999"), ("5,000 digits", "9" * 5000),
        ("escaped surrogate", '"\\ud800"'), ("raw surrogate", '"\ud800"'), ("deep", "[" * 20_000 + "]" * 20_000),
    ]
] + [
    after_one("id 2**63", event(2, ids=[1, 2**63]), PayloadError, "output_ids[1] must be a token id"),
    after_one("id 2**70", event(2, ids=[1, 2**70]), PayloadError, "output_ids[1] must be a token id"),
    after_one("a list", b"data: [1,2]\n\n", PayloadError, "must be a JSON object"),
    after_one("no chunk", b'data: {"object":"text_completion"}\n\n', PayloadError, "is no chunk of /generate"),
    # As every JSON parser reads them: the last one counts, and must fit.
    Case("key twice", stream(event(1), event(1, meta=',"completion_tokens":2', ids=[1, 2]), LAST), None, "", 3),
    after_one("key twice, misfit", event(2, meta=',"completion_tokens":9'), ProtocolError, "the counter says 9 in all"),
]  # fmt: skip
PAGES = [
    Case("page", sends(head(), b"<!doctype html>\n\n<html>data: [DONE]\n\n</html>\n"), PayloadError,
         "no event stream at all: b'<!doctype html>'", 0),
    after_one("page amid", b"<html>\n\n<h1>502 Bad Gateway</h1>\n\n", PayloadError, "is no event stream from byte"),
    after_one("page as data", b"data: <html>\n\n", PayloadError, "It begins with b'<html>'"),
]  # fmt: skip
TWO_LENGTHS = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nContent-Length: 5\r\nContent-Length: 9\r\n\r\n"


def chunked(name: str, *after: bytes) -> Case:
    """One good token in an HTTP chunk, then framing that is none, when the token has been read."""
    has_read = threading.Event()

    def answer(connection: socket.socket) -> None:
        sends(head(transfer_encoding="chunked"), *chunks(event(1), end=False))(connection)
        has_read.wait(30)
        sends(*after)(connection)

    return Case(name, answer, TransportError, "127.0.0.1", 1, has_read)


FRAMING = [
    Case("length negative", sends(head(content_length="-5"), event(1)), TransportError, "gave no|no answer", 0),
    Case("lengths that differ", sends(TWO_LENGTHS, event(1)), TransportError, "gave no|no answer", 0),
    chunked("chunk longer than it says", b"5\r\n" + event(2) + b"\r\n"),
    chunked("chunk shorter than it says", b"ffff\r\n: x"),
    chunked("chunk of no number", b"zz\r\n" + event(2)),
    chunked("chunk of a negative size", b"-5\r\n" + event(2)),
    chunked("chunk of 2**160 bytes", b"f" * 40 + b"\r\n" + event(2)),
]
GROUPS = {
    "counters": COUNTERS, "prefix": PREFIX, "ends": ENDS, "indexes": INDEXES, "JSON": JSON, "pages": PAGES,
    "framing": FRAMING,
}  # fmt: skip


@pytest.mark.parametrize("group", GROUPS)
def test_what_the_caller_gets(stack: Stack, group: str) -> None:
    cases = GROUPS[group]
    with RawServer(*(case.answer for case in cases)) as server:

        async def test(client: BoundClient) -> None:
            for case in cases:
                await _survive(client, server.url, case)

        stack.run(test)
    assert len(server.requests) == len(cases), "a request was sent again"


async def _survive(client: BoundClient, url: str, case: Case) -> None:
    got: list[int] = []
    error: StreamError | None = None
    case.has_read.clear()
    reading = client.generate(url + "/generate", {"text": "x"})
    try:
        async with reading as entered:
            async for update in entered:
                got += update.token_ids
                case.has_read.set()
    except StreamError as caught:
        error = caught
    if case.error is None:
        assert error is None, case.name
    else:
        assert isinstance(error, case.error), (case.name, error)
        assert any(part in str(error) for part in case.says.split("|")), (case.name, error)
        assert {index: list(one.token_ids) for index, one in error.partial.items()} == ({0: got} if got else {})
    assert got == list(range(1, case.tokens + 1)), case.name
    assert client.busy() == 0, case.name


def test_a_length_beside_chunks_is_refused_or_overruled(stack: Stack) -> None:
    """As RFC 9112 leaves it to the client; never are bytes taken by the wrong one."""
    body = chunks(event(1), LAST)
    with RawServer(sends(head(content_length="9", transfer_encoding="chunked"), *body)) as server:

        async def test(client: BoundClient) -> None:
            try:
                answer = await client.collect(server.url + "/generate", {"text": "x"})
            except TransportError as error:
                assert error.partial == {}
            else:
                assert answer[0]["output_ids"] == [1, 2, 3]

        stack.run(test)


def test_a_body_longer_than_its_length_is_cut_or_refused(stack: Stack) -> None:
    with RawServer(sends(head(content_length=str(len(event(1)) + 9)) + event(1) + LAST)) as server:

        async def test(client: BoundClient) -> None:
            with pytest.raises((TransportError, IncompleteStreamError)) as caught:
                await client.collect(server.url + "/generate", {"text": "x"})
            # aiohttp refuses the answer whole if the rest comes together with it.
            held = [list(one.token_ids) for one in caught.value.partial.values()]
            assert held == ([] if isinstance(caught.value, TransportError) else [[1]])

        stack.run(test)


def test_a_redirect_leads_nowhere(stack: Stack) -> None:
    with RawServer(stream(LAST)) as other, RawServer(sends(head("307 Go", location=other.url + "/generate"))) as server:

        async def test(client: BoundClient) -> None:
            with pytest.raises(TransportError, match="status 307"):
                await client.collect(server.url + "/generate", {"text": "x"})

        stack.run(test)
        assert len(server.requests) == 1
        assert other.requests == []


# ---- compression ----------------------------------------------------------------------------------------------------

BOMB = gzip.compress(b"data: " + bytes(20_000_000))


@pytest.mark.parametrize("encoding", ["gzip, gzip", "br", "deflate, gzip"])
def test_encodings_that_make_gigabytes_of_kilobytes_are_not_undone(stack: Stack, encoding: str) -> None:
    with RawServer(sends(head(content_encoding=encoding), gzip.compress(BOMB))) as server:

        async def test(client: BoundClient) -> int:
            tracemalloc.start()
            try:
                with pytest.raises(TransportError, match="although identity was asked for"):
                    await client.collect(server.url + "/generate", {"text": "x"}, max_event_size=2**16)
                return tracemalloc.get_traced_memory()[1]
            finally:
                tracemalloc.stop()

        assert stack.run(test) < 5_000_000
    assert b"accept-encoding: identity\r\n" in server.requests[0].lower()


def test_a_compressed_bomb_ends_at_the_size_bound(stack: Stack) -> None:
    with RawServer(sends(head(content_encoding="gzip"), BOMB)) as server:

        async def test(client: BoundClient) -> None:
            with pytest.raises(EventTooLargeError, match="max_event_size=65536"):
                await client.collect(server.url + "/generate", {"text": "x"}, max_event_size=2**16)

        stack.run(test)


# ---- what goes to the server ----------------------------------------------------------------------------------------

EVIL = "a\r\nX-Evil: 1\r\n\r\nPOST /evil HTTP/1.1"


def test_an_id_is_no_header(stack: Stack) -> None:
    with RawServer(stream(LAST)) as server:

        async def test(client: BoundClient) -> None:
            await client.collect(server.url + "/generate", {"text": "x"}, rid=EVIL)

        stack.run(test)
    lines, _, body = server.requests[0].partition(b"\r\n\r\n")
    assert b"evil" not in lines.lower()
    assert json.loads(body)["rid"] == EVIL


@pytest.mark.parametrize(
    "headers",
    [{"X-SMG-Routing-Key": EVIL}, {"X-SMG-Routing-Key": "a\nb"}, {"X-SMG-Routing-Key": "a\x00b"}, {EVIL: "a"}],
    ids=["CRLF", "LF", "NUL", "name"],
)
def test_a_session_id_that_would_be_another_header_is_not_sent(stack: Stack, headers: dict[str, str]) -> None:
    with RawServer(stream(LAST)) as server:

        async def test(client: BoundClient) -> None:
            with pytest.raises(TransportError):
                await client.collect(server.url + "/generate", {"text": "x"}, headers=headers)

        stack.run(test)
    assert server.requests == []


def test_a_header_beyond_ascii_injects_nothing(stack: Stack) -> None:
    """Some encodings make CR and LF of these; here they are refused, or sent as UTF-8."""
    with RawServer(stream(LAST)) as server:

        async def test(client: BoundClient) -> None:
            try:
                await client.collect(
                    server.url + "/generate", {"text": "x"}, headers={"X-Key": "\u010d\u010aX-Evil: 1"}
                )
            except TransportError:
                assert server.requests == []

        stack.run(test)
    assert not any(b"\nx-evil" in request.lower() for request in server.requests)


@pytest.mark.parametrize("worker", ["http://[", "http://127.0.0.1:99999999", "http://127.0.0.1:1/\r\nX-Evil: 1", "x"])
def test_a_router_that_names_nonsense_as_its_worker(
    stack: Stack, worker: str, events: list[tuple[str, dict[str, Any]]]
) -> None:
    """Leaving the stream is not disturbed; the hook hears that the server was not told."""
    workers = json.dumps({"workers": [worker]}).encode()

    def first(connection: Any) -> None:
        connection.sendall(head() + event(1))
        connection.recv(1)  # until the client has gone

    with RawServer(first, sends(head(kind="application/json"), workers)) as server:

        async def test(client: BoundClient) -> None:
            async with client.generate(
                server.url + "/generate", {"text": "x"}, on_cancel="router", on_event=lambda *one: events.append(one)
            ) as entered:
                await entered.__anext__()

        stack.run(test)
    assert isinstance(dict(events)["abort_failed"]["error"], TransportError)
