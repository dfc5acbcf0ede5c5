"""Real streams with a few things changed: the bytes of a fuzzer read as a list of changes.

Random bytes hardly ever are JSON, so what a fuzzer invents is spent here on decisions: which stream, which event, what
to do to it.  The same bytes always give the same stream.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

from ssefold import SSEParser

_DATA = Path(__file__).parents[1] / "data"
_LARGEST = 40_000
VALUES: tuple[Any, ...] = (
    None, True, False, 0, -1, 1, 2, 2**31, 2**63, 2**70, 1e300, -0.0, 0.5, "", "x", "\ud800", [], [[]], {}, [0], [None],
    [[-0.5, 5, None]], [[None, 5]], [[0.5, 5.0, "t"]], {"type": "stop"}, {"type": "abort", "message": "m"}, "length",
    {"type": "abort", "status_code": 503}, {"type": 1}, "AAAAAA==", "AAAA", "!", [[1, 2], [3]], {"message": "bad"},
)  # fmt: skip
KEYS = (
    "text", "output_ids", "meta_info", "index", "error", "finish_reason", "completion_tokens", "prompt_tokens",
    "output_token_logprobs", "output_token_logprobs_length", "output_top_logprobs", "input_token_logprobs", "id",
    "weight_version", "dp_rank", "top_p_token_ids", "top_p_token_offsets", "routed_experts", "extra",
)  # fmt: skip


@cache
def bodies() -> list[bytes]:
    """The recorded streams that are small enough to be folded thousands of times, in a fixed order."""
    paths = sorted((_DATA / "streams").glob("*.sse")) + sorted((_DATA / "captures").glob("*.sse"))
    found = [path.read_bytes() for path in paths]
    return [body for body in found if body.startswith(b"data:") and len(body) <= _LARGEST]


def mutated(data: bytes) -> bytes:
    """The stream that ``data`` describes."""
    source = iter(data)

    def take(most: int) -> int:
        return next(source, 0) % most

    stream = bodies()[(take(256) * 256 + take(256)) % len(bodies())]
    events = [event.data_bytes for event in SSEParser().feed(stream)]
    for _ in range(take(6) + 1):
        _CHANGES[take(len(_CHANGES))](events, take)
    return b"".join(b"data: %s\n\n" % event for event in events)


Take = Callable[[int], int]


def _drop(events: list[bytes], take: Take) -> None:
    if events:
        del events[take(len(events))]


def _double(events: list[bytes], take: Take) -> None:
    if events:
        at = take(len(events))
        events.insert(at, events[at])


def _swap(events: list[bytes], take: Take) -> None:
    if len(events) > 1:
        at = take(len(events) - 1)
        events[at], events[at + 1] = events[at + 1], events[at]


def _set_value(events: list[bytes], take: Take) -> None:
    _edit(events, take, lambda at: at.__setitem__(KEYS[take(len(KEYS))], VALUES[take(len(VALUES))]))


def _remove_key(events: list[bytes], take: Take) -> None:
    _edit(events, take, lambda at: at.pop(KEYS[take(len(KEYS))], None))


def _count(events: list[bytes], take: Take) -> None:
    """A counter that is off by a little."""

    def change(at: dict[str, Any]) -> None:
        key = ("completion_tokens", "output_token_logprobs_length", "prompt_tokens")[take(3)]
        if type(at.get(key)) is int:
            at[key] += take(5) - 2

    _edit(events, take, change, inner=True)


def _list(events: list[bytes], take: Take) -> None:
    """An element of a list gone, doubled or changed."""

    def change(at: dict[str, Any]) -> None:
        lists = [value for value in at.values() if type(value) is list and value]
        if lists:
            chosen = lists[take(len(lists))]
            place = take(len(chosen))
            what = take(3)
            if what == 0:
                del chosen[place]
            elif what == 1:
                chosen.insert(place, chosen[place])
            else:
                chosen[place] = VALUES[take(len(VALUES))]

    _edit(events, take, change, inner=bool(take(2)))


def _byte(events: list[bytes], take: Take) -> None:
    if events:
        at = take(len(events))
        raw = bytearray(events[at])
        if raw:
            raw[(take(256) * 256 + take(256)) % len(raw)] = take(256)
        events[at] = bytes(raw.replace(b"\n", b" ").replace(b"\r", b" "))


def _respell(events: list[bytes], take: Take) -> None:
    """The same JSON written in another way."""
    if events:
        at = take(len(events))
        try:
            value = json.loads(events[at])
        except ValueError:
            return
        how = take(3)
        if how == 0:
            events[at] = json.dumps(value).encode()
        elif how == 1:
            events[at] = json.dumps(value, separators=(",", ":")).encode()
        else:
            events[at] = json.dumps(value, ensure_ascii=False, separators=(",", ":"), sort_keys=True).encode(
                errors="replace"
            )


_CHANGES: tuple[Callable[[list[bytes], Take], None], ...] = (
    _drop, _double, _swap, _set_value, _remove_key, _count, _list, _byte, _respell,
)  # fmt: skip


def _edit(
    events: list[bytes], take: Take, change: Callable[[dict[str, Any]], Any], *, inner: bool | None = None
) -> None:
    if not events:
        return
    at = take(len(events))
    try:
        chunk = json.loads(events[at])
    except ValueError:
        return
    if type(chunk) is not dict:
        return
    meta = chunk.get("meta_info")
    if (bool(take(2)) if inner is None else inner) and type(meta) is dict:
        change(meta)
    else:
        change(chunk)
    events[at] = json.dumps(chunk, ensure_ascii=False, separators=(",", ":")).encode(errors="surrogatepass")
