"""Content encodings between the server and slime's client: undone, or refused by name, never parsed as text."""

from __future__ import annotations

import gzip
import zlib
from typing import Any

import pytest

from ssefold.transports import TransportError

from ..fakes import STOP, body_of, stream_of
from .runs import Run

httpx = pytest.importorskip("httpx", reason="slime's client is httpx's")

BODY = body_of(stream_of([11, 12, 13], incremental=True, finish=STOP))
ENCODED = {
    "identity": BODY,
    "gzip": gzip.compress(BODY),
    "x-gzip": gzip.compress(BODY),
    "X-GZIP": gzip.compress(BODY),
    "deflate": zlib.compress(BODY),
    "x-deflate": zlib.compress(BODY),
}


def answered(slime: Any, encoding: str, body: bytes, **options: Any) -> Run:
    headers = {"content-encoding": encoding, "content-type": "text/event-stream"}
    transport = httpx.MockTransport(lambda _request: httpx.Response(200, headers=headers, content=reads(body)))
    run = Run(slime)
    slime.http_utils._http_client = httpx.AsyncClient(transport=transport, **options)
    return run


async def reads(body: bytes) -> Any:
    """In pieces of seven bytes."""
    for at in range(0, len(body), 7):
        yield body[at : at + 7]


@pytest.mark.parametrize("encoding", ENCODED)
@pytest.mark.parametrize("offered", [None, "identity", "gzip, deflate"])
def test_undone(slime: Any, encoding: str, offered: str | None) -> None:
    options = {} if offered is None else {"headers": {"accept-encoding": offered}}
    sample = answered(slime, encoding, ENCODED[encoding], **options)(slime.Sample(prompt="p"))
    assert (sample.tokens, sample.status) == ([1, 2, 11, 12, 13], slime.Sample.Status.COMPLETED)


@pytest.mark.parametrize("encoding", ["compress", "gzip, gzip", "rot13", "br"])
def test_refused_by_name(slime: Any, encoding: str) -> None:
    with pytest.raises(TransportError, match=rf"content-encoding '{encoding}'.*turn compression off"):
        answered(slime, encoding, BODY, headers={"accept-encoding": "identity"})(slime.Sample(prompt="p"))


def test_bytes_that_are_not_what_they_are_said_to_be(slime: Any) -> None:
    with pytest.raises(TransportError, match="not the gzip that its content-encoding says"):
        answered(slime, "x-gzip", BODY)(slime.Sample(prompt="p"))
