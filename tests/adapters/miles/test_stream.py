"""miles' generate function, streamed: against a stand-in for miles, over fakes and over the fake server."""

from __future__ import annotations

import asyncio
import copy
import inspect
import json
import sys
from collections.abc import AsyncIterator
from types import SimpleNamespace
from typing import Any
from urllib.parse import urlsplit

import pytest

from ssefold import PayloadError, ProtocolError, ReplayError, ServerError
from ssefold.adapters import miles as adapter
from ssefold.transports.testing import PROFILES, FakeSGLang, Fault, GreedyModel

from ..fakes import LENGTH, RESPONSES, STOP, Client, Tokenizer, b64, chunk, lines_response, pairs_of, stream_of

np = pytest.importorskip("numpy", reason="miles' replay arrays are NumPy's")


class Run:
    """One or more calls of ``generate`` with one state and client."""

    def __init__(self, miles: Any, *responses: Any, aborted: bool = False, **args: Any) -> None:
        given = {
            "sglang_router_ip": "frontend",
            "sglang_router_port": 8000,
            "rollout_max_response_len": 8,
            "rollout_max_context_len": None,
            "use_rollout_routing_replay": False,
            "use_rollout_indexer_replay": False,
            "use_sampling_mask": False,
            "sglang_speculative_algorithm": None,
            "num_layers": 2,
            **args,
        }
        self.miles = miles
        self.state = SimpleNamespace(
            args=SimpleNamespace(**given), tokenizer=Tokenizer(), processor=None, aborted=aborted
        )
        self.client: Any = Client(*responses)
        miles.http_utils._http_client = self.client

    def __call__(self, sample: Any, **params: Any) -> Any:
        return asyncio.run(self.call(sample, **params))

    async def call(self, sample: Any, evaluation: bool = False, **params: Any) -> Any:
        given = {"max_new_tokens": 8, **params}
        before = copy.deepcopy(given)
        input_ = self.miles.base_types.GenerateFnInput(self.state, sample, given, evaluation)
        try:
            output = await adapter.generate(input_)
        finally:
            assert given == before
        assert type(output) is self.miles.base_types.GenerateFnOutput
        assert output.samples is sample
        sample.validate()
        return sample

    @property
    def payloads(self) -> list[dict[str, Any]]:
        return [payload for _, payload, _ in self.client.requests]


def finished(*tokens: int, **terminal: Any) -> Any:
    return lines_response(stream_of(list(tokens) or [11], incremental=True, finish=STOP, **terminal))


def resumable(miles: Any, **changes: Any) -> Any:
    given = {
        "prompt": "p",
        "tokens": [1, 2, 5],
        "response": "five",
        "response_length": 1,
        "rollout_log_probs": [-0.5],
        "status": miles.Sample.Status.ABORTED,
    }
    return miles.Sample(**{**given, **changes})


# ---- shape and request


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


def test_payload_without_miles_helpers(miles: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "miles.rollout.generate_utils.generate_endpoint_utils", None)
    run = Run(miles, finished(), rollout_max_context_len=6)
    run(miles.Sample(prompt="p", routing_key="k"))
    [(_, payload, headers)] = run.client.requests
    assert (payload["sampling_params"], headers) == ({"max_new_tokens": 4}, None)
    assert payload["return_indexer_topk"] is False


def test_helpers_can_be_replaced(miles: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(adapter, "compute_prompt_ids_from_sample", lambda _state, _sample: [7, 8, 9])
    run = Run(miles, finished())
    assert run(miles.Sample(prompt="p")).tokens == [7, 8, 9, 11]


@pytest.mark.parametrize("helpers", [True, False])
def test_a_chat_prompt(miles: Any, monkeypatch: pytest.MonkeyPatch, helpers: bool) -> None:
    if not helpers:
        monkeypatch.setitem(sys.modules, "miles.rollout.generate_utils.generate_endpoint_utils", None)
    run = Run(miles, finished())
    run.state.tokenizer.apply_chat_template = lambda messages, **_: messages[0]["content"]
    assert run(miles.Sample(prompt=[{"role": "user", "content": "hi"}])).tokens == [1, 2, 11]


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


@pytest.mark.parametrize("evaluation", [False, True])
def test_what_is_not_streamed_is_refused(miles: Any, evaluation: bool) -> None:
    run = Run(miles, finished(), use_sampling_mask=True)
    sample = miles.Sample(prompt="p")
    if evaluation:
        assert asyncio.run(run.call(sample, evaluation=True)).tokens == [1, 2, 11]
        return
    with pytest.raises(ValueError, match="return_sampling_mask is not streamed"):
        run(sample)
    with pytest.raises(ValueError, match="video prompts"):
        Run(miles)(miles.Sample(prompt="p", rollout_prompt_ids=[1]))


def test_existing_tokens_without_logprobs(miles: Any) -> None:
    with pytest.raises(ValueError, match="1 response tokens and no rollout_log_probs"):
        Run(miles, finished())(resumable(miles, rollout_log_probs=None))


# ---- stream


@pytest.mark.parametrize("kind", RESPONSES)
@pytest.mark.parametrize("incremental", [True, False])
def test_streams(miles: Any, kind: str, incremental: bool) -> None:
    chunks = stream_of([11, 12, 13], incremental=incremental, finish=LENGTH, weight_version="w", cached_tokens=2)
    sample = Run(miles, RESPONSES[kind](chunks))(miles.Sample(prompt="p"))
    assert (sample.tokens, sample.response_length, sample.response) == ([1, 2, 11, 12, 13], 3, "<11><12><13>")
    assert (sample.rollout_log_probs, sample.loss_mask) == ([-0.11, -0.12, -0.13], None)
    assert (sample.status, sample.weight_versions, sample.cached_tokens) == (
        miles.Sample.Status.TRUNCATED,
        ["w"],
        2,
    )
    [terminal] = sample.terminal
    assert type(terminal) is dict
    assert terminal["finish_reason"] == LENGTH


def test_a_loss_mask_goes_on(miles: Any) -> None:
    assert Run(miles, finished(11, 12))(resumable(miles, loss_mask=[0])).loss_mask == [0, 1, 1]


def test_text_is_decoded_where_none_came(miles: Any) -> None:
    run = Run(miles, lines_response(stream_of([11, 12], incremental=True, finish=STOP, text=False)))
    assert run(miles.Sample(prompt="p"), skip_special_tokens=False).response == "(11)(12)"
    assert run.state.tokenizer.decoded == [([11, 12], {"skip_special_tokens": False})]


def test_rows_of_the_whole_call_begin_it_anew(miles: Any) -> None:
    rows = {"top_p_token_ids": [1, 2], "top_p_token_offsets": [0, 1, 2]}
    sample = Run(miles, finished(11, 12, **rows))(resumable(miles, loss_mask=[1]))
    assert (sample.tokens, sample.loss_mask) == ([1, 2, 5, 11, 12], [1, 1, 1])
    assert sample.rollout_log_probs == [-0.5, -0.11, -0.12]


def test_nobody_elses_lists_grow(miles: Any) -> None:
    tokens, log_probs, mask = [1, 2, 5], [-0.5], [1]
    Run(miles, finished())(resumable(miles, tokens=tokens, rollout_log_probs=log_probs, loss_mask=mask))
    assert (tokens, log_probs, mask) == ([1, 2, 5], [-0.5], [1])


# ---- replay arrays


def test_replay_arrays(miles: Any) -> None:
    terminal = {"routed_experts": b64(range(16)), "indexer_topk": b64(range(24)), "indexer_topk_num_layers": 3}
    sample = Run(miles, finished(11, 12, 13, **terminal))(miles.Sample(prompt="p"))
    assert sample.rollout_routed_experts.shape == (4, 2, 2)
    assert sample.rollout_routed_experts.dtype == np.int32
    assert sample.rollout_routed_experts.reshape(-1).tolist() == list(range(16))
    assert sample.rollout_indexer_topk.shape == (4, 3, 2)
    assert sample.rollout_indexer_topk.reshape(-1).tolist() == list(range(24))


@pytest.mark.parametrize(
    ("terminal", "message"),
    [
        ({"routed_experts": b64(range(15))}, "routed_experts has 15 elements"),
        ({"indexer_topk": b64(range(8))}, "indexer_topk_num_layers None"),
        ({"indexer_topk": b64(range(8)), "indexer_topk_num_layers": 0}, "indexer_topk_num_layers 0"),
    ],
)
def test_replay_arrays_that_do_not_fit(miles: Any, terminal: dict[str, Any], message: str) -> None:
    with pytest.raises(ReplayError, match=message):
        Run(miles, finished(11, 12, 13, **terminal))(miles.Sample(prompt="p"))


def test_arrays_of_an_earlier_call_do_not_outlive_it(miles: Any) -> None:
    earlier = {"rollout_routed_experts": np.zeros((2, 2, 2)), "rollout_indexer_topk": np.zeros((2, 2, 2))}
    cut = Run(miles, lines_response(stream_of([11], incremental=True)), aborted=True)(resumable(miles, **earlier))
    assert (cut.rollout_routed_experts, cut.rollout_indexer_topk) == (None, None)
    kept = Run(miles, lines_response(stream_of([], incremental=True)), aborted=True)(resumable(miles, **earlier))
    assert kept.rollout_routed_experts is earlier["rollout_routed_experts"]
    over = Run(miles, finished(11))(resumable(miles, **earlier))
    assert (over.rollout_routed_experts, over.rollout_indexer_topk) == (None, None)


# ---- ends


@pytest.mark.parametrize("kind", RESPONSES)
def test_the_abort_is_looked_at_behind_every_chunk(miles: Any, kind: str) -> None:
    response = RESPONSES[kind](stream_of([11, 12, 13], incremental=True, finish=STOP))
    sample = Run(miles, response, aborted=True)(miles.Sample(prompt="p"))
    assert (sample.tokens, sample.response, sample.status) == ([1, 2, 11], "<11>", miles.Sample.Status.ABORTED)


def test_a_finish_reason_wins(miles: Any) -> None:
    sample = Run(miles, finished(), aborted=True)(miles.Sample(prompt="p"))
    assert sample.status == miles.Sample.Status.COMPLETED


def test_nothing_came_before_the_abort(miles: Any) -> None:
    sample = Run(miles, lines_response([]), aborted=True)(miles.Sample(prompt="p"))
    assert (sample.tokens, sample.rollout_log_probs, sample.status) == ([1, 2], None, miles.Sample.Status.ABORTED)


def test_the_end_without_a_finish_reason(miles: Any) -> None:
    sample = miles.Sample(prompt="p")
    with pytest.raises(RuntimeError, match="without a terminal finish_reason"):
        Run(miles, lines_response(stream_of([11], incremental=True)))(sample)
    assert (sample.tokens, sample.response) == ([1, 2, 11], "<11>")


@pytest.mark.parametrize(
    ("chunks", "error", "message"),
    [
        ([{"error": {"message": "CUDA error", "code": 500}}], ServerError, "CUDA error"),
        ([{"error": {"message": "lost", "code": 500}, "index": 0}], ServerError, "lost"),
        ([chunk("a", [[None, 11, None]], 1)], PayloadError, "logprob of token 11 is null"),
        ([{**chunk("a", pairs_of([11]), 1), "index": 1}], ProtocolError, "index 1"),
        (
            [chunk("a", pairs_of([11]), 1, finish_reason={"type": "stop", "matched": "NaN happened"})],
            ServerError,
            "NaN",
        ),
        ([chunk("a", pairs_of([11]), 5)], ProtocolError, "output_token_logprobs"),
    ],
)
def test_failures_are_typed(miles: Any, chunks: list[Any], error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message) as raised:
        Run(miles, lines_response(chunks))(miles.Sample(prompt="p"))
    assert isinstance(raised.value, ValueError)


def test_a_cancellation_keeps_what_came(miles: Any) -> None:
    seen = asyncio.Event()

    async def lines() -> AsyncIterator[str]:
        yield "data: " + json.dumps(stream_of([11], incremental=True)[0])
        seen.set()
        await asyncio.Event().wait()

    run = Run(miles, SimpleNamespace(raise_for_status=lambda: None, aiter_lines=lines))
    sample = miles.Sample(prompt="p")

    async def exercise() -> None:
        task = asyncio.create_task(run.call(sample))
        await seen.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert len(asyncio.all_tasks()) == 1

    asyncio.run(exercise())
    assert (sample.tokens, sample.response, run.client.closed) == ([1, 2, 11], "<11>", 1)


def test_without_miles(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("miles", "miles.rollout", "miles.utils"):
        monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(ModuleNotFoundError, match="needs miles for GenerateFnOutput"):
        _ = adapter.GenerateFnOutput
    with pytest.raises(ModuleNotFoundError, match="needs miles for http_utils"):
        _ = adapter.http_utils
    with pytest.raises(AttributeError, match="has no attribute 'GenerateFnOutpu'"):
        _ = adapter.GenerateFnOutpu


# ---- over a real socket


@pytest.mark.parametrize("profile", ["0.5.9", "0.5.12", "0.5.12-incremental", "0.5.23", "0.5.23-incremental"])
def test_over_http_aborted_on_the_server_and_resumed(miles: Any, profile: str) -> None:
    httpx = pytest.importorskip("httpx", reason="miles' client is httpx's")
    with FakeSGLang(GreedyModel(3), profile=PROFILES[profile], fault=Fault(pieces=7)) as server:
        address = urlsplit(server.url)
        run = Run(
            miles,
            sglang_router_ip=address.hostname,
            sglang_router_port=address.port,
            use_rollout_routing_replay=True,
        )
        sample = miles.Sample(prompt="p")

        async def exercise(abort: bool) -> None:
            async with httpx.AsyncClient(timeout=None, trust_env=False) as client:
                miles.http_utils._http_client = client
                task = asyncio.create_task(run.call(sample, max_new_tokens=24, temperature=0))
                if abort:
                    await asyncio.to_thread(server.wait_until, lambda counters: counters.tokens >= 9)
                    await client.post(f"{server.url}/abort_request", json={"rid": "", "abort_all": True})
                await task

        server.hold(after=9)
        asyncio.run(exercise(True))
        assert sample.status == miles.Sample.Status.ABORTED
        assert sample.response_length >= 9
        assert sample.rollout_routed_experts.shape == (sample.response_length + 1, 2, 4)
        server.release()
        asyncio.run(exercise(False))
        [script] = server.truth(
            {
                "input_ids": [1, 2],
                "sampling_params": {"max_new_tokens": 24},
                "return_logprob": True,
                "return_routed_experts": True,
            }
        )
    assert script.routed_experts is not None
    assert sample.tokens == [1, 2, *script.token_ids]
    assert sample.rollout_log_probs == list(script.logprobs or ())
    assert sample.rollout_routed_experts.reshape(-1, 8).tolist() == [list(row) for row in script.routed_experts.rows]
