"""What servers send, and clients and responses that know little: for adapters that use a framework's own client."""

from __future__ import annotations

import base64
import json
from array import array
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import asynccontextmanager
from types import SimpleNamespace
from typing import Any

PROMPT = [1, 2]

#: The core's part of issue 11 and of issue 13; to be taken off when it is there.


def b64(numbers: Iterable[int]) -> str:
    return base64.b64encode(array("i", numbers).tobytes()).decode()


def chunk(text: str | None, pairs: list[Any], length: int, **meta: Any) -> dict[str, Any]:
    return {
        "text": text,
        "meta_info": {"output_token_logprobs": pairs, "output_token_logprobs_length": length, **meta},
    }


def pairs_of(tokens: Iterable[int]) -> list[Any]:
    return [[-token / 100, token, None] for token in tokens]


def stream_of(
    tokens: list[int],
    *,
    incremental: bool,
    step: int = 1,
    finish: dict[str, Any] | None = None,
    text: bool = True,
    **terminal: Any,
) -> list[dict[str, Any]]:
    """Chunks of these tokens; ``terminal`` goes into the last one's ``meta_info``, if ``finish`` ends it."""
    chunks: list[dict[str, Any]] = []
    ends = [*range(step, len(tokens), step), len(tokens)]
    for end in ends:
        start = ends[ends.index(end) - 1] if incremental and end != ends[0] else 0
        new = tokens[start:end]
        last = {"finish_reason": finish, **terminal} if end == ends[-1] and finish else {"finish_reason": None}
        meta = {"id": "r", "prompt_tokens": 2, "completion_tokens": end, **last}
        chunks.append(chunk("".join(f"<{token}>" for token in new) if text else None, pairs_of(new), end, **meta))
        chunks[-1]["output_ids"] = new
    return chunks


STOP = {"type": "stop", "matched": 2}
LENGTH = {"type": "length", "length": 3}
ABORT = {"type": "abort", "message": "Aborted", "status_code": None, "err_type": None}


def body_of(chunks: Iterable[Any]) -> bytes:
    """What a server sends: raw items are JSON, bytes stand as they are."""
    events = [item if isinstance(item, bytes) else f"data: {json.dumps(item)}\n\n".encode() for item in chunks]
    return b"".join([*events, b"data: [DONE]\n\n"])


class Tokenizer:
    def __init__(self) -> None:
        self.decoded: list[tuple[list[int], dict[str, Any]]] = []

    def encode(self, text: str, add_special_tokens: bool = True) -> list[int]:
        assert not add_special_tokens
        return list(PROMPT)

    def decode(self, token_ids: list[int], **options: Any) -> str:
        self.decoded.append((list(token_ids), options))
        return "".join(f"({token})" for token in token_ids)


class Client:
    """Knows ``stream`` and nothing else, with exactly these arguments."""

    def __init__(self, *responses: Any) -> None:
        self.responses = list(responses)
        self.requests: list[tuple[str, dict[str, Any], dict[str, str] | None]] = []
        self.closed = 0

    @asynccontextmanager
    async def stream(self, method: str, url: str, json: Any, headers: Any) -> AsyncIterator[Any]:
        assert method == "POST"
        # As a client does: what is sent is what it was when it was sent.
        self.requests.append((url, _frozen(json), headers))
        try:
            yield self.responses.pop(0)
        finally:
            self.closed += 1


def _frozen(value: Any) -> Any:
    return json.loads(json.dumps(value))


def lines_response(chunks: Iterable[Any], *, status_error: Exception | None = None) -> Any:
    """Has ``raise_for_status`` and ``aiter_lines``, and nothing else."""

    async def lines() -> AsyncIterator[str]:
        for item in chunks:
            if isinstance(item, Exception):
                raise item
            yield item if isinstance(item, str) else f"data: {json.dumps(item)}"

    return SimpleNamespace(raise_for_status=_raiser(status_error), aiter_lines=lines)


def bytes_response(chunks: Iterable[Any], *, cut: int = 0, name: str = "aiter_bytes") -> Any:
    """Offers bytes, in reads of ``cut`` or all at once."""
    body = body_of(chunks)

    async def reads() -> AsyncIterator[bytes]:
        for at in range(0, len(body), cut or len(body)):
            yield body[at : at + (cut or len(body))]

    return SimpleNamespace(raise_for_status=_raiser(None), **{name: reads})


def _raiser(error: Exception | None) -> Callable[[], None]:
    def raise_for_status() -> None:
        if error is not None:
            raise error

    return raise_for_status


RESPONSES: dict[str, Callable[[Iterable[Any]], Any]] = {
    "lines": lines_response,
    "bytes": bytes_response,
    "bytes cut": lambda chunks: bytes_response(chunks, cut=7),
    "raw bytes": lambda chunks: bytes_response(chunks, name="aiter_raw"),
}
