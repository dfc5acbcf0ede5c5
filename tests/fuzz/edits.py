"""One to three edits of a stream: of bytes or of parsed fields, in one event or from one event on.

An edit that stays for all later events is as important as one that does not: the fast path learns what stays.  Then the
events are framed, now and then oddly, and the body is cut into reads.
"""

from __future__ import annotations

import json
import random
import re
from collections.abc import Callable
from typing import Any

from ssefold import encode_event
from tests.core.mutations import ODD_VALUES, PARTS
from tests.fuzz.mutate import KEYS, VALUES

_ODD = ODD_VALUES + VALUES
_BYTES = (
    *PARTS, b"\\u", b"\\u0041", b"\\ud83d\\ude00", b"\\ude00", "\u2028".encode(), b"\xf0\x9f", b"\x98\x80", b" ", b"\t",
    b"\\\\", b'\\"', b"-0.0", b"-0", b"1E400", b"1e22", b"007", b"true", b"101.0", b"18446744073709551616", b"[", b"]",
    b"[]", b", ", b",,", b"[-0.5,9,null],", b",[-0.5,9,null]", b"9,", b",9", b'"index":1,', b"}", b'{"a":1}',
    b"9223372036854775808", b'"b"', b"\x7f", b"e5", b".5",
)  # fmt: skip
_NUMBER = re.compile(rb"-?[0-9]+(?:\.[0-9]+)?(?:[eE][-+]?[0-9]+)?")
_NUMBERS = (
    b"-0.0", b"-0", b"0", b"1E400", b"1e22", b"1e-400", b"007", b"true", b"null", b"101.0", b"1.01e2", b"3.", b"-",
    b"18446744073709551615", b"18446744073709551616", b"9223372036854775807", b"9223372036854775808",
    b"12345678901234567890123",
    b"0.1000000000000000055511151231257827", b"-1.5e+3", b"1E5", b'"7"', b"[]",
)  # fmt: skip

Where = Callable[[Callable[[bytes], bytes]], None]


def edited(chance: random.Random, events: list[bytes], edits: int) -> None:
    """Carry out so many edits."""
    for _ in range(edits):
        if not events:
            return
        if chance.random() < 0.15:
            _order(chance, events)
            continue
        first = chance.randrange(len(events))
        scope = chance.random()
        places = [first] if scope < 0.6 else range(first, len(events)) if scope < 0.85 else range(len(events))
        change = chance.choices(_CHANGES, _WEIGHTS)[0]
        seed = chance.random()
        for at in places:  # the same decisions for each event
            events[at] = change(random.Random(seed), events[at])


def _order(chance: random.Random, events: list[bytes]) -> None:
    at, other = chance.randrange(len(events)), chance.randrange(len(events))
    what = chance.randrange(5)
    if what == 0:
        del events[at]
    elif what == 1:
        events.insert(at, events[at])
    elif what == 2:
        events[at], events[other] = events[other], events[at]
    elif what == 3:
        events.insert(other, events.pop(at))
    else:
        events.insert(at, chance.choice((b"[DONE]", b"{}", b'{"error":{"message":"m"},"index":1}', b"x", b"", b"null",
                                         b'{"error":{"message":"m"}}', b'{"error":"m","index":0}')))  # fmt: skip


# ---- bytes ----------------------------------------------------------------------------------------------------------


def _place(chance: random.Random, event: bytes) -> int:
    """Anywhere; or just after something that has a meaning."""
    if chance.random() < 0.4:
        return chance.randrange(len(event) + 1)
    mark = chance.choice((b",", b":", b"[", b"]", b'"', b"}", b"null", b'"text":"', b'"output_ids":[', b'logprobs":['))
    found = [one.end() for one in re.finditer(re.escape(mark), event)]
    return chance.choice(found) - (chance.random() < 0.2) if found else chance.randrange(len(event) + 1)


def _flip(chance: random.Random, event: bytes) -> bytes:
    at = _place(chance, event)
    return event[:at] + bytes([chance.randrange(256)]) + event[at + 1 :]


def _insert(chance: random.Random, event: bytes) -> bytes:
    at = _place(chance, event)
    return event[:at] + chance.choice(_BYTES) + event[at:]


def _cut_out(chance: random.Random, event: bytes) -> bytes:
    at = _place(chance, event)
    return event[:at] + event[at + chance.choice((1, 1, 2, 5, 40)) :]


def _double(chance: random.Random, event: bytes) -> bytes:
    at = _place(chance, event)
    return event[:at] + event[at : at + chance.choice((1, 4, 18, 60))] + event[at:]


def _number(chance: random.Random, event: bytes) -> bytes:
    found = list(_NUMBER.finditer(event))
    if not found:
        return event
    one = chance.choice(found)
    new = chance.choice(_NUMBERS)
    if chance.random() < 0.4 and one[0].isdigit():
        new = b"%d" % max(int(one[0]) + chance.choice((-2, -1, 1, 2)), 0)
    return event[: one.start()] + new + event[one.end() :]


def _space(chance: random.Random, event: bytes) -> bytes:
    found = [one.end() for one in re.finditer(rb"[,:\[\]{}]", event)]
    at = chance.choice(found or [0])
    return event[:at] + chance.choice((b" ", b"\t", b"  ", b"\n", b"\r", b"\r\n", b"\x0b")) + event[at:]


# ---- fields ---------------------------------------------------------------------------------------------------------


def _field(chance: random.Random, event: bytes) -> bytes:
    try:
        payload = json.loads(event)
    except ValueError:
        return event
    if type(payload) is not dict:
        return event
    _FIELDS[chance.randrange(len(_FIELDS))](chance, *_holder(chance, payload))
    form: dict[str, Any] = (
        {} if chance.random() < 0.1 else {"separators": (",", ":"), "ensure_ascii": chance.random() < 0.1}
    )
    return json.dumps(payload, **form).encode("utf-8", "surrogatepass")


def _holder(chance: random.Random, holder: Any) -> tuple[Any, Any]:
    meta = holder.get("meta_info")
    if type(meta) is dict and chance.random() < 0.7:
        holder = meta
    while True:
        keys = list(holder) if isinstance(holder, dict) else list(range(len(holder)))
        if not keys:
            return holder, None
        key = chance.choice(keys)
        if isinstance(holder[key], (list, dict)) and chance.random() < 0.6:
            holder = holder[key]
            continue
        return holder, key


def _set(chance: random.Random, holder: Any, key: Any) -> None:
    if key is not None:
        holder[key] = chance.choice(_ODD)


def _near(chance: random.Random, holder: Any, key: Any) -> None:
    if key is None:
        return
    value = holder[key]
    if type(value) in (int, float) and abs(value) < 2**53:
        holder[key] = value + chance.choice((-1, 1, 2, 0.5))
    elif type(value) is str:
        cut = chance.randint(0, len(value))
        holder[key] = (
            value[:cut]
            + chance.choice(("", "a", "\\", '"', "\u2028", "\U0001f600", "é"))
            + value[cut + chance.randint(0, 1) :]
        )
    elif type(value) is list and value:
        holder[key] = chance.choice((value[:-1], value[1:], value + value[-1:], value[::-1], [], value * 2))
    else:
        holder[key] = chance.choice(_ODD)


def _remove(chance: random.Random, holder: Any, key: Any) -> None:
    if key is not None:
        del holder[key]


def _add(chance: random.Random, holder: Any, key: Any) -> None:
    if isinstance(holder, dict):
        holder[chance.choice((*KEYS, "x", "y"))] = chance.choice(_ODD)
    else:
        holder.insert(chance.randint(0, len(holder)), chance.choice(_ODD))


def _shuffle(chance: random.Random, holder: Any, key: Any) -> None:
    if isinstance(holder, dict):
        items = list(holder.items())
        chance.shuffle(items)
        holder.clear()
        holder.update(items)
    else:
        chance.shuffle(holder)


_FIELDS = (_set, _near, _near, _remove, _add, _shuffle)
_CHANGES = (_flip, _insert, _cut_out, _double, _number, _space, _field)
_WEIGHTS = (2, 4, 1, 1, 3, 1, 6)


# ---- frames and reads -----------------------------------------------------------------------------------------------


def framed(chance: random.Random, events: list[bytes]) -> list[bytes]:
    """The payloads as events; one body in three has odd frames, in some places or in all."""
    if chance.random() < 0.67:
        return [_plain(event) for event in events]
    how, rate = chance.randrange(len(_FRAMES)), chance.choice((0.1, 0.3, 1.0))
    found = [_FRAMES[how](event) if chance.random() < rate else _plain(event) for event in events]
    if chance.random() < 0.2:
        found.insert(0, b"\xef\xbb\xbf")
    return found


def _plain(event: bytes) -> bytes:
    return b"data: %s\n\n" % event


_FRAMES: tuple[Callable[[bytes], bytes], ...] = (
    lambda event: b"data: %s\r\n\r\n" % event,
    lambda event: b"data: %s\r\r" % event,
    lambda event: b"data:%s\n\n" % event,
    lambda event: b": keep-alive\n\n" + _plain(event),
    lambda event: _plain(event) + b": x\n",
    lambda event: b"event: message\n" + _plain(event),
    lambda event: b"event: other\n" + _plain(event),
    lambda event: b"event: error\n" + _plain(event),
    lambda event: b"id: 1\n" + _plain(event),
    lambda event: b"data: %s\nid: 2\n\n" % event,
    lambda event: b"data: %s\n\n\n" % event,
    lambda event: b"data: %s\n\r\n" % event,
    lambda event: b"data: %s\ndata: %s\n\n" % (event[: len(event) // 2], event[len(event) // 2 :]),
    lambda event: event.replace(b",", b",\n") and b"data: " + event.replace(b"\n", b"\ndata: ") + b"\n\n",
    lambda event: b"data: %s\ndata:\n\n" % event,
    lambda event: b"retry: 5\n" + _plain(event),
    lambda event: encode_event(event.decode("utf-8", "replace").replace("\r", " ")),
)  # fmt: skip


def reads(chance: random.Random, events: list[bytes]) -> list[bytes]:
    """The body as a caller may read it."""
    body = b"".join(events)
    how = chance.choice(("whole", "events", "events", "bytes", "cuts", "cuts", "large", "ends"))
    if how == "bytes" and len(body) > 6_000:
        how = "small"
    if how == "events" or not events:
        return events
    if how == "bytes":
        return [body[at : at + 1] for at in range(len(body))]
    if how == "cuts":
        places = sorted(chance.choices(range(len(body) + 1), k=chance.choice((1, 3, 10, 30))))
        return [body[start:end] for start, end in zip([0, *places], [*places, len(body)], strict=True)]
    if how == "ends":  # an event and the first bytes of the next one
        over = chance.choice((1, 2, 5, 6, 7, 20))
        parts = [event[over:] + following[:over] for event, following in zip(events, [*events[1:], b""], strict=True)]
        return [events[0][:over], *parts]
    size = {"whole": max(len(body), 1), "large": 65_536, "small": chance.choice((37, 97, 997))}[how]
    return [body[at : at + size] for at in range(0, len(body), size)]
