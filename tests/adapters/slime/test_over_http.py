"""slime's adapter over a real socket: the fake server in every version that reports lengths, and real httpx."""

from __future__ import annotations

import asyncio
from typing import Any
from urllib.parse import urlsplit

import pytest

from ssefold.adapters import slime as adapter
from ssefold.transports.testing import PROFILES, FakeSGLang, Fault, GreedyModel

from .runs import args_of, state_of

httpx = pytest.importorskip("httpx", reason="slime's client is httpx's")

TOP_P = {"custom_params": {"return_top_p_token_ids": True}}
REPORTING = [name for name, profile in PROFILES.items() if profile.rows_length and profile.family == "sglang"]
SLIMES = [name for name, profile in PROFILES.items() if profile.slime]


class Call:
    """One call against a server, and what the model would have said to the end."""

    def __init__(self, slime: Any, server: FakeSGLang, **args: Any) -> None:
        self.slime = slime
        self.server = server
        self.state = state_of()
        slime.sglang_rollout.GenerateState = lambda _args: self.state
        address = urlsplit(server.url)
        given = {"use_rollout_routing_replay": True, "num_layers": 2, "moe_router_topk": 4, **args}
        if "sglang_incremental_streaming_output" not in given:
            given["sglang_incremental_streaming_output"] = server.profile.incremental
        self.args = args_of(sglang_router_ip=address.hostname, sglang_router_port=address.port, **given)

    def __call__(self, sample: Any, during: Any = None, **params: Any) -> Any:
        return asyncio.run(self.run(sample, during, **params))

    async def run(self, sample: Any, during: Any = None, **params: Any) -> Any:
        async with httpx.AsyncClient(timeout=None, trust_env=False) as client:
            self.slime.http_utils._http_client = client
            params = {"max_new_tokens": 24, "temperature": 0, **params}
            arrived = _appended(sample)
            task = asyncio.create_task(adapter.generate_streaming(self.args, sample, params))
            if during is not None:
                await asyncio.to_thread(self.server.wait_until, during)
                await arrived.wait()
                self.state.aborted = True
                task.cancel()
            return await task

    def truth(self, **params: Any) -> Any:
        payload = {
            "input_ids": [1, 2],
            "sampling_params": {"max_new_tokens": 24, "temperature": 0, **params},
            "return_logprob": True,
            "return_routed_experts": True,
            "stream": True,
        }
        [script] = self.server.truth(payload)
        return script


def _appended(sample: Any) -> asyncio.Event:
    """Set when the first tokens are on the sample."""
    event, append = asyncio.Event(), sample.append_response_tokens

    def noted(*args: Any, **kwargs: Any) -> None:
        append(*args, **kwargs)
        event.set()

    sample.append_response_tokens = noted
    return event


def check(sample: Any, script: Any) -> None:
    assert sample.tokens == [1, 2, *script.token_ids]
    assert sample.rollout_log_probs == list(script.logprobs)
    assert sample.loss_mask == [1] * len(script.token_ids)


@pytest.mark.parametrize("flag", ["given", "absent"])
@pytest.mark.parametrize("profile", REPORTING)
def test_every_version_gives_what_the_model_said(slime: Any, profile: str, flag: str) -> None:
    with FakeSGLang(GreedyModel(3), profile=profile, fault=Fault(pieces=5)) as server:
        call = Call(slime, server, **({} if flag == "given" else {"sglang_incremental_streaming_output": None}))
        sample = call(slime.Sample(prompt="p"), **TOP_P)
        script = call.truth(**TOP_P)
    check(sample, script)
    assert sample.status == slime.Sample.Status.TRUNCATED
    text = b"".join(script.pieces).decode("utf-8", "replace")
    assert sample.response == (
        text if not PROFILES[profile].tokens_only else "".join(f"({t})" for t in script.token_ids)
    )
    routing = script.routed_experts
    assert sample.rollout_routed_experts.reshape(-1, 8).tolist() == [list(row) for row in routing.rows]
    if PROFILES[profile].slime:
        assert sample.rollout_top_p_token_ids.tolist() == [token for row in script.top_p_rows for token in row]
        assert len(sample.rollout_top_p_token_offsets) == 25
    else:
        assert sample.rollout_top_p_token_ids is None


@pytest.mark.parametrize("how", ["disconnect", "direct", "router"])
@pytest.mark.parametrize("profile", SLIMES)
def test_cancelled_and_resumed(slime: Any, profile: str, how: str) -> None:
    """slime's request abort in the middle, then the rest from where it stopped; the server is freed as asked."""
    with FakeSGLang(GreedyModel(3), profile=profile) as server:
        call = Call(slime, server, ssefold_abort=how)
        server.hold(after=9)
        sample = slime.Sample(prompt="p")
        with pytest.raises(asyncio.CancelledError):
            call(sample, during=lambda counters: counters.tokens >= 9 and counters.bytes_sent > 0)
        server.wait_until(lambda counters: counters.running == 0)
        assert bool(server.counters.abort_requests) == (how != "disconnect")
        got = len(sample.tokens) - 2
        check(sample, _head(call.truth(), got))
        server.release()
        call.state.aborted = False
        sample.status = slime.Sample.Status.ABORTED  # what slime's own wrapper does
        resumed = call(sample)
        check(resumed, call.truth())
        assert resumed.status == slime.Sample.Status.TRUNCATED
        assert [seen.path for seen in server.seen if seen.path == "/workers"] == ["/workers"] * (how == "router")


def _head(script: Any, count: int) -> Any:
    from ssefold.transports.testing import Finish, head

    return head(script, count, Finish.length(count))


@pytest.mark.parametrize("profile", SLIMES)
def test_server_abort_keeps_the_replay_arrays_and_resumes_with_them(slime: Any, profile: str) -> None:
    with FakeSGLang(GreedyModel(3), profile=profile) as server:
        call = Call(slime, server)
        server.hold(after=9)
        sample = slime.Sample(prompt="p")

        async def exercise() -> Any:
            async with httpx.AsyncClient(timeout=None, trust_env=False) as client:
                slime.http_utils._http_client = client
                params = {"max_new_tokens": 24, "temperature": 0, **TOP_P}
                task = asyncio.create_task(adapter.generate_streaming(call.args, sample, params))
                await asyncio.to_thread(server.wait_until, lambda counters: counters.tokens >= 9)
                await client.post(f"{server.url}/abort_request", json={"rid": "", "abort_all": True})
                return await task

        aborted = asyncio.run(exercise())
        assert aborted.status == slime.Sample.Status.ABORTED
        kept = len(aborted.rollout_top_p_token_offsets) - 1
        assert kept == aborted.response_length >= 9
        server.release()
        resumed = call(aborted, **TOP_P)
        script = call.truth(**TOP_P)
    check(resumed, script)
    assert resumed.rollout_top_p_token_ids.tolist() == [token for row in script.top_p_rows for token in row]
    assert resumed.rollout_routed_experts.reshape(-1, 8).tolist() == [list(row) for row in script.routed_experts.rows]


def test_http_errors_are_httpx_own(slime: Any) -> None:
    with FakeSGLang(fault=Fault(status=500, body=b"down")) as server:
        call = Call(slime, server, ssefold_abort="direct")
        with pytest.raises(httpx.HTTPStatusError):
            call(slime.Sample(prompt="p"))
        assert server.counters.abort_requests == 0


def test_a_cut_connection_keeps_what_came(slime: Any) -> None:
    with FakeSGLang(GreedyModel(3), profile="0.5.23-incremental", fault=Fault(cut_at=2500)) as server:
        call = Call(slime, server)
        sample = slime.Sample(prompt="p")
        with pytest.raises(httpx.RemoteProtocolError):
            call(sample)
        got = len(sample.tokens) - 2
        assert got > 0
        check(sample, _head(call.truth(), got))


def test_an_error_inside_the_stream(slime: Any) -> None:
    fault = Fault(error={"message": "CUDA error", "code": 500}, error_after=4)
    with FakeSGLang(GreedyModel(3), profile="0.5.23-incremental", fault=fault) as server:
        call = Call(slime, server)
        sample = slime.Sample(prompt="p")
        with pytest.raises(ValueError, match="CUDA error"):
            call(sample)
        check(sample, _head(call.truth(), len(sample.tokens) - 2))


@pytest.mark.parametrize("fault", [Fault(endless=True), Fault(endless=True, no_done=True)], ids=["done", "no done"])
def test_a_body_that_does_not_end(slime: Any, fault: Fault) -> None:
    with FakeSGLang(GreedyModel(3), profile="0.5.23-incremental", fault=fault) as server:
        call = Call(slime, server, ssefold_abort_timeout=0.1)
        check(call(slime.Sample(prompt="p")), call.truth())
        server.wait_until(lambda counters: counters.running == 0)


@pytest.mark.parametrize(
    "fault", [Fault(endless=True), Fault(stall_after=5)], ids=["no end", "cancelled in the middle"]
)
def test_no_slot_of_the_pool_is_lost(slime: Any, fault: Fault) -> None:
    with FakeSGLang(GreedyModel(3), profile="0.5.23-incremental", fault=fault) as server:
        call = Call(slime, server, ssefold_abort_timeout=0.05)

        async def exercise() -> None:
            limits = httpx.Limits(max_connections=1)
            async with httpx.AsyncClient(timeout=httpx.Timeout(None, pool=5), limits=limits, trust_env=False) as client:
                slime.http_utils._http_client = client
                for _ in range(3):
                    sample = slime.Sample(prompt="p")
                    arrived = _appended(sample)
                    task = asyncio.create_task(adapter.generate_streaming(call.args, sample, {"max_new_tokens": 24}))
                    await arrived.wait()
                    if not fault.endless:
                        task.cancel()
                    await asyncio.wait([task])
                    assert task.cancelled() != fault.endless
                assert len(asyncio.all_tasks()) == 1

        asyncio.run(exercise())
        server.wait_until(lambda counters: counters.running == 0)
