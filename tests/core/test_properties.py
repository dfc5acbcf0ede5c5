"""Truth first: whatever a server generates and however it writes it, the decoder holds exactly that.

The letters are those of the properties that the library is built on: (a) decode(encode(x)) == x, (b) cuts do not
matter, (c) modes and the non-streaming answer agree, (d) every prefix is exact, (e) updates are all there is, (f) a
snapshot is as good as the output it was taken from.  Runs are drawn over all server versions and gateways.
"""

from __future__ import annotations

import pickle
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ssefold import Accumulator, GenerateDecoder, ProtocolError, Snapshot, StreamError
from ssefold.transports.testing import PROFILES, encode
from tests.core.answers import agrees_with_answer, answer
from tests.core.by_hand import exact, fold, shown
from tests.core.follow import follow
from tests.truth.strategies import Run, chunked, runs

SGLANG = [profile for profile in PROFILES.values() if profile.family == "sglang"]


@given(runs())
def test_a_d_e_every_event_leaves_exactly_what_it_says(run: Run) -> None:
    """(a), (d) and (e): ``follow`` compares outputs with the truth, and updates applied by hand, after each event."""
    follow(run.body)


@given(runs(lossy=True))
def test_a_lost_ids_are_refused_and_never_guessed(run: Run) -> None:
    follow(run.body, lossy=True)


@given(runs(extra_rows=True))
def test_a_surplus_rows_are_no_tokens(run: Run) -> None:
    """More rows than tokens (speculative decoding before 0.5.10, max_new_tokens=0): refused, or not taken."""
    decoder = GenerateDecoder()
    for sent in run.body.sent:
        try:
            decoder.feed(sent.data)
        except StreamError as error:
            assert isinstance(error, ProtocolError) or run.body.error
            break
    for index, output in decoder.outputs.items():
        script = run.scripts[index]
        known = tuple(output.token_ids)
        # A live list can show a surplus row before anything tells it from a token; the last chunk then does.
        rows = (*script.token_ids, *(token_id for _, token_id in script.extra_rows))
        assert script.finish.how == "rejected" or known == rows[: len(known)]
        if output.finish_reason is not None and run.body.held[index].complete and run.profile.has_ids:
            assert known == run.body.held[index].token_ids


@given(runs(), st.data())
def test_b_cuts_do_not_matter(run: Run, data: st.DataObject) -> None:
    body = run.body.data
    reads = data.draw(chunked(body))
    cut, whole, by_event = fold(reads), fold([body]), fold(run.body.events)
    assert cut.told == whole.told == by_event.told
    whole.agrees_with_updates()
    for index, output in whole.outputs.items():
        assert cut.outputs[index].snapshot() == output.snapshot()


@given(runs(), st.integers(0))
def test_d_a_cut_body_leaves_a_prefix(run: Run, seed: int) -> None:
    """The connection breaks after any byte: what is held is what had arrived, and close says that it is not all."""
    body = run.body
    part = body.cut(seed % (len(body.data) + 1))
    folded = fold([part.data])
    for index, held in enumerate(part.held):
        if index in folded.outputs:
            known = tuple(folded.outputs[index].token_ids)
            assert known == held.token_ids[: len(known)]
            assert len(known) >= min(held.tokens, held.counted)
        else:
            assert not held.tokens
    everything = all(held.complete or held.error for held in body.held) and part.events_in(len(part.data)) >= len(
        body.payloads
    )
    if not everything and len(folded.outputs) == len(body.held):
        assert folded.error is not None
    if folded.error is not None:
        assert {i: shown(one)["token_ids"] for i, one in folded.error.partial.items()} == {
            i: tuple(output.token_ids) for i, output in folded.outputs.items()
        }


@given(runs(SGLANG))
def test_c_the_answer_without_streaming(run: Run) -> None:
    folded = fold([run.body.data])
    if run.body.error or run.body.torn:
        return
    for index, output in folded.outputs.items():
        script = run.scripts[index]
        whole = answer(script, run.profile, run.schedule.sends[index])
        if whole is not None:
            agrees_with_answer(output.native_response(), whole, script, run.profile)
            again = Accumulator()
            again.add(whole)
            # It is a chunk like any other; beam search and prompt ids aside, nothing is added or lost.
            if not run.profile.prompt_tail:
                assert _sorted({"text": "", **again.native_response()}) == _sorted({"text": "", **whole})


def _sorted(response: Mapping[str, Any]) -> str:
    """The order of keys is no promise of the server's."""
    return exact({**response, "meta_info": dict(sorted(response["meta_info"].items()))})


@given(runs(SGLANG, lossy=False))
def test_c_both_modes(run: Run) -> None:
    """The same version, scripts and schedule under the other flag."""
    other = replace(run.profile, incremental=not run.profile.incremental)
    if other.loses_ids or run.profile.loses_ids:
        return
    body = encode(run.scripts, other, run.schedule, listed=run.listed)
    left, right = fold([run.body.data]), fold([body.data])
    for index in set(left.outputs) & set(right.outputs):
        one, two = left.outputs[index], right.outputs[index]
        if any(held.lost for held in (body.held[index], run.body.held[index])) or body.torn or run.body.torn:
            continue
        assert list(one.token_ids) == list(two.token_ids)
        assert exact(one.logprobs) == exact(two.logprobs)
        assert one.text() == two.text()
        assert one.finish_reason == two.finish_reason


@given(runs(), st.integers(0), st.booleans())
def test_f_a_snapshot_goes_on_as_the_output_does(run: Run, seed: int, through_pickle: bool) -> None:
    """Accumulators are frozen, sent through bytes, and restored at one place or after every chunk."""
    direct: dict[int, Accumulator] = {}
    restored: dict[int, Accumulator] = {}
    payloads = [payload for payload in run.body.payloads if "error" not in payload]
    place = seed % (len(payloads) + 1)
    for at, payload in enumerate(payloads):
        index = payload.get("index", 0)
        one = direct.setdefault(index, Accumulator(index=index))
        two = restored.setdefault(index, Accumulator(index=index))
        if at >= place:
            two = restored[index] = _thawed(two, through_pickle=through_pickle)
        assert shown(two) == shown(one)
        assert one.add(payload) == two.add(payload)
    for index, one in direct.items():
        two = restored[index]
        assert shown(two) == shown(one)
        assert dict(two.lanes) == dict(one.lanes)
        assert two.snapshot() == one.snapshot()
        assert two.snapshot().to_bytes() == one.snapshot().to_bytes()
        assert hash(two.snapshot()) == hash(one.snapshot())


def _thawed(output: Accumulator, *, through_pickle: bool) -> Accumulator:
    snapshot = output.snapshot()
    copy: Any = pickle.loads(pickle.dumps(snapshot)) if through_pickle else Snapshot.from_bytes(snapshot.to_bytes())
    assert copy == snapshot
    assert shown(copy) == shown(snapshot)
    return Accumulator.restore(copy)


@given(runs(), st.booleans())
def test_modes_told(run: Run, incremental: bool) -> None:
    """The server's own flag changes nothing; the wrong one is refused by name, or there was nothing to tell them by."""
    if run.profile.family.startswith("grpc"):
        return
    mode, other = ("incremental", "cumulative") if incremental else ("cumulative", "incremental")
    got, want = fold([run.body.data], mode=mode), fold([run.body.data])
    if incremental == run.profile.incremental:
        assert got.told | {"lanes": None} == want.told | {"lanes": None}
        return
    for index, output in got.outputs.items():
        known = list(output.token_ids)
        assert known == list(want.outputs[index].token_ids)[: len(known)]
        assert exact(list(output.logprobs)) == exact(list(want.outputs[index].logprobs)[: len(output.logprobs)])
    if isinstance(got.error, ProtocolError):
        assert f"mode={mode!r}" in str(got.error)
        assert f"mode={other!r}" in str(got.error)
    elif run.profile.version >= (0, 5, 10) and run.profile.family == "sglang":
        # From 0.5.10 on the first chunk that goes on from another one tells; but an abort from the queue brings a
        # snapshot under either flag.
        going_on = [update for update in want.updates if update.token_ids and update.start]
        assert all(update.finish_reason is not None and update.finish_reason.type == "abort" for update in going_on)
    with pytest.raises(ValueError, match="mode must be"):
        Accumulator("delta")  # type: ignore[arg-type]
