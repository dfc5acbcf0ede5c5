"""The bodies that are measured are SGLang's: keys, order and numbers as recorded, and the same bytes in every run."""

from __future__ import annotations

import itertools
import json
import struct
from dataclasses import replace
from functools import cache
from typing import Any

import pytest

from ssefold.transports.testing import PROFILES, Finish, Script, encode
from tests.benchmarks.bodies import (
    CUMULATIVE,
    DONE,
    INCREMENTAL,
    MIXED_0_5_5,
    MIXED_0_5_10,
    Answer,
    Form,
    blocks,
    body_of,
    counts_of,
    events,
    events_of_size,
    interleaved,
    make_answer,
    number,
)
from tests.truth.recorded import Recorded, captures


@cache
def capture(name: str) -> Recorded:
    [found] = [one for one in captures() if one.name == name]
    return found


def payload_of(event: bytes) -> dict[str, Any]:
    assert event.startswith(b"data: ")
    assert event.endswith(b"\n\n")
    found: dict[str, Any] = json.loads(event[6:-2])
    return found


@pytest.mark.parametrize(
    ("name", "incremental", "index"),
    [
        ("cum_si1__unicode", False, None),
        ("inc_si1__long2000", True, None),
        ("cum_si1__batch2", False, 0),
        ("inc_si8__batch2", True, 1),
    ],
)
def test_keys_stand_in_the_recorded_order(name: str, incremental: bool, index: int | None) -> None:
    recorded = capture(name)
    wanted = _keys(recorded.payloads, index)
    made = [payload_of(event) for event in events(make_answer(9), range(1, 10), incremental=incremental, index=index)]
    assert _keys(made, index) == wanted


def _keys(payloads: list[dict[str, Any]], index: int | None) -> dict[str, tuple[list[str], list[str]]]:
    """Keys at the top and in meta_info, of an output's first, middle and last chunk."""
    own = [payload for payload in payloads if payload.get("index") == index]
    found = {"first": own[0], "last": own[-1]} | ({"middle": own[len(own) // 2]} if len(own) > 2 else {})
    return {place: (list(payload), list(payload["meta_info"])) for place, payload in found.items()}


def test_routed_experts_stand_where_they_were_recorded() -> None:
    recorded = capture("inc_si8__routed_experts_start2")
    *_, last = events(make_answer(3), [1, 3], incremental=True, routed_experts="AAAA")
    keys = [key for key in payload_of(last)["meta_info"] if "logprob" not in key]
    assert keys == list(recorded.payloads[-1]["meta_info"])


@pytest.mark.parametrize(
    ("form", "server"),
    [
        (CUMULATIVE, "0.5.23"),
        (INCREMENTAL, "0.5.23-incremental"),
        (replace(CUMULATIVE, top=2), "0.5.23"),
        (replace(INCREMENTAL, rows=None), "0.5.23-incremental"),
        (replace(CUMULATIVE, text=None), "0.5.23-tokens_only"),
        (MIXED_0_5_5, "0.5.5"),
        (MIXED_0_5_10, "0.5.10-incremental"),
    ],
)
def test_every_form_has_the_keys_and_lanes_of_its_server(form: Form, server: str) -> None:
    answer = make_answer(9)
    top = tuple(((-0.5, 1), (-0.25, 2)) for _ in answer.ids)
    script = Script(
        token_ids=answer.ids,
        pieces=tuple(piece.encode() for piece in answer.pieces),
        finish=Finish.length(9),
        logprobs=answer.logprobs if form.rows else None,
        top_logprobs=top if form.top else None,
    )
    wanted = [one.payload for one in encode(script, PROFILES[server]).sent if one.payload is not None]
    made = [payload_of(event) for event in events(answer, range(1, 10), form=form)]
    assert [_form_of(payload) for payload in made] == [_form_of(payload) for payload in wanted]


def _form_of(payload: dict[str, Any]) -> tuple[list[str], list[str], Any, Any, list[Any]]:
    meta = payload["meta_info"]
    rows = meta.get("output_token_logprobs", [])
    tops = [len(one) for one in meta.get("output_top_logprobs", [])]
    return list(payload), list(meta), payload.get("text"), payload["output_ids"], [rows, tops]


def test_counts_are_those_of_the_recorded_intervals() -> None:
    for name, interval in (("cum_si8__unicode", 8), ("cum_si1__logprob_top2", 1)):
        counts = [payload["meta_info"]["completion_tokens"] for payload in capture(name).payloads]
        assert counts_of(counts[-1], interval) == counts


@pytest.mark.parametrize("incremental", [False, True])
def test_every_byte_is_as_orjson_writes_it(incremental: bool) -> None:
    orjson = pytest.importorskip("orjson", reason="SGLang writes with orjson")
    for event in itertools.chain(
        events(make_answer(400), [1, 200, 400], incremental=incremental), events_of_size(200, 1)
    ):
        payload = event[6:-2]
        assert orjson.dumps(orjson.loads(payload)) == payload


def test_numbers_are_as_recorded() -> None:
    recorded = capture("inc_si1__long2000")
    shortest = json.dumps(
        [row for payload in recorded.payloads for row in payload["meta_info"]["output_token_logprobs"]]
    )
    found = {value for value, _, _ in json.loads(shortest)}
    assert len(found) > 100
    assert all(number(value) in recorded.body for value in found)


def test_an_answer_is_the_same_every_time() -> None:
    assert make_answer(50) == make_answer(50)
    assert make_answer(50) != make_answer(50, seed=1)
    assert list(body_of(make_answer(50))) == list(body_of(make_answer(50)))


def test_logprobs_are_float32() -> None:
    values = make_answer(500).logprobs
    assert all(struct.unpack("f", struct.pack("f", value))[0] == value for value in values)
    assert min(values) < -1 < -1e-3 < max(values) <= 0


def test_answers_hold_what_makes_text_hard() -> None:
    text = make_answer(2000).text
    assert all(character in text for character in ('"', "\\", "\n", "\u2013", "\u00e9"))


@pytest.mark.parametrize("interval", [1, 8, 20])
def test_both_modes_say_the_same(interval: int) -> None:
    answer = make_answer(45)
    counts = counts_of(45, interval)
    known = Answer((), (), ())
    deltas = events(answer, counts, incremental=True)
    for whole, delta in zip(
        map(payload_of, events(answer, counts, incremental=False)), map(payload_of, deltas), strict=True
    ):
        rows = delta["meta_info"]["output_token_logprobs"]
        known = Answer(
            (*known.ids, *delta["output_ids"]),
            (*known.logprobs, *(row[0] for row in rows)),
            (*known.pieces, delta["text"]),
        )
        assert (whole["text"], tuple(whole["output_ids"])) == (known.text, known.ids)
        assert [row[:2] for row in whole["meta_info"]["output_token_logprobs"]] == [
            list(pair) for pair in zip(known.logprobs, known.ids, strict=True)
        ]
        assert len(known.ids) == whole["meta_info"]["completion_tokens"] == delta["meta_info"]["completion_tokens"]
    assert (known.ids, known.logprobs, known.text) == (answer.ids, answer.logprobs, answer.text)


@pytest.mark.parametrize("size", [1, 7, 64, 1000, 10**6])
@pytest.mark.parametrize("block", [1, 100, 5000, 10**6])
def test_blocks_hold_the_same_bytes_in_reads_of_the_size(size: int, block: int) -> None:
    body = list(body_of(make_answer(12)))
    reads = [data for part in blocks(body, size, block) for data in part]
    assert b"".join(reads) == b"".join(body)
    assert all(len(data) == size for data in reads[:-1])
    assert [data for part in blocks(body, None, block) for data in part] == body


def test_outputs_take_turns() -> None:
    answers = [make_answer(5, seed=seed) for seed in range(3)]
    *chunks, done = interleaved(answers)
    assert done == DONE
    assert [payload_of(event)["index"] for event in chunks] == [0, 1, 2] * 5
    assert [tuple(payload_of(event)["output_ids"]) for event in chunks[-3:]] == [answer.ids for answer in answers]


@pytest.mark.parametrize("size", [200, 1000, 20_000, 500_000])
def test_events_are_of_the_size_asked_for(size: int) -> None:
    made = events_of_size(size, 3 * size)
    assert [len(event) for event in made] == [size] * 3
    assert payload_of(made[0])["text"].strip(".")
