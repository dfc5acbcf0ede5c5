"""What ``ssefold demo`` does: stream a rollout, cut it, resume it elsewhere, compare it with one that was never cut.

Everything goes over real sockets to fake servers on loopback.  How it is shown is a view's matter (``cli_demo_view``);
nothing here prints.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, Protocol

import httpx

from ssefold import Update
from ssefold.transports.httpx import generate
from ssefold.transports.testing import PROFILES, FakeSGLang

from ...rollout import RolloutSample
from .model import ROUTING_SHAPE, demo_model

if TYPE_CHECKING:
    from ssefold.transports import GenerateStream

PROMPT = tuple(b"Tell me a story:")
TOKENS, CUT_AFTER = 32, 13


@dataclass(frozen=True)
class Round:
    """One rollout of the demo.

    :ivar first: profile of the server that is cut off; :ivar then: of the one that goes on.
    :ivar cut: by closing the connection, or by asking the server to abort and reading on to the terminal chunk.
    :ivar replay: ask for the replay arrays too (they come with a terminal chunk only).
    """

    title: str
    first: str
    then: str
    cut: Literal["disconnect", "abort"]
    replay: bool


ROUNDS = (
    Round("cut by closing the connection", "0.5.23", "0.5.23-incremental", "disconnect", replay=False),
    Round(
        "cut by /abort_request, replay arrays kept",
        "0.5.15.post1-incremental-slime",
        "0.5.15.post1-slime",
        "abort",
        replay=True,
    ),
)


@dataclass(frozen=True)
class Comparison:
    """One thing about the resumed rollout beside the same of the uninterrupted one.

    :ivar equal: how many of ``total`` entries are the same.
    :ivar difference: the first that is not, in words; empty if there is none.
    """

    what: str
    equal: int
    total: int
    difference: str = ""

    @property
    def holds(self) -> bool:
        """All entries are the same, and there are some."""
        return not self.difference and self.equal == self.total > 0


class View(Protocol):
    """Who watches."""

    @property
    def pace(self) -> float:
        """Seconds that the servers take for a token, so that eyes can follow."""
        ...

    def begins(self, round_: Round, number: int, sample: RolloutSample) -> None:
        """A round begins."""

    def updated(self, sample: RolloutSample, update: Update) -> None:
        """An update was applied."""

    def was_cut(self, sample: RolloutSample, size: int) -> None:
        """The stream is gone; the partial sample is so many bytes."""

    def resumes(self, sample: RolloutSample, payload: dict[str, Any]) -> None:
        """The rest is asked for."""

    def compared(self, comparisons: Sequence[Comparison]) -> None:
        """The verdict."""


def server_name(profile: str) -> str:
    """A server, as people call it."""
    found = PROFILES[profile]
    version = ".".join(map(str, found.version)) + (".post1, slime's image" if found.slime else "")
    return f"SGLang {version}, {'--incremental-streaming-output' if found.incremental else 'cumulative chunks'}"


async def play(round_: Round, number: int, view: View) -> tuple[RolloutSample, list[Comparison]]:
    """One round; returns the resumed sample and how it compares."""
    with (
        FakeSGLang(demo_model, profile=round_.first, token_delay=view.pace) as first,
        FakeSGLang(demo_model, profile=round_.then, token_delay=view.pace) as then,
        FakeSGLang(demo_model, profile=round_.first) as undisturbed,
    ):
        async with httpx.AsyncClient(trust_env=False) as client:
            # No machine is too fast for the cut to come in the middle.
            first.hold(after=CUT_AFTER)
            sample = _new_sample(round_)
            view.begins(round_, number, sample)
            payload = sample.next_payload(source=first.url)
            async with generate(client, f"{first.url}/generate", payload) as stream:
                await _read_and_cut(stream, sample, round_, view)
            stored = sample.to_bytes()
            view.was_cut(sample, len(stored))

            sample = RolloutSample.from_bytes(stored)
            payload = sample.next_payload(source=then.url)
            view.resumes(sample, payload)
            async with generate(client, f"{then.url}/generate", payload) as stream:
                async for update in stream:
                    sample.apply(update)
                    view.updated(sample, update)

            whole = _new_sample(round_)
            async with generate(client, f"{undisturbed.url}/generate", whole.next_payload()) as stream:
                async for update in stream:
                    whole.apply(update)
    comparisons = compare(sample, whole)
    view.compared(comparisons)
    return sample, comparisons


def compare(sample: RolloutSample, whole: RolloutSample) -> list[Comparison]:
    """Entry by entry, and exactly: a logprob that differs in its last bit differs."""
    comparisons = [
        _entries("token ids", sample.token_ids, whole.token_ids),
        _entries("logprobs", sample.logprobs, whole.logprobs),
        _entries("characters of text", sample.text, whole.text),
    ]
    if sample.top_p is not None or whole.top_p is not None:
        comparisons.append(_entries("top-p rows", _top_p_rows(sample), _top_p_rows(whole)))
    if sample.routed_experts is not None or whole.routed_experts is not None:
        comparisons.append(_entries("routed-experts rows", _routed_rows(sample), _routed_rows(whole)))
    return comparisons


def _new_sample(round_: Round) -> RolloutSample:
    params: dict[str, Any] = {"max_new_tokens": TOKENS, "top_p": 0.95}
    if not round_.replay:
        return RolloutSample(PROMPT, sampling_params=params)
    params["custom_params"] = {"return_top_p_token_ids": True}
    layers, top_k = ROUTING_SHAPE
    return RolloutSample(PROMPT, sampling_params=params, num_layers=layers, top_k=top_k)


async def _read_and_cut(stream: GenerateStream, sample: RolloutSample, round_: Round, view: View) -> None:
    asked = False
    async for update in stream:
        sample.apply(update)
        view.updated(sample, update)
        if asked or len(sample.token_ids) < CUT_AFTER:
            continue
        if round_.cut == "disconnect":
            return
        asked = True
        await stream.abort()


def _entries(what: str, ours: Sequence[Any], theirs: Sequence[Any]) -> Comparison:
    total = max(len(ours), len(theirs))
    equal = sum(one == other for one, other in zip(ours, theirs, strict=False))
    if equal == total:
        return Comparison(what, equal, total)
    at = next(
        (i for i, (one, other) in enumerate(zip(ours, theirs, strict=False)) if one != other),
        min(len(ours), len(theirs)),
    )
    resumed = repr(ours[at]) if at < len(ours) else "missing"
    uninterrupted = repr(theirs[at]) if at < len(theirs) else "missing"
    return Comparison(what, equal, total, f"at {at}: {resumed} resumed, {uninterrupted} uninterrupted")


def _top_p_rows(sample: RolloutSample) -> list[list[int]]:
    replay = sample.top_p
    return [] if replay is None else [replay.kept(i).tolist() for i in range(len(replay))]


def _routed_rows(sample: RolloutSample) -> list[Any]:
    placed = sample.routed_experts
    return [] if placed is None else placed.array.tolist()
