"""``ssefold demo``: it compares for real, says what it saw, and its status is the verdict."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

pytest.importorskip("click", reason="click comes with the extra `cli`")
pytest.importorskip("rich", reason="rich comes with the extra `cli`")
pytest.importorskip("httpx", reason="httpx comes with the extra `cli`")

from ssefold.adapters.cli.demo import rounds as cli_demo
from ssefold.adapters.cli.demo.model import VOCABULARY, demo_model
from ssefold.adapters.cli.demo.rounds import CUT_AFTER, PROMPT, ROUNDS, TOKENS, compare, play
from ssefold.adapters.cli.demo.view import SilentView
from ssefold.adapters.rollout import RolloutSample
from ssefold.transports.testing import Asked, Script

from .conftest import Run, run_process


def test_piped_it_is_lines_with_every_token_and_the_verdict() -> None:
    ran = run_process("demo")
    assert (ran.status, ran.err) == (0, "")
    lines = ran.out.splitlines()
    assert sum("logprobs" in line and f"{TOKENS} of {TOKENS} equal" in line for line in lines) == len(ROUNDS)
    assert "top-p rows" in ran.out
    assert "routed-experts rows" in ran.out
    assert lines[-1] == "Resumed rollouts equal the uninterrupted ones, token by token and logprob by logprob."
    rows = [line.split()[0] for line in lines if line.startswith("  ") and line.split()[0].isdigit()]
    assert rows == [str(position) for position in range(TOKENS)] * len(ROUNDS)
    assert "\x1b" not in ran.out


def test_for_machines(run: Run) -> None:
    ran = run("demo", "--json")
    assert ran.status == 0
    assert ran.json["equal"] is True
    for rollout in ran.json["rollouts"]:
        first, then = rollout["calls"]
        assert CUT_AFTER <= first["end"] < TOKENS
        assert then["end"] == TOKENS == len(rollout["token_ids"]) == len(rollout["logprobs"])
        assert first["source"] != then["source"]


def test_both_ways_of_cutting_and_both_modes_are_shown() -> None:
    assert {round_.cut for round_ in ROUNDS} == {"disconnect", "abort"}
    assert {"incremental" in name for round_ in ROUNDS for name in (round_.first, round_.then)} == {False, True}


def sabotage(change: Callable[[Script], Script]) -> Callable[[Asked], Script]:
    """The model, but with something changed in answers that go on with a part of an earlier one."""

    def model(asked: Asked) -> Script:
        script = demo_model(asked)
        return change(script) if len(asked.prompt_ids) > len(PROMPT) else script

    return model


def other_last_token(script: Script) -> Script:
    ids = (*script.token_ids[:-1], 100 if script.token_ids[-1] != 100 else 101)
    return replace(script, token_ids=ids)


def other_logprob(script: Script) -> Script:
    first, *rest = script.logprobs or [0.0]
    return replace(script, logprobs=((first or 0.0) - 1e-9, *rest))


def other_routing(script: Script) -> Script:
    routing = script.routed_experts
    if routing is None:
        return script
    rows = list(routing.rows)
    rows[-1] = tuple(63 - expert for expert in rows[-1])
    return replace(script, routed_experts=replace(routing, rows=tuple(rows)))


@pytest.mark.parametrize(
    ("change", "what"),
    [(other_last_token, "token ids"), (other_logprob, "logprobs"), (other_routing, "routed-experts rows")],
)
def test_one_wrong_number_is_seen_and_is_status_1(
    change: Callable[[Script], Script], what: str, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cli_demo, "demo_model", sabotage(change))
    ran = run("demo", "--json")
    assert ran.status == 1
    assert ran.json["equal"] is False
    failed = {one["what"] for one in ran.json["rollouts"][-1]["comparisons"] if not one["holds"]}
    assert failed == {what}
    said = run("demo")
    assert said.status == 1
    assert "first difference at " in said.out
    assert "DIFFERS" in said.out.splitlines()[-1]


def test_nothing_is_not_equal_to_nothing() -> None:
    empty = RolloutSample(PROMPT)
    assert not any(one.holds for one in compare(empty, empty))


def test_the_cut_is_real() -> None:
    seen: list[Any] = []

    class Watcher(SilentView):
        def was_cut(self, sample: RolloutSample, size: int) -> None:
            seen.append((len(sample.token_ids), sample.status))

    for at, round_ in enumerate(ROUNDS):
        asyncio.run(play(round_, at, Watcher()))
    # After an abort one more token may come with the terminal chunk.
    assert [status for _, status in seen] == ["partial", "aborted"]
    assert all(CUT_AFTER <= count <= CUT_AFTER + 1 for count, _ in seen)


def test_the_model_depends_on_every_token_before() -> None:
    asked = Asked(rid="r", prompt_ids=PROMPT, max_new_tokens=TOKENS, return_logprob=True)
    script = demo_model(asked)
    given = script.token_ids[:CUT_AFTER]
    rest = demo_model(replace(asked, prompt_ids=PROMPT + given, max_new_tokens=TOKENS - CUT_AFTER))
    assert rest.token_ids == script.token_ids[CUT_AFTER:]
    wrong = next(token for token in VOCABULARY if token // 10 == given[0] // 10 and token != given[0])
    other = demo_model(replace(asked, prompt_ids=(*PROMPT, wrong, *given[1:]), max_new_tokens=TOKENS - CUT_AFTER))
    assert other.token_ids != rest.token_ids
