"""Streams gone wrong, as strategies: events that are lost, doubled or swapped, fields that change, bytes that flip.

What a mutation does is random; what the result must be is the tests' business.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from hypothesis import strategies as st

from ssefold.transports.testing import PROFILES, Profile
from tests.core.corpus import Case, cases

if TYPE_CHECKING:
    from hypothesis.strategies import DrawFn, SearchStrategy

ODD_VALUES: tuple[Any, ...] = (
    None, True, False, 0, 1, -1, 2, 7, 2**31, 2**63, 2**64, 10**400, 0.0, -0.0, 0.5, 1.0, 1e308, "", "x", "1", [], {},
    [None], [[]], [[-0.5, 1, None]], [0], [-1], ["a"], [1.0], [1.5], [2**70], {"type": "stop"}, {"a": {"b": [1]}},
)  # fmt: skip
"""Values that are never, or hardly ever, what a field should be."""

_ENCODER = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"))
DONE = b"[DONE]"


def some_cases(*names: str, profiles: tuple[Profile, ...] = tuple(PROFILES.values())) -> SearchStrategy[Case]:
    """A body of the corpus, by any server."""

    def of(profile: Profile) -> SearchStrategy[Case]:
        return st.sampled_from([case for case in cases(profile) if not names or case.name in names])

    return st.sampled_from(profiles).flatmap(of)


def event(payload: bytes) -> bytes:
    """One event of one data line."""
    return b"data: " + payload + b"\n\n"


def payload_of(data: bytes) -> bytes:
    """The payload of an event that SGLang framed."""
    assert data.startswith(b"data: ")
    assert data.endswith(b"\n\n")
    return data[6:-2]


@st.composite
def reordered(draw: DrawFn, events: list[bytes]) -> list[bytes]:
    """Some events are dropped, doubled, or sent late."""
    events = list(events)
    for _ in range(draw(st.integers(1, 3))):
        if not events:
            break
        at = draw(st.integers(0, len(events) - 1))
        what = draw(st.sampled_from(("drop", "double", "late", "swap", "repeat all")))
        if what == "drop":
            del events[at]
        elif what == "double":
            events.insert(at, events[at])
        elif what == "late":
            moved = events.pop(at)
            events.insert(draw(st.integers(0, len(events))), moved)
        elif what == "swap":
            other = draw(st.integers(0, len(events) - 1))
            events[at], events[other] = events[other], events[at]
        else:
            events[at:at] = events[: at + 1]
    return events


@st.composite
def edited(draw: DrawFn, events: list[bytes]) -> list[bytes]:
    """One or two payloads are changed as JSON: a value, a type, a name, an order."""
    events = list(events)
    chunks = {at: payload for at, data in enumerate(events) if (payload := _parsed(payload_of(data))) is not None}
    for _ in range(draw(st.integers(1, 2)) if chunks else 0):
        at = draw(st.sampled_from(sorted(chunks)))
        payload = chunks[at]
        draw(_edit(payload))
        events[at] = event(_ENCODER.encode(payload).encode("utf-8", "replace"))
    return events


def _parsed(payload: bytes) -> dict[str, Any] | None:
    try:
        parsed = json.loads(payload)
    except ValueError:
        return None
    return parsed if isinstance(parsed, dict) else None


@st.composite
def _edit(draw: DrawFn, payload: dict[str, Any]) -> None:
    holder: Any = payload
    if draw(st.integers(0, 3)) and isinstance(payload.get("meta_info"), dict):
        holder = payload["meta_info"]
    while True:
        keys = list(holder) if isinstance(holder, dict) else list(range(len(holder)))
        if not keys:
            holder.update(new=1) if isinstance(holder, dict) else holder.append(1)
            return
        key = draw(st.sampled_from(keys))
        value = holder[key]
        if isinstance(value, (list, dict)) and value and draw(st.booleans()):
            holder = value
            continue
        _CHANGES[draw(st.sampled_from(sorted(_CHANGES)))](draw, holder, key)
        return


def _set(draw: DrawFn, holder: Any, key: Any) -> None:
    holder[key] = draw(st.sampled_from(ODD_VALUES))


def _near(draw: DrawFn, holder: Any, key: Any) -> None:
    """A number or text that is only a little wrong."""
    value = holder[key]
    if isinstance(value, (int, float)):
        difference = draw(st.sampled_from((-1, 1, 2, 5, 0.5)))
        holder[key] = value + (difference if abs(value) < 2**64 else 1)  # 10**400 and a half is no float
    elif isinstance(value, str):
        holder[key] = value[: draw(st.integers(0, len(value)))] + draw(st.sampled_from(("", "a", "\\", '"', "\u2028")))
    elif isinstance(value, list) and value:
        holder[key] = draw(st.sampled_from((value[:-1], value[1:], value + value[-1:], value[::-1])))
    else:
        holder[key] = draw(st.sampled_from(ODD_VALUES))


def _remove(draw: DrawFn, holder: Any, key: Any) -> None:
    del holder[key]


_NAMES = ("x", "error", "index", "text", "output_ids", "meta_info", "completion_tokens")


def _rename(draw: DrawFn, holder: Any, key: Any) -> None:
    if isinstance(holder, dict):
        holder[draw(st.sampled_from((*_NAMES, key.upper())))] = holder.pop(key)
    else:
        holder.append(holder[key])


def _shuffle(draw: DrawFn, holder: Any, key: Any) -> None:
    if isinstance(holder, dict):
        items = draw(st.permutations(list(holder.items())))
        holder.clear()
        holder.update(items)
    else:
        holder.reverse()


_CHANGES: dict[str, Callable[[DrawFn, Any, Any], None]] = {
    "set": _set, "set again": _set, "near": _near, "near again": _near, "remove": _remove, "rename": _rename,
    "shuffle": _shuffle,
}  # fmt: skip


@st.composite
def respelled(draw: DrawFn, events: list[bytes]) -> list[bytes]:
    """Payloads are written differently as bytes: spaces, escapes, twice the same key, cuts, flips, other numbers."""
    events = list(events)
    chunks = [at for at, data in enumerate(events) if payload_of(data) != DONE]
    for _ in range(draw(st.integers(1, 2)) if chunks else 0):
        at = draw(st.sampled_from(chunks))
        payload = payload_of(events[at])
        events[at] = event(_SPELLINGS[draw(st.sampled_from(sorted(_SPELLINGS)))](draw, payload))
    return events


def _place(draw: DrawFn, payload: bytes, part: bytes) -> int | None:
    places = [at for at in range(len(payload)) if payload.startswith(part, at)]
    return draw(st.sampled_from(places)) if places else None


def _flip(draw: DrawFn, payload: bytes) -> bytes:
    if not payload:  # cut away by a mutation before this one
        return payload
    at = draw(st.integers(0, len(payload) - 1))
    return payload[:at] + bytes([draw(st.integers(0, 255))]) + payload[at + 1 :]


def _cut_out(draw: DrawFn, payload: bytes) -> bytes:
    start = draw(st.integers(0, len(payload)))
    return payload[:start] + payload[start + draw(st.integers(1, 40)) :]


def _insert(draw: DrawFn, payload: bytes) -> bytes:
    part = draw(st.sampled_from(PARTS))
    at = draw(st.integers(0, len(payload)))
    return payload[:at] + part + payload[at:]


def _insert_behind_comma(draw: DrawFn, payload: bytes) -> bytes:
    at = _place(draw, payload, b",")
    part = draw(st.sampled_from(PARTS))
    return payload if at is None else payload[: at + 1] + part + payload[at + 1 :]


def _space(draw: DrawFn, payload: bytes) -> bytes:
    at = _place(draw, payload, draw(st.sampled_from((b":", b",", b"[", b"]", b"}", b"{"))))
    if at is None:
        return payload
    at += draw(st.integers(0, 1))
    return payload[:at] + draw(st.sampled_from((b" ", b"\t", b"  ", b"\r", b"\x0b"))) + payload[at:]


def _escape(draw: DrawFn, payload: bytes) -> bytes:
    """One letter is written as an escape: in a text the same JSON, elsewhere none."""
    if not payload:
        return payload
    at = draw(st.integers(0, len(payload) - 1))
    if not payload[at : at + 1].isalpha():
        return payload
    return payload[:at] + b"\\u%04x" % payload[at] + payload[at + 1 :]


def _other_number(draw: DrawFn, payload: bytes) -> bytes:
    old, new = draw(st.sampled_from(_NUMBERS))
    at = _place(draw, payload, old)
    return payload if at is None else payload[:at] + new + payload[at + len(old) :]


def _doubled_range(draw: DrawFn, payload: bytes) -> bytes:
    start = draw(st.integers(0, len(payload)))
    end = draw(st.integers(start, min(len(payload), start + 60)))
    return payload[:end] + payload[start:end] + payload[end:]


PARTS = (
    b'"zz":1,', b'"text":"evil",', b'"output_ids":[9,9],', b'"output_ids":[],', b'"completion_tokens":1,',
    b'"index":0,',
    b'"error":null,', b'"error":"x",', b'"meta_info":{},', b'"meta_info":null,', b'{"output_token_logprobs":[', b"[",
    b'"output_token_logprobs":[[-0.5,9,null]],', b'"a":{"text":"t","output_ids":[1]},', b'"te\\u0078t":"evil",', b"]",
    b'","output_ids":[1],"x":"', b'\\","output_ids":[1],"x":"', b"\\", b'"', b",", b"null", b"NaN", b"1e999", b"\xff",
    b"\xc3", b"\xed\xa0\x80", b"\\ud800", b"\n", b"\r", b"\x00", b"{", b"}", b'"output_token_logprobs_length":7.0,',
    b'"finish_reason":{"type":"stop"},', b'"meta_info":{"completion_tokens":3},',
)  # fmt: skip
_NUMBERS = (
    (b"0.0", b"-0.0"), (b"-0.0", b"0.0"), (b"-0.0", b"-0"), (b"-0.5", b"-0.50"), (b"-1e-7", b"-1e-07"), (b"1", b"1.0"),
    (b"-13.5", b"-135e-1"), (b"101", b"1.01e2"), (b"102", b"0102"), (b"null", b"0.0"), (b"103", b"true"), (b"1", b"01"),
    (b"-0.11968021094799042", b"-0.119680210947990421"), (b"-0.11968021094799042", b"-0.11968021094799043"), (b"7",
    b"8"),
)  # fmt: skip
_SPELLINGS: dict[str, Callable[[DrawFn, bytes], bytes]] = {
    "flip": _flip, "cut": _cut_out, "insert": _insert, "insert a member": _insert_behind_comma, "space": _space,
    "escape": _escape, "number": _other_number, "range": _doubled_range,
}  # fmt: skip


def mutated(events: list[bytes]) -> SearchStrategy[list[bytes]]:
    """Any of it."""
    return st.one_of(reordered(events), edited(events), respelled(events))
