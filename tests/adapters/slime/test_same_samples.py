"""A run that works with slime's own functions, streaming or not, gives the same sample with ours, field by field."""

from __future__ import annotations

import asyncio
import copy
from typing import Any
from urllib.parse import urlsplit

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ssefold.adapters import slime as adapter
from ssefold.transports.testing import PROFILES

from ..fakes import ABORT, LENGTH, STOP, b64, lines_response, stream_of
from ..servers import PLAIN, fields_of
from ..servers import runs as run_calls
from .runs import Run, args_of, state_of


@st.composite
def runs(draw: st.DrawFn) -> dict[str, Any]:
    """A sample before the call, the chunks of the call, and the arguments."""
    incremental = draw(st.booleans())
    tokens = draw(st.lists(st.integers(5, 99), max_size=8))
    before = draw(st.lists(st.integers(5, 99), max_size=3))
    terminal: dict[str, Any] = {"weight_version": "w", "cached_tokens": draw(st.integers(0, 2))}
    if draw(st.booleans()):
        terminal["routed_experts"] = b64(range(2 + len(before) + len(tokens) - 1))
    rows = draw(st.sampled_from(["none", "at the end", "in each chunk"]))
    if tokens and rows == "at the end":
        count = len(tokens) + draw(st.sampled_from([0, 0, 0, 1]))
        terminal.update(top_p_token_ids=b64(range(count)), top_p_token_offsets=b64(range(count + 1)))
    chunks = stream_of(
        tokens,
        incremental=incremental,
        step=draw(st.integers(1, 4)),
        finish=draw(st.sampled_from([STOP, LENGTH, ABORT, None])),
        text=draw(st.booleans()),
        **terminal,
    )
    if rows == "in each chunk":
        for item in chunks:
            count = len(item["meta_info"]["output_token_logprobs"])
            item["meta_info"].update(top_p_token_ids=b64(range(count)), top_p_token_offsets=b64(range(count + 1)))
    sample: dict[str, Any] = {"prompt": "p"}
    if before:
        has_rows = draw(st.booleans())
        sample.update(
            tokens=[1, 2, *before],
            response="before",
            response_length=len(before),
            rollout_log_probs=[-0.5] * len(before),
            loss_mask=[draw(st.integers(0, 1))] * len(before),
            rollout_top_p_token_ids=list(range(len(before))) if has_rows else None,
            rollout_top_p_token_offsets=list(range(len(before) + 1)) if has_rows else None,
        )
    return {
        "chunks": chunks,
        "sample": sample,
        "aborted": draw(st.booleans()),
        "args": {"sglang_incremental_streaming_output": incremental},
        "budget": draw(st.sampled_from([3, 16])),
    }


def outcome(slime: Any, function: Any, run_: dict[str, Any]) -> tuple[dict[str, Any] | None, Exception | None]:
    run = Run(
        slime, lines_response(copy.deepcopy(run_["chunks"])), state=state_of(aborted=run_["aborted"]), **run_["args"]
    )
    sample = slime.Sample(**copy.deepcopy(run_["sample"]))
    try:
        asyncio.run(function(run.args, sample, {"max_new_tokens": run_["budget"]}))
    except Exception as error:  # noqa: BLE001  # compared below
        return None, error
    return fields_of(sample), None


@given(run_=runs())
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
def test_the_same_sample_field_by_field(slime: Any, run_: dict[str, Any]) -> None:
    theirs, refusal = outcome(slime, slime.sglang_streaming_rollout.reference_streaming, run_)
    if refusal is not None:
        return
    ours, error = outcome(slime, adapter.generate_streaming, run_)
    assert error is None
    assert ours == theirs


@given(run_=runs())
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
def test_what_slime_refuses_comes_out_right_or_fails_with_a_typed_error(slime: Any, run_: dict[str, Any]) -> None:
    ours, error = outcome(slime, adapter.generate_streaming, run_)
    if error is not None:
        assert isinstance(error, (ValueError, RuntimeError, AssertionError))
        return
    assert ours is not None
    before = run_["sample"].get("tokens", [1, 2])
    told = [pair[1] for chunk in run_["chunks"] for pair in chunk["meta_info"]["output_token_logprobs"]]
    if run_["args"]["sglang_incremental_streaming_output"] and not run_["aborted"] and run_["budget"] > 3:
        assert ours["tokens"] == [*before, *told]


def test_the_comparison_compares(slime: Any) -> None:
    """Both really run, and a difference would be seen."""
    reference_streaming = slime.sglang_streaming_rollout.reference_streaming
    run_: dict[str, Any] = {
        "chunks": stream_of(
            [11, 12], incremental=True, finish=STOP, top_p_token_ids=[1, 2], top_p_token_offsets=[0, 1, 2]
        ),
        "sample": {"prompt": "p"},
        "aborted": False,
        "args": {},
        "budget": 8,
    }
    theirs, error = outcome(slime, reference_streaming, run_)
    assert error is None
    assert theirs is not None
    assert theirs["rollout_top_p_token_ids"] == [1, 2]
    assert outcome(slime, adapter.generate_streaming, run_)[0] == theirs
    assert outcome(slime, adapter.generate_streaming, {**run_, "chunks": run_["chunks"][:1]})[0] != theirs
    with pytest.raises(KeyError):
        _ = theirs["trace"]


# ---- over a real socket, against the function that does not stream


def sample_of(slime: Any, function: Any, profile: str, aborts: tuple[int, ...]) -> dict[str, Any]:
    state, sample = state_of(), slime.Sample(prompt="p")
    slime.sglang_rollout.GenerateState = lambda _args: state

    async def call(server: Any, _client: Any) -> None:
        address = urlsplit(server.url)
        args = args_of(
            sglang_router_ip=address.hostname,
            sglang_router_port=address.port,
            sglang_incremental_streaming_output=server.profile.incremental,
            use_rollout_routing_replay=True,
            num_layers=2,
            moe_router_topk=4,
        )
        custom = {"custom_params": {"return_top_p_token_ids": True}}
        await function(args, sample, {"max_new_tokens": 24, "temperature": 0, **custom})

    def use(client: Any) -> None:
        slime.http_utils._http_client = client

    run_calls(PROFILES[profile], call, use, aborts)
    return fields_of(sample)


@pytest.mark.parametrize("aborts", [(), (9, 3)], ids=["to the end", "aborted twice"])
@pytest.mark.parametrize(
    "profile", [name for name in PLAIN if PROFILES[name].rows_length and not PROFILES[name].tokens_only]
)
def test_every_field_is_what_the_response_that_does_not_stream_gives(
    slime: Any, profile: str, aborts: tuple[int, ...]
) -> None:
    pytest.importorskip("httpx", reason="slime's client is httpx's")
    theirs = sample_of(slime, slime.sglang_rollout.reference_generate, profile, aborts)
    ours = sample_of(slime, adapter.generate_streaming, profile, aborts)
    assert ours == theirs
    assert theirs["response_length"] == 24
    assert len(theirs["weight_versions"]) == len(aborts) + 1
