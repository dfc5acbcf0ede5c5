"""Whatever is skipped, cut or folded at once comes out as if every byte had been parsed.

``reference.py`` is the long way.  ``fold`` takes both.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ssefold import IncompleteStreamError
from ssefold.transports.testing import Profile
from tests.core.by_hand import Folded, cut, exact, fold, shown
from tests.core.corpus import cases, profiles
from tests.core.mutations import edited, mutated, respelled, some_cases
from tests.core.reference import Reference
from tests.truth.recorded import Recorded, captures, streams
from tests.truth.strategies import Run, runs

SETTLED = tuple(profile for profile in profiles() if profile.rows_incremental and profile.family == "sglang")
"""Servers whose streams are deltas in every lane: the ones from which runs of events are folded at once."""


def same_as_long_way(reads: Sequence[bytes], **options: Any) -> None:
    """Fold both ways and compare all that a caller can see."""
    assert _seen(fold(reads, **options)) == _long_way(reads, **options)


def _long_way(reads: Sequence[bytes], **options: Any) -> dict[str, Any]:
    return _seen(Reference(mode=options.get("mode", "auto"), skip_bad_json="on_bad_json" in options).fold(reads))


def _seen(folded: Folded | Reference) -> dict[str, Any]:
    decoder = folded.decoder if isinstance(folded, Folded) else folded
    error = folded.error
    return {
        "updates": folded.updates,
        "logprobs": [exact(update.logprobs) for update in folded.updates],
        "outputs": {index: shown(output) for index, output in folded.outputs.items()},
        "lanes": {index: dict(output.lanes) for index, output in folded.outputs.items()},
        "error": (type(error), "" if isinstance(error, IncompleteStreamError) else str(error)),
        "done": decoder.done,
        "skipped": decoder.skipped,
    }


# ---- what servers send ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("profile", profiles(), ids=str)
def test_every_profile(profile: Profile) -> None:
    for case in cases(profile):
        body = case.body.data
        want = _long_way([body])
        for reads in ([body], case.body.events, cut(body, *range(0, len(body), 1700))):
            assert _seen(fold(reads)) == want, case.name


@pytest.mark.parametrize("one", [*streams(), *captures()], ids=lambda one: one.name)
def test_every_recorded_body(one: Recorded) -> None:
    size = max(len(one.body) // 50, 4096)
    want = _long_way([one.body])
    assert _seen(fold(cut(one.body, *range(0, len(one.body), size)))) == want
    assert _seen(fold([one.body])) == want


@given(runs(), st.data())
def test_any_run(run: Run, data: st.DataObject) -> None:
    places = data.draw(st.lists(st.integers(0, len(run.body.data)), max_size=6))
    same_as_long_way(cut(run.body.data, *places))


# ---- what nobody sends ----------------------------------------------------------------------------------------------


@settings(max_examples=100)
@given(st.data(), st.sampled_from(("whole", "events", "cut")))
def test_mutated_streams(data: st.DataObject, how: str) -> None:
    case = data.draw(some_cases() | some_cases("finite", "plain", profiles=SETTLED))
    events = data.draw(mutated(case.body.events))
    same_as_long_way(_reads(data, events, how))


@given(st.data(), st.sampled_from(("auto", "cumulative", "incremental")))
def test_mutated_again_and_again(data: st.DataObject, mode: str) -> None:
    """Several payloads of one stream are odd: what was learned from one must not be believed of another."""
    case = data.draw(
        some_cases("scored", "finite", "prompted", "plain", "rich", "passed-through")
        | some_cases("finite", profiles=SETTLED)
    )
    events = case.body.events
    for _ in range(3):
        events = data.draw(edited(events) | respelled(events))
    same_as_long_way(events, mode=mode, on_bad_json="skip")


def _reads(data: st.DataObject, events: list[bytes], how: str) -> list[bytes]:
    body = b"".join(events)
    if how == "events":
        return events
    if how == "whole":
        return [body]
    return cut(body, *data.draw(st.lists(st.integers(0, len(body)), max_size=6)))
