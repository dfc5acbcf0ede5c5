"""Everything one sample is: the state that applying an update reads and changes.

A container with the few facts that follow from it, and the changes that concern a whole call.  Which changes are
allowed is the matter of ``sample.py`` and ``apply.py``.
"""

from __future__ import annotations

from array import array
from dataclasses import dataclass, field
from typing import Any

from ssefold import FinishReason, ReplayRows
from ssefold.transports._engine import printable_url

from .call import Call, WeightSpan
from .replay import TopPRows
from .text import RolloutText


@dataclass
class Base:
    """Where the running call began: what ``replace`` and ``rollback`` go back to.

    :ivar routed_from: the call's ``routed_experts_start_len``.
    """

    tokens: int = 0
    text: int = 0
    top_rows: int = 0
    spans: int = 0
    routed: ReplayRows | None = None
    routed_from: int = 0


@dataclass
class State:
    """A sample.  Arrays run over the response's tokens.

    :ivar params: the caller's ``sampling_params``, copied.
    :ivar shape: ``(num_layers, top_k)`` of routed experts.
    :ivar logprobs: NaN where the server sent null, or none yet.
    :ivar mask: 1 for sampled tokens.
    :ivar pending: how many of the running call's tokens, the last ones, have no logprob yet.
    :ivar scored: sampled tokens of ended calls that have logprobs; ``unscored`` those that never got one.
    :ivar open: a call is running, or was cut; the last of ``calls`` is it.
    :ivar scores_due: that call asked for logprobs.
    """

    prompt_ids: array[int]
    params: dict[str, Any]
    shape: tuple[int, int] | None
    token_ids: array[int] = field(default_factory=lambda: array("q"))
    logprobs: array[float] = field(default_factory=lambda: array("d"))
    mask: bytearray = field(default_factory=bytearray)
    text: RolloutText = field(default_factory=RolloutText)
    top_p: TopPRows = field(default_factory=TopPRows)
    routed: ReplayRows | None = None
    spans: list[WeightSpan] = field(default_factory=list[WeightSpan])
    calls: list[Call] = field(default_factory=list[Call])
    base: Base = field(default_factory=Base)
    pending: int = 0
    scored: int = 0
    unscored: int = 0
    open: bool = False
    scores_due: bool = False
    index: int | None = None
    finish: FinishReason | None = None

    @property
    def given(self) -> int:
        """Tokens that the running call gave so far."""
        return len(self.token_ids) - self.base.tokens if self.open else 0

    @property
    def scores(self) -> array[float]:
        """The logprobs; empty if no server sent any."""
        return self.logprobs if self.scored or self.given > self.pending else array("d")

    def open_call(self, rid: str | None, source: str | None, routed_from: int, *, scores_due: bool) -> None:
        """A call begins where the response ends now."""
        if source is not None and "://" in source:
            source = printable_url(source)  # a record that travels
        self.close_call()
        self.set_base(routed_from)
        self.calls.append(Call(rid, source, len(self.token_ids), len(self.token_ids), None))
        self.open, self.scores_due = True, scores_due

    def close_call(self) -> None:
        """The running call gives no more."""
        self.calls[:] = self.all_calls()
        self.scored += self.given - self.pending
        self.unscored += self.pending
        self.pending = 0
        self.open, self.index, self.finish = False, None, None

    def extend(self, ids: array[int], text: str) -> None:
        """Tokens that were not sampled end the running call; the next one builds on them."""
        self.close_call()
        self.token_ids.extend(ids)
        self.logprobs.extend([0.0] * len(ids))
        self.mask += bytes(len(ids))
        self.text.put(self.text.length, text)
        self.set_base(0)

    def rollback(self) -> None:
        """Back to where the running call began."""
        base = self.base
        for values in (self.token_ids, self.logprobs, self.mask):
            del values[base.tokens :]
        self.text.put(base.text, "")
        self.top_p.cut(base.top_rows)
        self.routed = base.routed
        del self.spans[base.spans :]
        self.pending, self.finish = 0, None
        self.close_call()

    def set_base(self, routed_from: int) -> None:
        """What is there now is what the next call builds on."""
        self.base = Base(
            len(self.token_ids), self.text.length, len(self.top_p), len(self.spans), self.routed, routed_from
        )

    def all_calls(self) -> tuple[Call, ...]:
        """The calls, the running one as far as it is."""
        if not self.open:
            return tuple(self.calls)
        finish = None if self.finish is None else self.finish.type
        return (*self.calls[:-1], self.calls[-1]._replace(end=len(self.token_ids), finish=finish))
