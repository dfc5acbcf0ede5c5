"""Many events at once: what a run is, where it ends, and that a run with anything odd in it goes event by event."""

from __future__ import annotations

import json
from typing import Any

import pytest

from ssefold import GenerateDecoder, PayloadError
from ssefold.outputs import Outputs
from ssefold.transports.testing import INCREMENTAL, encode
from tests.core.by_hand import Folded, fold
from tests.core.corpus import finite
from tests.core.mutations import event, payload_of
from tests.core.short_ways import EAGER, short_ways
from tests.core.test_fast_path import same_as_long_way

EVENTS = encode(finite(60), INCREMENTAL).events
HEAD, BODY = EVENTS[:5], EVENTS[5:]


def of_runs(folded: Folded) -> list[bool]:
    """Which updates came from a run: their meta_info is still the payload."""
    return [type(tuple.__getitem__(update, 10)) is bytes for update in folded.updates]


def test_a_read_of_like_events_is_a_run() -> None:
    folded = fold([b"".join(HEAD), b"".join(BODY)])
    assert of_runs(folded)[:57] == [False] * 5 + [True] * 52
    assert not of_runs(folded)[-1]
    same_as_long_way([b"".join(HEAD), b"".join(BODY)])


def test_counts_that_nothing_is_checked_against_may_change_in_a_run() -> None:
    events = [
        data.replace(b'"reasoning_tokens":2', b'"reasoning_tokens":%d' % at).replace(
            b'"num_retractions":0', b'"num_retractions":%d' % (at // 9)
        )
        for at, data in enumerate(EVENTS)
    ]
    reads = [b"".join(events[:5]), b"".join(events[5:])]
    folded = fold(reads)
    assert of_runs(folded)[5:57] == [True] * 52
    assert [update.meta_info["reasoning_tokens"] for update in folded.updates[5:]] == list(range(5, 60))
    same_as_long_way(reads)


def test_an_event_that_is_begun_does_not_keep_the_rest_from_being_a_run() -> None:
    """It is finished first, and by itself."""
    data = b"".join(BODY)
    folded = fold([b"".join(HEAD) + data[:50], data[50:]])
    assert of_runs(folded)[:57] == [False] * 6 + [True] * 51
    same_as_long_way([b"".join(HEAD) + data[:50], data[50:]])


def test_an_event_that_is_begun_and_ends_otherwise() -> None:
    """Its end is not where it was looked for: lines end in CR LF from here on."""
    data = b"".join(BODY).replace(b"\n", b"\r\n")
    reads = [b"".join(HEAD) + data[:50], data[50:]]
    assert not any(of_runs(fold(reads)))
    same_as_long_way(reads)


@pytest.mark.parametrize("begun", [b"event: error\n", b"id: 7\n", b"data: {\n", b"retry: 1\n", b": comment\n", b"even"])
def test_an_event_that_is_begun_belongs_to_what_follows(begun: bytes) -> None:
    same_as_long_way([b"".join(HEAD), begun, b"".join(BODY)])
    same_as_long_way([b"".join(HEAD), b"".join(BODY[:20]) + begun, b"".join(BODY[20:])])


def test_a_read_beyond_the_bound_of_an_event_is_no_run() -> None:
    """What can not be buffered must be refused as always, not matched."""
    data = b"".join(BODY)
    bound = len(data) - 1
    for reads in ([b"".join(HEAD), data], [*HEAD, data]):
        folded = fold(reads, max_event_size=bound)
        assert folded.error is None
        assert not any(of_runs(folded))
        assert any(of_runs(fold(reads, max_event_size=bound + 1)))


ODD: dict[str, tuple[bytes, bytes]] = {
    "a wrong escape": (b'"text":"', b'"text":"\\q'),
    "no UTF-8": (b'"text":"', b'"text":"\xff'),
    "a raw control character": (b'"text":"', b'"text":"\x01'),
    "a lone surrogate": (b'"text":"', b'"text":"\\ud800'),
    "a logprob null": (b"[[-", b"[[null,"),
    "a logprob of letters": (b"[[-", b"[[nul-"),
    "a logprob that is a whole number": (b".", b""),
    "an id with a zero": (b'"output_ids":[', b'"output_ids":[0'),
    "an id beyond int64": (b'"output_ids":[', b'"output_ids":[' + b"9" * 20),
    "an id beyond printing": (b'"output_ids":[', b'"output_ids":[' + b"9" * 5000),
}


@pytest.mark.parametrize("how", ODD)
@pytest.mark.parametrize("options", [{}, {"on_bad_json": "skip"}], ids=["raise", "skip"])
def test_one_of_a_run_is_odd(how: str, options: dict[str, Any]) -> None:
    old, new = ODD[how]
    payload = payload_of(BODY[20])
    assert old in payload
    changed = payload.replace(old, new, 1)
    if how.startswith("an id"):  # the row's id is the same number
        token_id = b"%d" % json.loads(payload)["output_ids"][0]
        changed = changed.replace(b"," + token_id + b",null", b"," + new.partition(b"[")[2] + token_id + b",null")
    body = [*BODY[:20], event(changed), *BODY[21:]]
    same_as_long_way([b"".join(HEAD), b"".join(body)], **options)
    with short_ways(EAGER):
        same_as_long_way([b"".join(HEAD), b"".join(body)], **options)


def _with_a_key(data: bytes) -> bytes:
    return data.replace(b'"dp_rank"', b'"extra":1,"dp_rank"')


def test_a_pattern_older_than_the_form_is_not_believed() -> None:
    """A run, then another form, small events that are no run, and then a read that the old pattern fits."""
    reads = [b"".join(HEAD), b"".join(BODY[:20]), *map(_with_a_key, BODY[20:23]), b"".join(BODY[23:])]
    folded = fold(reads)
    assert of_runs(folded)[5:25] == [True] * 20
    assert not any(of_runs(folded)[25:])
    assert folded.outputs[0].meta_info["extra"] == 1
    same_as_long_way(reads)


def test_a_settled_stream_with_a_key_more_at_the_top_goes_the_long_way() -> None:
    changed = payload_of(BODY[3]).replace(b'{"text"', b'{"trace":7,"text"', 1)
    two_more = payload_of(BODY[4]).replace(b'{"text"', b'{"trace":8,"span":9,"text"', 1)
    events = [*HEAD, *BODY[:3], event(changed), event(two_more), *BODY[5:]]
    folded = fold(events)
    assert folded.outputs[0].native_response()["trace"] == 8
    assert folded.outputs[0].native_response()["span"] == 9
    same_as_long_way(events)


def test_looking_for_runs_rests_after_failures(monkeypatch: pytest.MonkeyPatch) -> None:
    """Payloads keep changing their form: ever fewer reads are looked at."""
    looked: list[bool] = []
    fold_run = Outputs.fold_run

    def counted(outputs: Outputs, data: bytes, updates: list[Any]) -> int:
        end = fold_run(outputs, data, updates)
        looked.append(end > 0)
        return end

    monkeypatch.setattr(Outputs, "fold_run", counted)
    events = encode(finite(400), INCREMENTAL).events
    reads = [_with_a_key(data) if at % 2 else data for at, data in enumerate(events)]
    with short_ways((10**9, 1, 200, 6, 2)):  # each read is one event, and large enough to be looked at
        folded = fold(reads)
    assert folded.error is None
    assert looked.count(True) == 0
    # After 1, 4, 9, ... 64 and then 64 reads; it asks anew after each rest.
    assert 8 <= len(looked) <= 14


def test_a_failure_inside_a_run_returns_what_came_before_it() -> None:
    decoder = GenerateDecoder()
    decoder.feed(b"".join(HEAD))
    updates = decoder.feed(b"".join([*BODY[:30], event(b'{"text":7}'), *BODY[31:]]))
    assert len(updates) == 30
    assert isinstance(decoder.error, PayloadError)
    assert decoder.done
