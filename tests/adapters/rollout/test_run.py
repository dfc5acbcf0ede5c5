"""Failover: which failures are gone on from, in which order servers are asked, and that nothing is lost or doubled."""

from __future__ import annotations

import asyncio
import pickle
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from itertools import chain
from random import Random
from typing import Any

import pytest

from ssefold import FinishReason, IncompleteStreamError, ProtocolError, ServerError, StreamError, Update
from ssefold.adapters.rollout import FailoverError, RolloutError, RolloutSample, run
from ssefold.transports import TransportError
from ssefold.transports.testing import FakeSGLang, Fault, GreedyModel

LENGTH = FinishReason({"type": "length", "length": 6})
TOKENS = list(range(11, 17))


class Servers:
    """A transport: each call gives some tokens of the truth, and then fails or finishes."""

    def __init__(self, *outcomes: Any) -> None:
        self.outcomes = list(outcomes)
        self.asked: list[str] = []

    @asynccontextmanager
    async def __call__(self, url: str, payload: dict[str, Any]) -> AsyncIterator[AsyncIterator[Update]]:
        self.asked.append(url)
        yield self._updates(payload, self.outcomes.pop(0))

    async def _updates(self, payload: dict[str, Any], outcome: Any) -> AsyncIterator[Update]:
        have = len(payload["input_ids"]) - 2
        assert payload["input_ids"] == [1, 2, *TOKENS[:have]]
        assert payload["sampling_params"]["max_new_tokens"] == 6 - have
        count, end = outcome
        ids = tuple(TOKENS[have : have + count])
        for at, token in enumerate(ids):
            yield Update(start=at, token_ids=(token,), logprobs=(-0.5,), text="x", text_start=at)
        if isinstance(end, Exception):
            raise end
        yield Update(start=len(ids), text_start=len(ids), finish_reason=end)


def sample_of(**params: Any) -> RolloutSample:
    return RolloutSample([1, 2], sampling_params={"max_new_tokens": 6, **params})


SHED = FinishReason({"type": "abort", "message": "queue full", "status_code": 503})
ABORTED = FinishReason({"type": "abort", "message": "Aborted", "status_code": None})
REFUSED = FinishReason({"type": "abort", "message": "bad", "status_code": 400})

ELSEWHERE = {
    "no connection": TransportError("refused", retryable=True),
    "cut": TransportError("reset"),
    "status 503": TransportError("busy", status_code=503),
    "status 502": TransportError("gateway", status_code=502),
    "status 429": TransportError("slow down", status_code=429),
    "early end": IncompleteStreamError("the body ended"),
    "error event": ServerError("CUDA error", code=500),
    "error event without code": ServerError("oops"),
    "error event with a named code": ServerError("oops", code="internal"),
    "shed": SHED,
}
FINAL = {
    "status 400": TransportError("bad request", status_code=400),
    "status 401": TransportError("who are you", status_code=401),
    "error event 400": ServerError("input too long", code=400),
    "contradiction": ProtocolError("ids changed"),
}


@pytest.mark.parametrize("kind", ELSEWHERE)
def test_goes_on_elsewhere(kind: str) -> None:
    servers = Servers((2, ELSEWHERE[kind]), (4, LENGTH))
    sample = sample_of()
    assert asyncio.run(run(sample, ["http://a", "http://b"], servers, attempts=2)) is sample
    assert sample.token_ids == TOKENS
    assert servers.asked == ["http://a/generate", "http://b/generate"]
    assert [(call.source, call.start, call.end) for call in sample.calls] == [("http://a", 0, 2), ("http://b", 2, 6)]


@pytest.mark.parametrize("kind", ELSEWHERE)
def test_is_off_unless_asked_for(kind: str) -> None:
    servers = Servers((2, ELSEWHERE[kind]))
    sample = sample_of()
    with pytest.raises(ServerError if kind == "shed" else StreamError) as raised:
        asyncio.run(run(sample, ["http://a", "http://b"], servers))
    assert kind == "shed" or raised.value is ELSEWHERE[kind]
    assert sample.token_ids == TOKENS[:2]


@pytest.mark.parametrize("kind", FINAL)
def test_what_no_other_server_makes_right_is_raised(kind: str) -> None:
    servers = Servers((2, FINAL[kind]))
    sample = sample_of()
    with pytest.raises(StreamError) as raised:
        asyncio.run(run(sample, ["http://a", "http://b"], servers, attempts=9))
    assert raised.value is FINAL[kind]
    assert (sample.token_ids, len(servers.asked)) == (TOKENS[:2], 1)


def test_a_refused_sample_is_done() -> None:
    sample = asyncio.run(run(sample_of(), ["http://a"], Servers((0, REFUSED)), attempts=9))
    assert sample.status == "failed"


def test_an_abort_that_somebody_asked_for_is_no_failure() -> None:
    servers = Servers((2, ABORTED), (4, LENGTH))
    sample = asyncio.run(run(sample_of(), ["http://a"], servers, attempts=9))
    assert (sample.status, sample.token_ids, len(servers.asked)) == ("aborted", TOKENS[:2], 1)
    asyncio.run(run(sample, ["http://a"], servers, attempts=9))
    assert (sample.status, sample.token_ids) == ("truncated", TOKENS)


def test_the_budget_of_attempts() -> None:
    errors = [TransportError(f"down {at}") for at in range(3)]
    servers = Servers(*[(1, error) for error in errors])
    sample = sample_of()
    with pytest.raises(
        FailoverError, match=r"3 attempts failed, the sample has 3 tokens .*http://a: TransportError: down 2"
    ) as raised:
        asyncio.run(run(sample, ["http://a", "http://b"], servers, attempts=3))
    assert raised.value.failures == (("http://a", errors[0]), ("http://b", errors[1]), ("http://a", errors[2]))
    assert raised.value.__cause__ is errors[2]
    assert sample.token_ids == TOKENS[:3]


def test_secrets_of_endpoints_are_nowhere(caplog: pytest.LogCaptureFixture) -> None:
    """User, password and query go to the transport, and into no message, repr, record or byte string."""
    endpoints = ["http://user-x:pass-x@a/generate?key=query-x", "http://b/generate?key=query-x#query-x"]
    servers = Servers((1, TransportError(f"no answer from {endpoints[0]}")), (1, TransportError("reset")))
    sample = sample_of()
    with pytest.raises(FailoverError) as raised:
        asyncio.run(run(sample, endpoints, servers, attempts=2))
    assert servers.asked == endpoints
    assert [place for place, _ in raised.value.failures] == ["http://a/generate", "http://b/generate"]
    assert [call.source for call in sample.calls] == ["http://a/generate", "http://b/generate"]
    places = " ".join(place for place, _ in raised.value.failures)
    left = [str(raised.value), repr(raised.value), places, repr(sample), repr(sample.calls), caplog.text]
    for secret in ("user-x", "pass-x", "query-x"):
        assert not any(secret in words for words in left)
        assert secret.encode() not in sample.to_bytes()
        assert secret.encode() not in pickle.dumps(sample)


@pytest.mark.parametrize("source", ["a", "node 7?", None])
def test_a_source_that_is_no_url_is_kept_as_it_is(source: str | None) -> None:
    sample = sample_of()
    sample.next_payload(source=source)
    assert sample.calls[0].source == source


def test_a_finished_sample_needs_no_call() -> None:
    sample = sample_of(max_new_tokens=0)
    assert asyncio.run(run(sample, [], Servers())) is sample


@pytest.mark.parametrize(("endpoints", "attempts"), [([], 1), (["http://a"], 0)])
def test_arguments(endpoints: list[str], attempts: int) -> None:
    with pytest.raises(RolloutError):
        asyncio.run(run(sample_of(), endpoints, Servers(), attempts=attempts))


@pytest.mark.parametrize(
    ("endpoint", "url"),
    [
        ("http://a:1", "http://a:1/generate"),
        ("http://a:1/", "http://a:1/generate"),
        ("http://a:1/generate", "http://a:1/generate"),
        ("http://a:1/v2/generate?x=1", "http://a:1/v2/generate?x=1"),
    ],
)
def test_urls(endpoint: str, url: str) -> None:
    servers = Servers((6, LENGTH))
    sample = asyncio.run(run(sample_of(), [endpoint], servers))
    assert (servers.asked, sample.calls[0].source) == ([url], endpoint.partition("?")[0])


def test_tokens_that_can_not_be_built_on_are_sampled_again() -> None:
    """Rows come with the terminal chunk: a call that was cut has none."""
    servers = Servers((2, TransportError("cut")), (6, LENGTH))
    sample = sample_of(custom_params={"return_top_p_token_ids": True})
    asyncio.run(run(sample, ["http://a"], servers, attempts=2))
    assert sample.token_ids == TOKENS
    assert [(call.start, call.end) for call in sample.calls] == [(0, 0), (0, 6)]


def test_a_cancellation_keeps_what_came() -> None:
    sample = sample_of()

    async def exercise() -> None:
        arrived = asyncio.Event()

        @asynccontextmanager
        async def transport(url: str, payload: dict[str, Any]) -> AsyncIterator[AsyncIterator[Update]]:
            async def updates() -> AsyncIterator[Update]:
                yield Update(token_ids=(11,), logprobs=(-0.5,), text="x")
                arrived.set()
                await asyncio.Event().wait()

            yield updates()

        task = asyncio.create_task(run(sample, ["http://a"], transport, attempts=9))
        await arrived.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(exercise())
    assert (sample.token_ids, sample.status) == ([11], "partial")


# ---- chaos

NAMES = ["0.5.23", "0.5.23-incremental", "0.5.12-incremental", "0.5.12", "0.5.15.post1-incremental-slime"]


class Fleet:
    """Servers of which one after another is killed; ``endpoints`` is kept up to date."""

    def __init__(self, seed: int, size: int) -> None:
        self.random = Random(seed)
        self.names = NAMES
        self.servers = [self._started() for _ in range(size)]
        self.endpoints = [server.url for server in self.servers]
        self.killed = 0

    def _started(self) -> FakeSGLang:
        faults = [Fault(), Fault(pieces=3), Fault(cut_at=self.random.randrange(200, 6000)), Fault(overloaded=True)]
        server = FakeSGLang(
            GreedyModel(5, stop_every=90),
            profile=self.random.choice(self.names),
            interval=self.random.randint(1, 3),
            max_running=4,
        )
        server.start()
        server.fault_next(Fault(cut_at=1500), *self.random.choices(faults, k=4))
        return server

    def kill_one(self) -> None:
        """Kill a server as soon as it has decoded some more tokens, and put another in its place."""
        at = self.random.randrange(len(self.servers))
        server = self.servers[at]
        goal = server.counters.tokens + self.random.randint(1, 20)
        with suppress(TimeoutError):  # nobody asks it: it dies all the same
            server.wait_until(lambda counters: counters.tokens >= goal, timeout=0.2)
        server.stop()
        self.killed += 1
        self.servers[at] = self._started()
        self.endpoints[at] = self.servers[at].url

    def stop(self) -> None:
        for server in self.servers:
            server.stop()


@pytest.mark.parametrize("seed", range(3))
def test_chaos(seed: int) -> None:
    """Servers die at random; every sample ends as if nothing had happened."""
    httpx = pytest.importorskip("httpx", reason="the streams are read with httpx")
    from ssefold.transports.httpx import generate

    fleet = Fleet(seed, size=3)
    prompts = [[20 + at, 30 + at] for at in range(8)]
    samples = [
        RolloutSample(prompt, sampling_params={"max_new_tokens": 60, "temperature": 0}, num_layers=2, top_k=4)
        for prompt in prompts
    ]

    async def chaos(done: asyncio.Event) -> None:
        while not done.is_set():
            await asyncio.to_thread(fleet.kill_one)

    async def exercise() -> None:
        done = asyncio.Event()
        async with httpx.AsyncClient(timeout=None, trust_env=False) as client:
            killer = asyncio.create_task(chaos(done))

            def transport(url: str, payload: dict[str, Any]) -> Any:
                return generate(client, url, payload)

            await asyncio.gather(*(run(sample, fleet.endpoints, transport, attempts=200) for sample in samples))
            done.set()
            await killer

    try:
        asyncio.run(exercise())
        for sample in samples:
            payload = {
                "input_ids": list(sample.prompt_ids),
                "sampling_params": {"max_new_tokens": 60},
                "return_logprob": True,
                "return_routed_experts": True,
            }
            [script] = fleet.servers[0].truth(payload)
            assert sample.token_ids == script.token_ids
            assert tuple(sample.logprobs) == script.logprobs
            assert sample.loss_mask == (1,) * len(script.token_ids)
            assert sample.routed_experts is not None
            rows: Any = sample.routed_experts.array.tolist()
            routing = script.routed_experts
            assert routing is not None
            assert [tuple(chain.from_iterable(row)) for row in rows] == list(routing.rows)
            spans = [(call.start, call.end) for call in sample.calls if call.end > call.start]
            assert [start for start, _ in spans] == [0, *(end for _, end in spans[:-1])]
            assert spans[-1][1] == len(script.token_ids)
        assert any(len(sample.calls) > 1 for sample in samples)
    finally:
        fleet.stop()
    assert fleet.killed > 0
