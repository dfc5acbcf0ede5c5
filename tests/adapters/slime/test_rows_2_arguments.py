"""Checklist, part 2: which arguments and which members of the state are read."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

from ssefold import GenerateDecoder
from ssefold.adapters import slime as adapter

from ..fakes import STOP, lines_response, stream_of
from .runs import ABSENT, Run, args_of, state_of


class Recorded(SimpleNamespace):
    """Notes which attributes are read."""

    def __getattribute__(self, name: str) -> Any:
        if not name.startswith("_"):
            object.__getattribute__(self, "__dict__").setdefault("_read", set()).add(name)
        return super().__getattribute__(name)


def finished(incremental: bool = True) -> Any:
    return lines_response(stream_of([11], incremental=incremental, finish=STOP))


def test_only_these_arguments_are_read(slime: Any) -> None:
    run = Run(slime, finished())
    run.args = Recorded(**vars(args_of()))
    run(slime.Sample(prompt="p", session_id="s"))
    ours = {"use_score_centering", "ssefold_abort", "ssefold_abort_timeout", "ssefold_fast_path"}
    assert vars(run.args)["_read"] - ours == {
        "ci_test",
        "sglang_router_ip",
        "sglang_router_port",
        "use_rollout_routing_replay",
        "router_policy",
        "sglang_incremental_streaming_output",
        "sglang_speculative_algorithm",
    }


def test_only_these_members_of_the_state_are_read(slime: Any) -> None:
    state = Recorded(**vars(state_of()))
    Run(slime, finished(), state=state)(slime.Sample(prompt="p"))
    assert vars(state)["_read"] == {"tokenizer", "processor", "aborted"}


@pytest.mark.parametrize("name", ["ci_test", "sglang_router_ip", "sglang_router_port", "use_rollout_routing_replay"])
def test_plain_arguments_must_be_there(slime: Any, name: str) -> None:
    run = Run(slime, finished(), **{name: ABSENT})
    with pytest.raises(AttributeError, match=name):
        run(slime.Sample(prompt="p"))


@pytest.mark.parametrize("incremental", [True, False])
def test_the_flag_states_the_mode(slime: Any, incremental: bool) -> None:
    run = Run(slime, finished(incremental), sglang_incremental_streaming_output=incremental)
    assert run(slime.Sample(prompt="p")).tokens == [1, 2, 11]


@pytest.mark.parametrize("incremental", [True, False])
def test_without_the_flag_the_mode_is_found_out(slime: Any, incremental: bool) -> None:
    chunks = stream_of([11, 12, 13], incremental=incremental, finish=STOP)
    run = Run(slime, lines_response(chunks), sglang_incremental_streaming_output=ABSENT)
    sample = run(slime.Sample(prompt="p"))
    assert (sample.tokens, sample.response) == ([1, 2, 11, 12, 13], "<11><12><13>")


def test_num_layers_and_topk_are_read_through_the_sample(slime: Any) -> None:
    chunks = stream_of([11], incremental=True, finish=STOP, routed_experts=[1, 2, 3, 4, 5, 6, 7, 8])
    run = Run(slime, lines_response(chunks), use_rollout_routing_replay=True, num_layers=2, moe_router_topk=2)
    sample = run(slime.Sample(prompt="p"))
    assert sample.rollout_routed_experts.tolist() == [[[1, 2], [3, 4]], [[5, 6], [7, 8]]]


def test_speculative_algorithm_is_read_through_the_sample(slime: Any) -> None:
    run = Run(slime, finished(), sglang_speculative_algorithm=True)
    assert run(slime.Sample(prompt="p")).spec_info.completion_token_num == 1


def test_score_centering_is_refused_first_of_all(slime: Any) -> None:
    args = SimpleNamespace(use_score_centering=True)
    with pytest.raises(ValueError, match=r"^Score centering does not support streaming rollout\.$"):
        asyncio.run(adapter.generate_streaming(args, None, {}))


@pytest.mark.parametrize(("given", "expected"), [({}, True), ({"ssefold_fast_path": False}, False)])
def test_the_fast_path_can_be_switched_off(
    slime: Any, monkeypatch: pytest.MonkeyPatch, given: dict[str, Any], expected: bool
) -> None:
    asked: list[Any] = []

    class Decoder(GenerateDecoder):
        def __init__(self, **options: Any) -> None:
            asked.append(options["fast_path"])
            super().__init__(**options)

    monkeypatch.setattr("ssefold.adapters.slime.call._Decoder", Decoder)
    Run(slime, finished(), **given)(slime.Sample(prompt="p"))
    assert asked == [expected]


@pytest.mark.parametrize("seconds", [0, -1, "5", None, float("nan")])
def test_a_timeout_that_is_none(slime: Any, seconds: Any) -> None:
    run = Run(slime, finished(), ssefold_abort_timeout=seconds)
    with pytest.raises(ValueError, match=r"ssefold_abort_timeout must be a number of seconds above 0"):
        run(slime.Sample(prompt="p"))
    assert run.client.requests == []
