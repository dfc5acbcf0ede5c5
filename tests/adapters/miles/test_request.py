"""What miles' adapter sends, and what it refuses to send."""

from __future__ import annotations

import asyncio
import inspect
import sys
from types import SimpleNamespace
from typing import Any

import pytest

from ssefold.adapters import miles as adapter

from .runs import Run, finished, resumable

np = pytest.importorskip("numpy", reason="miles' replay arrays are NumPy's")


def test_the_parameter_is_named_input() -> None:
    assert list(inspect.signature(adapter.generate).parameters) == ["input"]
    assert inspect.iscoroutinefunction(adapter.generate)


def test_payload_is_what_miles_makes_of_it(miles: Any) -> None:
    run = Run(miles, finished(), use_rollout_routing_replay=True)
    run(miles.Sample(prompt="p", routing_key="k"), stop=["x"])
    [(url, payload, headers)] = run.client.requests
    assert url == "http://frontend:8000/generate"
    assert headers == {"X-SMG-Routing-Key": "k"}
    assert len(payload.pop("rid")) == 32
    assert payload == {
        "input_ids": [1, 2],
        "sampling_params": {"max_new_tokens": 8, "stop": ["x"]},
        "return_logprob": True,
        "return_routed_experts": True,
        "return_indexer_topk": False,
        "lora_path": "the adapter",
        "stream": True,
    }


def test_helpers_can_be_replaced(miles: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(adapter, "compute_prompt_ids_from_sample", lambda _state, _sample: [7, 8, 9])
    run = Run(miles, finished())
    assert run(miles.Sample(prompt="p")).tokens == [7, 8, 9, 11]


def test_a_chat_prompt(miles: Any) -> None:
    run = Run(miles, finished())
    run.state.tokenizer.apply_chat_template = lambda messages, **_: messages[0]["content"]
    assert run(miles.Sample(prompt=[{"role": "user", "content": "hi"}])).tokens == [1, 2, 11]


def test_an_older_miles_without_routing_headers(miles: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(miles.generate_endpoint_utils, "compute_routing_headers")
    run = Run(miles, finished())
    run(miles.Sample(prompt="p", routing_key="k"))
    [(_, _, headers)] = run.client.requests
    assert headers is None


@pytest.mark.parametrize("name", ["COMPLETED", "TRUNCATED", "FAILED"])
def test_status(miles: Any, name: str) -> None:
    with pytest.raises(AssertionError, match="Sample status is"):
        Run(miles)(miles.Sample(prompt="p", status=miles.Sample.Status[name]))


def test_resume_sends_what_is_there_and_asks_for_the_rest(miles: Any) -> None:
    run = Run(miles, finished(12))
    sample = run(resumable(miles))
    assert run.payloads[0]["input_ids"] == [1, 2, 5]
    assert run.payloads[0]["sampling_params"] == {"max_new_tokens": 7}
    assert (sample.tokens, sample.response, sample.rollout_log_probs) == ([1, 2, 5, 12], "five<12>", [-0.5, -0.12])


def test_resume_of_tokens_whose_text_was_held_back(miles: Any) -> None:
    run = Run(miles, finished(12))
    run(resumable(miles, response=""))
    assert run.payloads[0]["input_ids"] == [1, 2, 5]


def test_budget(miles: Any) -> None:
    run = Run(miles)
    assert run(resumable(miles), max_new_tokens=1).status == miles.Sample.Status.TRUNCATED
    with pytest.raises(AssertionError, match="max_new_tokens: -1 should not be less than 0"):
        run(resumable(miles), max_new_tokens=0)
    short = Run(miles, rollout_max_context_len=2)
    assert short(miles.Sample(prompt="p")).status == miles.Sample.Status.TRUNCATED
    assert run.client.requests == short.client.requests == []


def test_no_client(miles: Any) -> None:
    run = Run(miles)
    miles.http_utils._http_client = None
    with pytest.raises(AssertionError, match="http client not initialized"):
        run(miles.Sample(prompt="p"))


def test_an_output_store_is_refused_but_not_for_evaluation(miles: Any) -> None:
    run = Run(miles, finished(), use_output_store=True)
    assert asyncio.run(run.call(miles.Sample(prompt="p"), evaluation=True)).tokens == [1, 2, 11]
    with pytest.raises(ValueError, match="return_outputs_via_store is not streamed"):
        run(miles.Sample(prompt="p"))


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"adapter": SimpleNamespace(name="a", slot=3)}, r"sample\.adapter .*multi-LoRA"),
        ({"rollout_prompt_ids": [1]}, "video prompts"),
    ],
)
def test_samples_of_other_generate_functions_are_refused(miles: Any, given: dict[str, Any], message: str) -> None:
    run = Run(miles, finished())
    with pytest.raises(ValueError, match=message):
        run(miles.Sample(prompt="p", **given))
    assert run.client.requests == []


def test_the_distributed_post_is_told_to_be_absent(miles: Any, caplog: pytest.LogCaptureFixture) -> None:
    miles.http_utils._distributed_post_enabled = True
    Run(miles, finished())(miles.Sample(prompt="p"))
    assert "use-distributed-post" in caplog.text


def test_existing_tokens_without_logprobs(miles: Any) -> None:
    with pytest.raises(ValueError, match="1 response tokens and no rollout_log_probs"):
        Run(miles, finished())(resumable(miles, rollout_log_probs=None))


def test_without_miles(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("miles", "miles.rollout", "miles.utils"):
        monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(ModuleNotFoundError, match="needs miles for GenerateFnOutput"):
        _ = adapter.GenerateFnOutput
    with pytest.raises(ModuleNotFoundError, match="needs miles for http_utils"):
        _ = adapter.http_utils
    with pytest.raises(AttributeError, match="has no attribute 'GenerateFnOutpu'"):
        _ = adapter.GenerateFnOutpu
