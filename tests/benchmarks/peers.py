"""Other people's parsers of server-sent events behind one signature: reads in, the data of each event out.

Each is driven from the reads by the shortest way that its package offers, without sockets; where the public way in is
an HTTP response, the response is made of the same reads.  Knows nothing of what is in the events.
"""

from __future__ import annotations

import asyncio
import importlib
import importlib.util
from collections.abc import Callable, Sequence
from contextlib import suppress
from types import SimpleNamespace
from typing import Any

from ssefold import SSEParser

Parse = Callable[[Sequence[bytes]], "list[str] | list[bytes]"]

OURS = "ssefold"
OURS_AS_TEXT = "ssefold, as text"
_HEADERS = {"content-type": "text/event-stream"}
_URL = "http://127.0.0.1/"


def ours(reads: Sequence[bytes]) -> list[bytes]:
    """Our parser; the data as it came, bytes, which every JSON parser takes."""
    feed = SSEParser().feed
    return [event.data_bytes for data in reads for event in feed(data)]


def ours_as_text(reads: Sequence[bytes]) -> list[str]:
    """Our parser; the data decoded, as the others hand it out."""
    feed = SSEParser().feed
    return [event.data for data in reads for event in feed(data)]


def httpx_sse(reads: Sequence[bytes]) -> list[str]:
    response = _module("httpx").Response(200, headers=_HEADERS, content=iter(reads))
    return [event.data for event in _module("httpx_sse").EventSource(response).iter_sse()]


def httpx2(reads: Sequence[bytes]) -> list[str]:
    package = _module("httpx2")
    response = package.Response(200, headers=_HEADERS, content=iter(reads), request=package.Request("GET", _URL))
    return [event.data for event in package.EventSource(response)]


def openai(reads: Sequence[bytes]) -> list[str]:
    return [event.data for event in _module("openai._streaming").SSEDecoder().iter_bytes(iter(reads))]


def anthropic(reads: Sequence[bytes]) -> list[str]:
    return [event.data for event in _module("anthropic._streaming").SSEDecoder().iter_bytes(iter(reads))]


def launchdarkly(reads: Sequence[bytes]) -> list[str]:
    reader = _module("ld_eventsource.reader")
    lines = reader._BufferedLineReader.lines_from(iter(reads))
    found = reader._SSEReader(lines).events_and_comments()
    return [event.data for event in found if hasattr(event, "data")]


def sseclient_py(reads: Sequence[bytes]) -> list[str]:
    return [event.data for event in _module("sseclient").SSEClient(iter(reads)).events()]


def aiohttp_sse_client2(reads: Sequence[bytes]) -> list[str]:
    """Reads lines from aiohttp's stream, which refuses those of more than 512 KiB."""
    return asyncio.run(_from_aiohttp(reads))


_PEERS: dict[str, tuple[str, Parse]] = {
    "httpx-sse": ("httpx_sse", httpx_sse),
    "httpx2": ("httpx2", httpx2),
    "openai": ("openai", openai),
    "anthropic": ("anthropic", anthropic),
    "launchdarkly-eventsource": ("ld_eventsource", launchdarkly),
    "sseclient-py": ("sseclient", sseclient_py),
    "aiohttp-sse-client2": ("aiohttp_sse_client2", aiohttp_sse_client2),
}
PEERS = tuple(_PEERS)
"""Names on the package index."""


def parser_of(peer: str) -> Parse | None:
    """The parser of a peer, imported; None if the package is not installed."""
    module, parse = _PEERS[peer]
    if importlib.util.find_spec(module) is None:
        return None
    _module(module)
    return parse


class _Content:
    """``response.content`` of aiohttp: its lines, then an ``EOFError``, as this client reconnects where lines end."""

    def __init__(self, stream: Any) -> None:
        self._stream = stream

    def __aiter__(self) -> _Content:
        return self

    async def __anext__(self) -> bytes:
        line: bytes = await self._stream.readline()
        if not line:
            raise EOFError
        return line


async def _from_aiohttp(reads: Sequence[bytes]) -> list[str]:
    connection = SimpleNamespace(pause_reading=_nothing, resume_reading=_nothing)
    limit = _module("aiohttp.helpers").DEFAULT_CHUNK_SIZE
    stream = _module("aiohttp.streams").StreamReader(connection, limit, loop=asyncio.get_running_loop())
    for data in reads:
        stream.feed_data(data)
    stream.feed_eof()
    source = _module("aiohttp_sse_client2.client").EventSource(_URL, session=SimpleNamespace())
    source._response = SimpleNamespace(status=200, content=_Content(stream))
    found: list[str] = []
    with suppress(EOFError):
        while True:
            found.append((await anext(source)).data)
    return found


def _nothing(**_: object) -> None:
    """All bytes are there: nothing to pause or resume."""


def _module(name: str) -> Any:
    return importlib.import_module(name)
