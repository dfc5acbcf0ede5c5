"""A rollout over fake servers of any version: cut, aborted, shed, moved, extended and resumed in any order.

The truth is the model itself: what it samples depends on the whole context, so a token that was lost, doubled or put in
the wrong place changes everything behind it.
"""

from __future__ import annotations

import pickle
from collections.abc import Iterator
from itertools import chain
from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from ssefold import IncompleteStreamError, ServerError
from ssefold.adapters.rollout import RolloutError, RolloutSample
from ssefold.transports import TransportError
from ssefold.transports.testing import PROFILES, FakeSGLang, Fault, GreedyModel

httpx = pytest.importorskip("httpx", reason="the streams are read with httpx")
from ssefold.transports.httpx import generate  # noqa: E402

MODEL = GreedyModel(11, stop_every=40)
NEW: list[str] = ["0.5.23", "0.5.23-incremental", "0.5.12", "0.5.12-incremental", "0.5.20"]
OLD = ["0.5.9", "0.5.9-incremental", "0.5.10-incremental", "0.5.8"]
SLIMES = [name for name, profile in PROFILES.items() if profile.slime]
CHOICES = st.integers(0, 7)
INTERVALS = st.integers(1, 5)
FLEETS: dict[str, list[str]] = {"new": NEW, "old and new": [*OLD, *NEW], "slime": SLIMES}


class Fleet:
    """Servers that are started when they are first asked for, and one client."""

    def __init__(self) -> None:
        self.servers: dict[str, FakeSGLang] = {}
        # No connection is used twice: one that a fault has closed would fail the request that comes after.
        limits = httpx.Limits(max_keepalive_connections=0)
        self.client = httpx.Client(timeout=None, trust_env=False, limits=limits)

    def __getitem__(self, profile: str) -> FakeSGLang:
        if profile not in self.servers:
            self.servers[profile] = server = FakeSGLang(MODEL, profile=profile)
            server.start()
        return self.servers[profile]

    def stop(self) -> None:
        self.client.close()
        for server in self.servers.values():
            server.stop()
        self.servers.clear()


fleet: Fleet | None = None


@pytest.fixture(scope="module", autouse=True)
def _fleet() -> Iterator[None]:
    global fleet
    fleet = Fleet()
    yield
    fleet.stop()
    fleet = None


class RolloutMachine(RuleBasedStateMachine):
    sample: RolloutSample
    profiles: list[str]

    @initialize(
        kind=st.sampled_from(sorted(FLEETS)),
        prompt=st.lists(st.integers(5, 500), min_size=1, max_size=4),
        budget=st.integers(1, 30),
        routed=st.booleans(),
        rows=st.booleans(),
    )
    def begin(self, kind: str, prompt: list[int], budget: int, routed: bool, rows: bool) -> None:
        self.profiles = FLEETS[kind]
        params: dict[str, Any] = {"max_new_tokens": budget, "temperature": 0}
        self.wants_rows = rows and kind == "slime"
        if self.wants_rows:
            params["custom_params"] = {"return_top_p_token_ids": True}
        self.routed = routed and kind != "old and new"
        layers, top_k = (2, 4) if self.routed else (None, None)
        self.sample = RolloutSample(prompt, sampling_params=params, num_layers=layers, top_k=top_k)

    # ---- calls

    def _payload(self, source: str) -> dict[str, Any]:
        try:
            return self.sample.next_payload(source=source)
        except RolloutError:
            # Only tokens without the rows that were asked for stop a call.
            assert self.wants_rows
            self.sample.rollback()
            return self.sample.next_payload(source=source)

    def _call(self, choice: int, interval: int, fault: Fault | None = None, *, stop_after: int | None = None) -> None:
        """A call to one of the servers; ``stop_after``: leave it behind so many updates."""
        assert fleet is not None
        server = fleet[self.profiles[choice % len(self.profiles)]]
        payload = self._payload(server.profile.name)
        payload["sampling_params"]["stream_interval"] = interval
        if fault is not None:
            server.fault_next(fault)
        try:
            with generate(fleet.client, f"{server.url}/generate", payload) as stream:
                for count, update in enumerate(stream, 1):
                    self.sample.apply(update)
                    if count == stop_after:
                        return
        except (TransportError, IncompleteStreamError, ServerError):
            assert fault is not None

    def _may_go_on(self) -> bool:
        return not self.sample.done

    @precondition(_may_go_on)
    @rule(choice=CHOICES, interval=INTERVALS)
    def to_the_end(self, choice: int, interval: int) -> None:
        self._call(choice, interval)
        assert self.sample.done

    @precondition(_may_go_on)
    @rule(choice=CHOICES, interval=INTERVALS, updates=st.integers(1, 6))
    def closed_by_the_reader(self, choice: int, interval: int, updates: int) -> None:
        self._call(choice, interval, stop_after=updates)

    @precondition(_may_go_on)
    @rule(choice=CHOICES, tokens=st.integers(1, 6))
    def aborted_on_the_server(self, choice: int, tokens: int) -> None:
        assert fleet is not None
        server = fleet[self.profiles[choice % len(self.profiles)]]
        payload = self._payload(server.profile.name)
        before = len(self.sample.token_ids)
        server.hold(after=tokens)
        try:
            with generate(fleet.client, f"{server.url}/generate", payload) as stream:
                for update in stream:
                    self.sample.apply(update)
                    if len(self.sample.token_ids) == before + tokens and self.sample.finish_reason is None:
                        stream.abort()
        finally:
            server.release()
        assert self.sample.finish_reason is not None

    @precondition(_may_go_on)
    @rule(
        choice=CHOICES,
        interval=INTERVALS,
        size=st.integers(0, 6000),
        how=st.sampled_from(["fin", "clean"]),
        pieces=st.integers(0, 99),
    )
    def cut_at_any_byte(self, choice: int, interval: int, size: int, how: Any, pieces: int) -> None:
        self._call(choice, interval, Fault(cut_at=size, cut=how, pieces=pieces))

    @precondition(_may_go_on)
    @rule(choice=CHOICES, interval=INTERVALS, after=st.integers(0, 9))
    def failed_inside(self, choice: int, interval: int, after: int) -> None:
        self._call(choice, interval, Fault(error={"message": "CUDA error", "code": 500}, error_after=after))

    @precondition(_may_go_on)
    @rule(choice=CHOICES)
    def shed(self, choice: int) -> None:
        before = len(self.sample.token_ids)
        self._call(choice, 1, Fault(overloaded=True))
        assert len(self.sample.token_ids) <= before

    # ---- between calls

    @rule(ids=st.lists(st.integers(5, 500), max_size=4))
    def extended(self, ids: list[int]) -> None:
        try:
            self.sample.extend(ids)
        except RolloutError:
            assert self.wants_rows
            self.sample.rollback()
            self.sample.extend(ids)

    @rule(pickled=st.booleans())
    def moved(self, pickled: bool) -> None:
        old = self.sample
        self.sample = pickle.loads(pickle.dumps(old)) if pickled else RolloutSample.from_bytes(old.to_bytes())
        assert self.sample == old

    @rule()
    def rolled_back(self) -> None:
        self.sample.rollback()

    # ---- what always holds

    @invariant()
    def lengths(self) -> None:
        sample = self.sample
        count = len(sample.token_ids)
        assert len(sample.loss_mask) == count
        assert len(sample.logprobs) in (0, count)
        assert all(0 <= call.start <= call.end <= count for call in sample.calls)
        limit = sample.sampling_params["max_new_tokens"]
        assert sum(sample.loss_mask) <= limit

    @invariant()
    def every_sampled_token_is_the_models(self) -> None:
        sample = self.sample
        sampled = [0] * len(sample.token_ids)
        for call in sample.calls:
            start, end = call.start, call.end
            if start == end:
                continue
            sampled[start:end] = [1] * (end - start)
            script = self._truth([*sample.prompt_ids, *sample.token_ids[:start]], end - start)
            assert sample.token_ids[start:end] == script.token_ids
            assert tuple(sample.logprobs[start:end]) == script.logprobs
            if sample.top_p is not None and len(sample.top_p) >= end:
                assert [tuple(sample.top_p.kept(i)) for i in range(start, end)] == list(script.top_p_rows)
        assert sample.loss_mask == tuple(sampled)
        if sample.top_p is not None:
            assert not any(len(sample.top_p.kept(i)) for i in range(len(sample.top_p)) if not sampled[i])

    @invariant()
    def routing_is_the_models(self) -> None:
        placed = self.sample.routed_experts
        if placed is None:
            return
        whole = [*self.sample.prompt_ids, *self.sample.token_ids]
        assert placed.rows < len(whole)
        script = self._truth(whole[: placed.rows], 1)
        rows: Any = placed.array.tolist()
        assert [tuple(chain.from_iterable(row)) for row in rows] == list(script.routed_experts.rows)

    @invariant()
    def finished_samples_have_everything(self) -> None:
        sample = self.sample
        if sample.finish_reason is None or sample.finish_reason.type not in ("stop", "length"):
            return
        if sample.calls[-1].end == sample.calls[-1].start:
            return
        assert not self.wants_rows or sample.top_p is not None
        if self.routed:
            assert sample.routed_experts is not None
            assert sample.routed_experts.rows == len(sample.prompt_ids) + len(sample.token_ids) - 1

    def _truth(self, context: list[int], count: int) -> Any:
        assert fleet is not None
        payload = {
            "input_ids": context,
            "sampling_params": {
                "max_new_tokens": count,
                "custom_params": {"return_top_p_token_ids": True},
            },
            "return_logprob": True,
            "return_routed_experts": True,
        }
        [script] = fleet[self.profiles[0]].truth(payload)
        return script


RolloutMachine.TestCase.settings = settings(
    stateful_step_count=15, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large]
)
TestRollout = RolloutMachine.TestCase
