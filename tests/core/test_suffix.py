"""What ``suffix.py`` argues with, attacked by hand: bytes made so that a careless cutter would believe them.

Each case is a stream that settles, and then a payload with a trap in it.  The short way may take it or leave it, but
what comes out must be what the full parse gives, and that is written down where it can be.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from itertools import product
from typing import Any

import pytest

from ssefold import Accumulator, ProtocolError
from ssefold.fast.steady import fold_steady
from ssefold.fast.step import learn_step, read_step
from ssefold.fast.suffix import SuffixCutter
from ssefold.fold.payload import parse_payload
from ssefold.transports.testing import CUMULATIVE, INCREMENTAL, PROFILES, eager, encode, interval_sends
from tests.core.by_hand import fold
from tests.core.corpus import finite, scored
from tests.core.mutations import event, payload_of
from tests.core.short_ways import EAGER, short_ways
from tests.core.test_fast_path import same_as_long_way

_TOKENS = 16
_AT = 10
STREAMS = {
    "cumulative": encode(scored(_TOKENS), CUMULATIVE).events,
    "settled": encode(finite(_TOKENS), CUMULATIVE).events,
    "incremental": encode(scored(_TOKENS), INCREMENTAL).events,
    "listed": encode(finite(_TOKENS), INCREMENTAL, listed=True).events,
    "old": encode(scored(_TOKENS), PROFILES["0.5.5"]).events,
}


def chunk(tokens: int, *, rows: bool = False, **meta: Any) -> bytes:
    """A cumulative chunk by hand."""
    told: dict[str, Any] = {"id": "r", "finish_reason": None, "prompt_tokens": 3, "weight_version": "v"}
    told.update(meta)
    if rows:
        told["output_token_logprobs"] = [[-0.5, at, None] for at in range(tokens)]
        told["output_token_logprobs_length"] = tokens
    told |= {"completion_tokens": tokens, "dp_rank": None}
    text = "".join(chr(97 + at % 26) for at in range(tokens))
    payload = {"text": text, "output_ids": list(range(tokens)), "meta_info": told}
    return event(json.dumps(payload, separators=(",", ":")).encode())


def _replaced(old: bytes, new: bytes, count: int = 1) -> Callable[[bytes], bytes]:
    def change(payload: bytes) -> bytes:
        assert old in payload
        return payload.replace(old, new, count)

    return change


def _at_the_last(old: bytes, new: bytes) -> Callable[[bytes], bytes]:
    def change(payload: bytes) -> bytes:
        head, found, tail = payload.rpartition(old)
        assert found
        return head + new + tail

    return change


_COUNTER = re.compile(rb'("completion_tokens":)([0-9]+)')
#: The last id but one: with the new one behind it, the last of those known.
_GROWN = re.compile(rb"(\d)(,\d+\],\"meta_info\")")
TRAPS: dict[str, Callable[[bytes], bytes]] = {
    # keys twice, in front, behind, and inside other objects
    "text again in front": _replaced(b'{"text":', b'{"text":"evil","text":'),
    "text again behind": _at_the_last(b"}", b',"text":"evil"}'),
    "ids again in front": _replaced(b'"output_ids":', b'"output_ids":[9,9],"output_ids":'),
    "ids again behind": _at_the_last(b"}", b',"output_ids":[1,2]}'),
    "meta_info again behind": _at_the_last(b"}", b',"meta_info":{"completion_tokens":3}}'),
    "meta_info again in front": _replaced(b'"meta_info":', b'"meta_info":{"x":[1]},"meta_info":'),
    "rows again": _replaced(b'"completion_tokens"', b'"output_token_logprobs":[],"completion_tokens"'),
    "counter again": _replaced(b'"cached_tokens":4', b'"cached_tokens":4,"completion_tokens":3'),
    "key by an escape": _replaced(b'"output_ids":', b'"output_id\\u0073":[9],"output_ids":'),
    "key only by an escape": _replaced(b'"output_ids":', b'"output_id\\u0073":'),
    "text key by an escape behind": _at_the_last(b"}", b',"te\\u0078t":"evil"}'),
    "keys inside an object": _replaced(b'"meta_info":', b'"x":{"text":"t","output_ids":[1]},"meta_info":'),
    "keys inside an object of meta_info": _replaced(
        b'"completion_tokens"', b'"x":{"output_token_logprobs":[[0.0,1,null]],"y":1},"completion_tokens"'
    ),
    "rows inside an object only": _replaced(b'"output_token_logprobs":', b'"x":{"y":1},"output_token_logprobz":'),
    # keys inside strings
    "a key in a string": _replaced(b'"id":"r1"', b'"id":",\\"output_ids\\":[9],"'),
    "a key as a string": _replaced(b'"id":"r1"', b'"id":"output_ids"'),
    "a key as a string value in meta": _replaced(b'"weight_version":"default"', b'"weight_version":"text"'),
    "a key with its colon in a string": _replaced(b'"id":"r1"', b'"id":"\\"text\\":"'),
    "a backslash before the end": _replaced(b'","output_ids":', b'\\","output_ids":'),
    "the text ends in a backslash": _replaced(b'","output_ids":', b'\\\\","output_ids":'),
    "the text holds the next key": _replaced(b'","output_ids":', b'\\",\\"output_ids\\":[1],","output_ids":'),
    # numbers and values
    "an id grows by a digit": _replaced(b'],"meta_info"', b'1],"meta_info"'),
    "an id is a float": _replaced(b"[101,", b"[101.0,"),
    "an id is another": _replaced(b"[101,", b"[100,"),
    "a row is another": _replaced(b",101,null]", b",100,null]"),
    "a logprob is another": _replaced(b"[-0.11968021094799042,", b"[-0.11968021094799041,"),
    "minus zero is zero": _replaced(b"[-0.0,", b"[0.0,"),
    "a logprob is printed otherwise": _replaced(b"[-13.5,", b"[-1.35e1,"),
    "a text of a row changes": _replaced(b",101,null]", b',101,"a"]'),
    "a list closes too early": _replaced(b'],"meta_info"', b'],[1],"meta_info"'),
    "a list is nested": _replaced(b'],"meta_info"', b',[1]],"meta_info"'),
    "an object in a list": _replaced(b'],"meta_info"', b',{"a":1}],"meta_info"'),
    "rows moved into an object": lambda payload: (
        payload.replace(b',"output_token_logprobs":', b',"x":{"y":1,"output_token_logprobs":') + b"}"
    ),
    "the last known id grows by a digit": lambda payload: _GROWN.sub(rb"\g<1>1\2", payload),
    "a comma too many": _replaced(b'],"meta_info"', b',],"meta_info"'),
    "a comma and a space": _replaced(b'],"meta_info"', b', ],"meta_info"'),
    "a raw line feed in white space": _replaced(b'"meta_info"', b'\t"meta_info"'),
    "space behind a colon": _replaced(b'"output_ids":', b'"output_ids": '),
    "space before a colon": _replaced(b'"output_ids":', b'"output_ids" :'),
    "space in a list": _replaced(b"101,102", b"101, 102"),
    "not UTF-8 in the text": _replaced(b'{"text":"', b'{"text":"\xff'),
    "a raw control character": _replaced(b'","output_ids":', b'\x01","output_ids":'),
    "a lone surrogate": _replaced(b'","output_ids":', b'\\ud800","output_ids":'),
    "text null": lambda payload: b'{"text":null' + payload[payload.index(b',"output_ids"') :],
    "text a number": lambda payload: b'{"text":7' + payload[payload.index(b',"output_ids"') :],
    "no text": lambda payload: b"{" + payload[payload.index(b'"output_ids"') :],
    "ids null": _replaced(b'"output_ids":[', b'"output_ids":null,"x":['),
    "rows null": _replaced(b'"output_token_logprobs":[', b'"output_token_logprobs":null,"x":['),
    "meta_info null": _replaced(b'"meta_info":{', b'"meta_info":null,"x":{'),
    "an error beside the chunk": _at_the_last(b"}", b',"error":{"message":"evil"}}'),
    "a key more": _at_the_last(b"}", b',"prompt_token_ids":[1,2]}'),
    "a key more in front": _replaced(b'"meta_info":', b'"trace":null,"meta_info":'),
    "a key more in meta_info": _replaced(b'"dp_rank":', b'"trace":[1],"dp_rank":'),
    "a key less in meta_info": _replaced(b'"dp_rank":null', b'"dp_rang":null'),
    "an error that is null": _at_the_last(b"}", b',"error":null}'),
    "an index": _at_the_last(b"}", b',"index":0}'),
    "another index": _at_the_last(b"}", b',"index":1}'),
    "an index that is true": _at_the_last(b"}", b',"index":true}'),
    "an index that is 0.0": _at_the_last(b"}", b',"index":0.0}'),
    "an index that is false": _at_the_last(b"}", b',"index":false}'),
    "a length that is a float": _replaced(b'_length":', b'_length":1.0,"z":'),
    "a counter that is a float": lambda payload: _COUNTER.sub(rb"\1\2.0", payload),
    "a counter that is a string": lambda payload: _COUNTER.sub(rb'\1"\2"', payload),
    "a byte order mark": lambda payload: b"\xef\xbb\xbf" + payload,
    "two values": lambda payload: payload + b"{}",
    "cut": lambda payload: payload[:-1],
}


def _sprung() -> dict[str, list[bytes]]:
    """Each trap in each stream that has a place for it: three payloads in a row."""
    found: dict[str, list[bytes]] = {}
    for (stream, events), (name, change) in product(STREAMS.items(), TRAPS.items()):
        with suppress(AssertionError, ValueError):
            payloads = [event(change(payload_of(data))) for data in events[_AT : _AT + 3]]
            found[f"{stream}: {name}"] = payloads
    return found


@pytest.mark.parametrize(("where", "sprung"), _sprung().items(), ids=_sprung())
def test_traps(where: str, sprung: list[bytes]) -> None:
    """The trap comes once, or twice with a good payload between."""
    events = STREAMS[where.partition(":")[0]]
    once = [*events[:_AT], sprung[0], *events[_AT + 1 :]]
    twice = [*events[:_AT], sprung[0], events[_AT + 1], sprung[2], *events[_AT + 3 :]]
    with short_ways(EAGER):
        same_as_long_way(once)
        same_as_long_way([b"".join(once)])
        same_as_long_way(twice, on_bad_json="skip")


def test_every_trap_is_set_somewhere() -> None:
    assert {where.partition(": ")[2] for where in _sprung()} == set(TRAPS)


# ---- named regressions ----------------------------------------------------------------------------------------------


def test_small_payload_between_large_ones_keeps_the_text() -> None:
    """The cutter had not seen the small one, and took the length of its text for that of the last large one."""
    pads = ["p" * 1600, "p" * 1600, "p" * 1600, "", "p" * 1600, "p" * 1600]
    events = [chunk(tokens, pad=pad) for tokens, pad in enumerate(pads, 1)]
    assert fold(events).outputs[0].text() == "abcdef"
    same_as_long_way(events)


@pytest.mark.parametrize("profile", ["http-gateway-pd", "http-gateway-pd-incremental"])
def test_small_payload_between_large_ones_keeps_the_prompt_rows(profile: str) -> None:
    """A prefill-decode gateway passes some events on without the prompt's rows."""
    prompt = tuple((None if at == 0 else -0.25 * at, 900 + at) for at in range(90))
    body = encode(replace(scored(8), input_logprobs=prompt), PROFILES[profile], passed_through=(4,))
    told = [len(update.meta_info["input_token_logprobs"]) for update in fold(body.events).updates]
    assert told == [90, 90, 90, 90, 0, 90, 90, 90]
    same_as_long_way(body.events)


@pytest.mark.parametrize("rows", [False, True])
def test_what_repeats_and_is_cut_away_is_still_told(rows: bool) -> None:
    """Prompt rows were cut out as a constant, and the update then said that there are none."""
    prompt = [[-0.25 * at, 900 + at, None] for at in range(90)]
    events = [chunk(tokens, rows=rows, input_token_logprobs=prompt) for tokens in range(1, 9)]
    folded = fold(events)
    assert all(update.meta_info["input_token_logprobs"] == prompt for update in folded.updates)
    assert folded.outputs[0].meta_info["input_token_logprobs"] == prompt
    same_as_long_way(events)


def test_a_prompt_that_changes_is_told_as_it_is() -> None:
    one, two = ([[-0.25 * at, first + at, None] for at in range(90)] for first in (900, 500))
    events = [chunk(tokens, rows=True, input_token_logprobs=one if tokens < 5 else two) for tokens in range(1, 9)]
    assert fold(events).outputs[0].meta_info["input_token_logprobs"] == two
    same_as_long_way(events)


def test_ids_of_the_prompt_that_are_cut_away_are_kept() -> None:
    """They repeat whole in every payload, and stand beside meta_info, not in it."""
    ids = list(range(1000, 1090))
    events = [
        event(json.dumps({"prompt_token_ids": ids, **json.loads(payload_of(chunk(tokens)))}).encode())
        for tokens in range(1, 9)
    ]
    with short_ways(EAGER):
        assert fold(events).outputs[0].native_response()["prompt_token_ids"] == ids
        same_as_long_way(events)


def test_a_prompt_that_goes_on_is_told_as_it_is() -> None:
    """What never changed and was cut out whole has more behind it now."""
    prompt = [[-0.25 * at, 900 + at, None] for at in range(90)]
    parts = [prompt[:85]] * 3 + [prompt] * 4
    events = [chunk(tokens, rows=True, input_token_logprobs=part) for tokens, part in enumerate(parts, 1)]
    assert [len(update.meta_info["input_token_logprobs"]) for update in fold(events).updates] == [85] * 3 + [90] * 4
    same_as_long_way(events)


def test_the_short_way_is_taken() -> None:
    """Else all of this would compare the long way with itself."""
    body = encode(scored(120), CUMULATIVE).events
    cutter, output = SuffixCutter(), Accumulator()
    cuts = 0
    for data in body[:-2]:
        payload = payload_of(data)
        parsed = json.loads(payload)
        left = cutter.parse() if cutter.split(payload) else None
        output.add(parsed)
        if left is None:
            cutter.learn(payload, parsed, output.state)
        else:
            cuts += 1
            assert len(left["output_ids"]) == 1
            assert left["output_ids"] == parsed["output_ids"][-1:]
            assert left["meta_info"]["output_token_logprobs"] == parsed["meta_info"]["output_token_logprobs"][-1:]
    assert cuts > 100


def test_the_other_short_ways_are_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a settled incremental stream nearly all chunks skip the planning, and a long read the steps in Python."""
    events = encode(finite(100), INCREMENTAL).events
    folded: list[bool] = []

    def counted(*args: Any) -> Any:
        update = fold_steady(*args)
        folded.append(update is not None)
        return update

    monkeypatch.setattr("ssefold.outputs.fold_steady", counted)
    assert fold(events).error is None
    assert folded.count(True) > 90
    run = fold([b"".join(events[:5]), b"".join(events[5:])]).updates
    # Updates of a run carry their meta_info as it came.
    assert [type(tuple.__getitem__(update, 10)) for update in run].count(bytes) > 85


def test_one_token_more_is_read_without_a_parse() -> None:
    """Of a settled cumulative stream nearly all payloads give three values, and are kept unparsed."""
    events = encode(finite(200), CUMULATIVE).events
    updates = fold(events).updates
    kept = [tuple.__getitem__(update, 10) for update in updates]
    assert [type(one) for one in kept].count(bytes) > 150
    assert max(len(one) for one in kept if type(one) is bytes) < 1000  # without what repeats
    same_as_long_way(events)


def test_a_form_without_its_counts_is_not_learned() -> None:
    meta = b'"meta_info":{"output_token_logprobs_length":3,"output_token_logprobs":['
    pieces = [
        b'{"text":"',
        b"c",
        b'","output_ids":[',
        b"7",
        b"]," + meta,
        b"[-0.5,7,null]",
        b'],"completion_tokens":3}}',
    ]
    learned = learn_step(pieces, (1, 3, 5), 3, [])
    assert learned is not None
    assert read_step(learned, pieces, 3) == ("c", 7, -0.5)
    assert read_step(learned, pieces, 4) is None
    assert learn_step(pieces, (1, 3, 5), 4, []) is None
    for name in (b"completion_tokens", b"output_token_logprobs_length"):
        renamed = [piece.replace(name, b"tokens") for piece in pieces]
        assert learn_step(renamed, (1, 3, 5), 3, []) is None


def test_what_repeats_is_cut_from_every_payload(monkeypatch: pytest.MonkeyPatch) -> None:
    """The prompt's rows repeat in the first payload, where nothing tells yet that the others will, too."""
    left: list[int] = []

    def counted(payload: bytes) -> dict[str, Any]:
        left.append(len(payload))
        return parse_payload(payload)

    monkeypatch.setattr("ssefold.fast.suffix.parse_payload", counted)
    prompt = [[-0.25 * at, 900 + at, None] for at in range(90)]
    events = [chunk(tokens, rows=True, input_token_logprobs=prompt) for tokens in range(1, 60)]
    folded = fold(events)
    assert len(folded.outputs[0].token_ids) == 59
    assert len(left) > 50
    assert max(left) < 320
    same_as_long_way(events)


VALUES: dict[str, tuple[bytes, bytes, bytes]] = {
    "another text": (b'"', b"7", b"-0.5"),
    "text of two": (b'a","b', b"7", b"-0.5"),
    "text that swallows": (b'a",["b', b"7", b"-0.5]"),
    "text that swallows the id": (b'a",7,["b', b"7", b"-0.5]"),
    "text that is empty and a number": (b'",7,"', b"7", b"-0.5"),
    "text with an escape": (b"\\u00e9\\n", b"7", b"-0.5"),
    "text with a wrong escape": (b"\\q", b"7", b"-0.5"),
    "text that ends in a backslash": (b"\\", b"7", b"-0.5"),
    "text with half a surrogate": (b"\\ud800", b"7", b"-0.5"),
    "text that is no UTF-8": (b"\xff", b"7", b"-0.5"),
    "text with a tab": (b"\t", b"7", b"-0.5"),
    "text with a NUL": (b"\x00", b"7", b"-0.5"),
    "no id": (b"a", b"", b"-0.5"),
    "id with a zero": (b"a", b"07", b"-0.5"),
    "negative id": (b"a", b"-7", b"-0.5"),
    "id with a space": (b"a", b" 7", b"-0.5"),
    "id beyond int64": (b"a", b"9223372036854775808", b"-0.5"),
    "id beyond everything": (b"a", b"9" * 400, b"-0.5"),
    "id of two": (b"a", b"7,8", b"-0.5"),
    "id that is a float": (b"a", b"7.0", b"-0.5"),
    "id in other digits": (b"a", b"\xd9\xa7", b"-0.5"),
    "logprob null": (b"a", b"7", b"null"),
    "logprob a whole number": (b"a", b"7", b"-1"),
    "logprob with an exponent": (b"a", b"7", b"-1.5e-7"),
    "logprob with spaces": (b"a", b"7", b" -0.5 "),
    "logprob with an underscore": (b"a", b"7", b"-0_1.5"),
    "logprob NaN": (b"a", b"7", b"NaN"),
    "logprob 1e999": (b"a", b"7", b"1e999"),
    "logprob empty": (b"a", b"7", b""),
    "logprob a list": (b"a", b"7", b"[-0.5]"),
    "logprob a string": (b"a", b"7", b'"-0.5"'),
}


@pytest.mark.parametrize("name", VALUES)
def test_values_of_one_token_more(name: str) -> None:
    """What stands where a text, an id and a logprob are expected goes through the parser, whatever it is."""
    text, token_id, logprob = VALUES[name]
    events = encode(finite(_TOKENS), CUMULATIVE).events
    payload = json.loads(payload_of(events[_AT]))
    row = json.dumps(payload["meta_info"]["output_token_logprobs"][-1], separators=(",", ":")).encode()
    new_id = b"%d" % payload["output_ids"][-1]
    raw = payload_of(events[_AT])
    assert raw.count(b"," + row + b"]") == 1
    raw = raw.replace(b"," + row + b"]", b",[%s,%s,null]]" % (logprob, token_id))
    raw = raw.replace(b',%s],"meta_info"' % new_id, b',%s],"meta_info"' % token_id)
    end = raw.index(b'","output_ids"')
    raw = raw[:end] + text + raw[end:]
    with short_ways(EAGER):
        same_as_long_way([*events[:_AT], event(raw), *events[_AT + 1 :]], on_bad_json="skip")
        same_as_long_way([*events[:_AT], event(raw), *events[_AT + 1 :]])


@pytest.mark.parametrize("count", [b"10", b"12", b"011", b"11.0", b"-11", b" 11", b"", b"null"])
def test_counts_of_one_token_more(count: bytes) -> None:
    events = encode(finite(_TOKENS), CUMULATIVE).events
    raw = payload_of(events[_AT])
    for key in (b'"completion_tokens":', b'"output_token_logprobs_length":'):
        assert raw.count(key + b"11") == 1
        with short_ways(EAGER):
            same_as_long_way([*events[:_AT], event(raw.replace(key + b"11", key + count)), *events[_AT + 1 :]])
    both = raw.replace(b's":11', b's":' + count).replace(b'h":11', b'h":' + count)
    with short_ways(EAGER):
        same_as_long_way([*events[:_AT], event(both), *events[_AT + 1 :]])


@pytest.mark.parametrize("name", ["output_token_logprobs", "output_top_logprobs"])
def test_a_doubled_row_in_the_last_chunk_is_no_copy_in_front(name: str) -> None:
    """What was left out was taken for the known rows and for a second copy of the new ones: the chunk was accepted."""
    script = replace(finite(_TOKENS), top_logprobs=tuple(((-0.5, 7 + at),) for at in range(_TOKENS)))
    events = encode(script, PROFILES["0.5.5"], eager([interval_sends(_TOKENS, 3)])).events
    last = json.loads(payload_of(events[-2]))
    assert len(last["output_ids"]) == 3
    rows = last["meta_info"][name]
    rows.insert(-3, rows[-3])
    odd = [*events[:-2], event(json.dumps(last, separators=(",", ":"), ensure_ascii=False).encode()), events[-1]]
    with short_ways(EAGER):
        assert isinstance(fold(odd).error, ProtocolError)
        same_as_long_way(odd)


@pytest.mark.parametrize("known", [1, 2, 3])
@pytest.mark.parametrize("pending", [1, 2])
@pytest.mark.parametrize("rows", [True, False])
def test_aborts_that_repeat_one_token(known: int, pending: int, rows: bool) -> None:
    """One letter over and over: pending deltas in front look like what is known, and nothing may be left out there."""
    told: dict[str, Any] = {"id": "r", "finish_reason": None, "prompt_tokens": 3, "weight_version": "v"}
    total = known + pending

    def one(tokens: int, **more: Any) -> dict[str, Any]:
        meta = told | {"completion_tokens": tokens}
        if rows:
            meta |= {"output_token_logprobs": [[-0.5, 7, None]] * tokens, "output_token_logprobs_length": tokens}
        return {"text": "a" * tokens, "output_ids": [7] * tokens, "meta_info": meta} | more

    glued = one(total, text="a" * (pending + total), output_ids=[7] * (pending + 1))
    del glued["meta_info"]["prompt_tokens"]
    glued["meta_info"]["finish_reason"] = {"type": "abort", "message": "Abort"}
    if rows:
        glued["meta_info"]["output_token_logprobs"] = [[-0.5, 7, None]] * (pending + total)
    payloads = [*(one(tokens) for tokens in range(1, known + 1)), glued]
    events = [event(json.dumps(payload, separators=(",", ":")).encode()) for payload in payloads]
    with short_ways(EAGER):
        same_as_long_way(events)
