"""Every server behaviour that was ever released, each time: the truth, its other modes and its non-streaming answer."""

from __future__ import annotations

import pytest

from ssefold.transports.testing import INCREMENTAL, PROFILES, Profile
from tests.core.answers import agrees_with_answer, answer
from tests.core.by_hand import exact, fold
from tests.core.corpus import cases, profiles
from tests.core.follow import follow

every_profile = pytest.mark.parametrize("profile", profiles(), ids=str)
BOTH_MODES = [name for name in PROFILES if PROFILES[name].incremental and name.replace("-incremental", "") in PROFILES]


@every_profile
def test_the_truth_after_every_event(profile: Profile) -> None:
    for case in cases(profile):
        follow(case.body, lossy=True)


@every_profile
def test_nothing_is_lost_without_need(profile: Profile) -> None:
    """Only where ids never came is anything refused: a reader that keeps pace gets all of it, in every version."""
    for case in cases(profile):
        held = case.body.held
        if not case.body.torn and not case.body.error and not any(one.lost or one.error for one in held):
            folded = fold([case.body.data])
            assert folded.error is None, case.name
            assert folded.decoder.done


@every_profile
def test_the_mode_of_the_server_may_be_told(profile: Profile) -> None:
    mode = "incremental" if profile.incremental else "cumulative"
    for case in cases(profile):
        told, want = fold(case.body.events, mode=mode), fold(case.body.events)
        if profile.family.startswith("grpc"):
            continue  # its lanes are those of no flag
        assert told.told | {"lanes": None} == want.told | {"lanes": None}, case.name


@pytest.mark.parametrize("profile", [one for one in profiles() if one.family == "sglang"], ids=str)
def test_the_answer_without_streaming(profile: Profile) -> None:
    for case in cases(profile):
        folded = fold(case.body.events)
        for index, output in folded.outputs.items():
            script, held = case.scripts[index], case.body.held[index]
            whole = answer(script, profile) if held.complete and not held.lost else None
            if whole is not None:
                agrees_with_answer(output.native_response(), whole, script, profile)


@pytest.mark.parametrize("name", BOTH_MODES)
def test_both_modes_agree(name: str) -> None:
    """One version, one schedule, with and without the flag."""
    incremental, cumulative = PROFILES[name], PROFILES[name.replace("-incremental", "")]
    for left, right in zip(cases(incremental), cases(cumulative), strict=True):
        assert left.name == right.name
        if left.body.torn or right.body.torn or any(held.lost for held in (*left.body.held, *right.body.held)):
            continue
        outputs = fold([left.body.data]).outputs, fold([right.body.data]).outputs
        assert set(outputs[0]) == set(outputs[1])
        for index, one in outputs[0].items():
            other = outputs[1][index]
            assert list(one.token_ids) == list(other.token_ids), left.name
            assert exact(one.logprobs) == exact(other.logprobs)
            assert one.text() == other.text()
            assert one.finish_reason == other.finish_reason
            assert one.top_p == other.top_p
            assert one.routed_experts == other.routed_experts
            assert set(one.native_response()["meta_info"]) ^ set(other.native_response()["meta_info"]) <= {"confidence"}


def test_the_corpus_shows_what_it_is_for() -> None:
    """Lost ids, torn bodies, error events, glued aborts and live lists are all in it."""
    bodies = {(profile.name, case.name): case.body for profile in profiles() for case in cases(profile)}
    assert any(held.lost for body in bodies.values() for held in body.held)
    assert any(body.torn for body in bodies.values())
    assert any(body.error for body in bodies.values())
    assert any(held.error for body in bodies.values() for held in body.held)
    glued = bodies[INCREMENTAL.name, "glued"].payloads[-1]
    assert glued["output_ids"][-1] == glued["output_ids"][-2]
    ahead = [held for body in bodies.values() for one in body.sent for held in one.held if held.tokens > held.counted]
    assert len(ahead) > 10
