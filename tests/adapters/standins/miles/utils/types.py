"""``Sample``, and what it makes of the ``meta_info`` of a response."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum
from typing import Any


@dataclass(frozen=True)
class WeightVersionSpan:
    version: str
    abs_start: int
    abs_end: int


@dataclass
class WeightVersionsPerCall:
    """Which weights made which tokens, by position in ``Sample.tokens``; one of these a call."""

    spans: list[WeightVersionSpan] = field(default_factory=list[WeightVersionSpan])

    @classmethod
    def from_meta_info(cls, meta_info: dict[str, Any], output_end: int) -> WeightVersionsPerCall:
        count = len(meta_info.get("output_token_logprobs") or [])
        told = meta_info.get("weight_versions")
        if told is None:
            version = meta_info.get("weight_version")
            told = [] if version is None else [{"version": version, "start": 0, "end": count}]
        assert all(span["end"] <= count for span in told), f"{count} rows came, versions are told of others: {told}"
        start = output_end - count
        return cls(
            [
                WeightVersionSpan(span["version"], start + span["start"], start + span["end"])
                for span in told
                if span["start"] < span["end"]
            ]
        )


@dataclass
class Sample:
    class Status(Enum):
        PENDING = "pending"
        COMPLETED = "completed"
        TRUNCATED = "truncated"
        ABORTED = "aborted"
        FAILED = "failed"

    index: int | None = None
    prompt: Any = ""
    tokens: list[int] = field(default_factory=list[int])
    multimodal_inputs: dict[str, Any] | None = None
    multimodal_train_inputs: dict[str, Any] | None = None
    response: str = ""
    response_length: int = 0
    reward: Any = None
    loss_mask: list[int] | None = None
    weight_versions: list[WeightVersionsPerCall] = field(default_factory=list[WeightVersionsPerCall])
    rollout_log_probs: list[float] | None = None
    rollout_sampling_mask: list[list[int]] | None = None
    rollout_topk_token_ids: Any = None
    rollout_topk_log_probs: Any = None
    rollout_routed_experts: Any = None
    rollout_indexer_topk: Any = None
    rollout_prompt_ids: list[int] | None = None
    adapter: Any = None
    routing_key: str | None = None
    status: Status = Status.PENDING
    cached_tokens: int = 0
    prompt_tokens: int = 0

    @property
    def oldest_weight_version(self) -> int | None:
        versions = [span.version for call in self.weight_versions for span in call.spans]
        return min((int(version) for version in versions if version.isdigit()), default=None)

    def update_from_meta_info(self, args: Any, meta_info: dict[str, Any]) -> None:
        self.cached_tokens += meta_info.get("cached_tokens", 0)
        self.prompt_tokens += meta_info.get("prompt_tokens", 0)
        self.weight_versions.append(WeightVersionsPerCall.from_meta_info(meta_info, len(self.tokens)))
        status = Sample.Status
        reached = {"length": status.TRUNCATED, "abort": status.ABORTED, "stop": status.COMPLETED}
        self.status = reached.get(meta_info["finish_reason"]["type"], self.status)

    def validate(self) -> None:
        assert len(self.tokens) >= self.response_length >= 0
        per_token = ("loss_mask", "rollout_log_probs", "rollout_sampling_mask")
        for name in (*per_token, "rollout_topk_token_ids", "rollout_topk_log_probs"):
            value = getattr(self, name)
            assert value is None or len(value) == self.response_length, name
        for name in ("rollout_routed_experts", "rollout_indexer_topk"):
            value = getattr(self, name)
            assert value is None or len(value) == len(self.tokens) - 1, name
        end = 0
        for span in (span for call in self.weight_versions for span in call.spans):
            assert end <= span.abs_start < span.abs_end <= len(self.tokens), span
            end = span.abs_end
