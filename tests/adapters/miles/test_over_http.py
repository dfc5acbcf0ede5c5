"""miles' adapter over a real socket."""

from __future__ import annotations

import asyncio
from typing import Any
from urllib.parse import urlsplit

import pytest

from ssefold.transports.testing import PROFILES, FakeSGLang, Fault, GreedyModel

from ..servers import model
from .runs import Run

np = pytest.importorskip("numpy", reason="miles' replay arrays are NumPy's")


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


@pytest.mark.parametrize(
    "fault",
    [Fault(status=500, body=b"down"), Fault(refuse=True), Fault(overloaded=True), Fault(cut_at=0)],
    ids=["status 500", "closed without a word", "overloaded", "empty body"],
)
def test_another_attempt(miles: Any, fault: Fault) -> None:
    httpx = pytest.importorskip("httpx", reason="miles' client is httpx's")
    with FakeSGLang(GreedyModel(3), profile="0.5.23-incremental") as server:
        server.fault_next(fault, fault)
        address = urlsplit(server.url)
        run = Run(miles, sglang_router_ip=address.hostname, sglang_router_port=address.port)
        sample = miles.Sample(prompt="p")

        async def exercise() -> None:
            async with httpx.AsyncClient(timeout=None, trust_env=False) as client:
                miles.http_utils._http_client = client
                await run.call(sample, max_new_tokens=24, temperature=0)

        asyncio.run(exercise())
        assert server.counters.requests == 3
        payload = {"input_ids": [1, 2], "sampling_params": {"max_new_tokens": 24}, "return_logprob": True}
        [script] = server.truth(payload)
    assert sample.tokens == [1, 2, *script.token_ids]
    assert sample.rollout_log_probs == list(script.logprobs or ())
    assert len(sample.weight_versions) == 1


@pytest.mark.parametrize("how", ["disconnect", "direct", "router"])
@pytest.mark.parametrize("profile", ["0.5.12", "0.5.23-incremental"])
def test_cancelled_and_resumed(miles: Any, profile: str, how: str) -> None:
    """Tokens, and the weights that made them, stay; the server is freed as asked; the next call brings the rest."""
    httpx = pytest.importorskip("httpx", reason="miles' client is httpx's")
    with FakeSGLang(model, profile=profile) as server:
        address = urlsplit(server.url)
        run = Run(
            miles, sglang_router_ip=address.hostname, sglang_router_port=address.port, ssefold_abort=how, num_layers=2
        )
        sample = miles.Sample(prompt="p")

        async def exercise(cancel: bool) -> None:
            async with httpx.AsyncClient(timeout=None, trust_env=False) as client:
                miles.http_utils._http_client = client
                task = asyncio.create_task(run.call(sample, max_new_tokens=24, temperature=0))
                if cancel:
                    while len(sample.tokens) < 2 + 9:
                        await asyncio.to_thread(server.wait_until, lambda counters: counters.tokens >= 9)
                    task.cancel()
                    with pytest.raises(asyncio.CancelledError):
                        await task
                else:
                    await task

        server.hold(after=9)
        asyncio.run(exercise(cancel=True))
        server.wait_until(lambda counters: counters.running == 0)
        assert bool(server.counters.abort_requests) == (how != "disconnect")
        assert (len(sample.tokens), sample.status) == (11, miles.Sample.Status.PENDING)
        assert [(span.version, span.abs_start, span.abs_end) for span in sample.weight_versions[0].spans] == [
            ("6", 2, 7),
            ("7", 7, 11),
        ]
        server.release()
        asyncio.run(exercise(cancel=False))
        payload = {"input_ids": [1, 2], "sampling_params": {"max_new_tokens": 24}, "return_logprob": True}
        [script] = server.truth(payload)
    assert sample.tokens == [1, 2, *script.token_ids]
    assert sample.rollout_log_probs == list(script.logprobs or ())
    assert (len(sample.weight_versions), sample.oldest_weight_version) == (2, 6)
