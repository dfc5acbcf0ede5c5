"""The encoder writes what real servers wrote, byte for byte."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from ssefold.transports.testing import dumps, encode, nonstream
from tests.truth import rebuild, recorded, stream_scripts
from tests.truth.vocabulary import vocabulary

STREAMS = {one.name: one for one in recorded.streams()}
CASES = {case.name: case for case in stream_scripts.cases()}
CAPTURES = {one.name: one for one in recorded.captures()}
RESPONSES = {one.name: one for one in recorded.captures(nonstream=True)}
PIECES = vocabulary([*CAPTURES.values(), *RESPONSES.values()])

# Written by hand from bytes that no server of ours sends: byte order mark, comments, other line ends.
NOT_OURS = {"39_generic_sse_noise"}
# Recorded behind the detokenizer, which is what puts the prompt's tail into the ids.
TAIL = (b'"output_ids":[13,14,15,16,17,101]', b'"output_ids":[101]')


def test_all_streams_are_made_again() -> None:
    assert CASES.keys() == STREAMS.keys() - NOT_OURS


@pytest.mark.parametrize("name", sorted(CASES))
def test_stream(name: str) -> None:
    made = CASES[name].body
    data = made.data.replace(*TAIL) if name.startswith("10_") else made.data
    assert data == STREAMS[name].body


@pytest.mark.parametrize("name", sorted(CASES))
def test_stream_truth(name: str) -> None:
    """What a perfect client holds at the end is what the facts beside the stream say."""
    made, facts = CASES[name].body, STREAMS[name].facts
    assert made.done == facts["done_seen"]
    assert (made.error or None) == facts["error"]
    for index, expected in facts["indices"].items():
        held = made.held[int(index)]
        assert held.complete == expected["complete"]
        assert list(held.token_ids) == expected["output_ids"]
        assert held.text == (expected["text"] or "")
        assert held.finish_reason == expected["finish_reason"]
        rows = expected["output_token_logprobs"]
        assert list(held.logprobs) == [row[0] for row in rows or ()]


@pytest.mark.parametrize("name", sorted(CAPTURES))
def test_capture(name: str) -> None:
    """Every event of the real server, with its key order, comes out of the script, the schedule and the flags alone."""
    one = CAPTURES[name]
    profile = rebuild.profile_of(one)
    if not one.facts["ground_truth"]:
        error = profile.error(one.payloads[0]["error"]["message"])
        body = encode(stream_scripts.HELLO, profile).failed(0, error)
        assert body.data == one.body
        return
    scripts = rebuild.scripts_of(one, PIECES, one.payloads)
    body = encode(scripts, profile, rebuild.schedule_of(one, scripts), listed="index" in one.payloads[0])
    for made, came in zip(body.payloads, one.payloads, strict=True):
        assert json.dumps(made) == json.dumps(came)
    assert body.data == one.body


@pytest.mark.parametrize("name", sorted(name for name, one in CAPTURES.items() if one.facts["ground_truth"]))
def test_capture_truth(name: str) -> None:
    """What a perfect client holds at the end is what the scheduler generated."""
    one = CAPTURES[name]
    scripts = rebuild.scripts_of(one, PIECES, one.payloads)
    body = encode(scripts, rebuild.profile_of(one), rebuild.schedule_of(one, scripts))
    for truth in one.facts["ground_truth"]:
        held = body.held[truth["index"]]
        assert held.complete
        assert not held.lost
        if held.script.finish.how == "rejected":
            assert held.tokens == 0
            continue
        assert list(held.token_ids) == truth["output_ids"]
        assert held.finish_reason == (truth["finish_reason"] or {"type": "abort", "message": "Abort in waiting queue"})
        if held.script.logprobs is not None:
            assert list(held.logprobs) == truth["output_token_logprobs"]


@pytest.mark.parametrize("name", sorted(name for name in RESPONSES if "nonstream" in name))
def test_nonstream(name: str) -> None:
    one = RESPONSES[name]
    response: Any = json.loads(one.body)
    listed = isinstance(response, list)
    payloads: list[dict[str, Any]] = response if listed else [response]
    scripts = rebuild.scripts_of(one, PIECES, [{**part, "index": i} for i, part in enumerate(payloads)])
    sends = [[len(send["output_ids"]) for send in truth["sends_to_detokenizer"]] for truth in one.facts["ground_truth"]]
    made = nonstream(scripts, rebuild.profile_of(one), listed=listed, sends=sends)
    assert dumps(made) == one.body
    if len(scripts) == 1:
        # The scheduler's forced steps of 50 tokens are the default.
        assert nonstream(scripts, rebuild.profile_of(one), listed=listed) == made


def test_live_lists_were_captured() -> None:
    """Some capture shows lists that run ahead of their counters: the rebuilt schedules exercise that."""
    ahead = [
        name
        for name, one in CAPTURES.items()
        for payload in one.payloads
        if name.startswith("cum")
        and payload.get("meta_info", {}).get("finish_reason", 0) is None
        and len(payload["output_ids"]) > payload["meta_info"]["completion_tokens"]
    ]
    assert ahead


def test_a_wrong_script_is_noticed() -> None:
    """The comparison above can fail."""
    one = CAPTURES["inc_si1__stop_string"]
    scripts = rebuild.scripts_of(one, PIECES, one.payloads)
    wrong = replace(scripts[0], token_ids=(*scripts[0].token_ids[:-1], 5))
    body = encode([wrong], rebuild.profile_of(one), rebuild.schedule_of(one, scripts))
    assert body.data != one.body
