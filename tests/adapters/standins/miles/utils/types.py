"""``Sample``, and what it makes of a terminal chunk."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum
from typing import Any


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
    response: str = ""
    response_length: int = 0
    reward: Any = None
    loss_mask: list[int] | None = None
    weight_versions: list[str] = field(default_factory=list[str])
    rollout_log_probs: list[float] | None = None
    rollout_routed_experts: Any = None
    rollout_indexer_topk: Any = None
    rollout_prompt_ids: list[int] | None = None
    routing_key: str | None = None
    status: Status = Status.PENDING
    cached_tokens: int = 0
    terminal: list[dict[str, Any]] = field(default_factory=list[dict[str, Any]])

    def update_from_meta_info(self, args: Any, meta_info: dict[str, Any]) -> None:
        self.terminal.append(meta_info)
        self.cached_tokens += meta_info.get("cached_tokens", 0)
        if "weight_version" in meta_info:
            self.weight_versions.append(meta_info["weight_version"])
        status = Sample.Status
        reached = {"length": status.TRUNCATED, "abort": status.ABORTED, "stop": status.COMPLETED}
        self.status = reached.get(meta_info["finish_reason"]["type"], self.status)

    def validate(self) -> None:
        assert len(self.tokens) >= self.response_length >= 0
        for name in ("loss_mask", "rollout_log_probs"):
            value = getattr(self, name)
            assert value is None or len(value) == self.response_length, name
        for name in ("rollout_routed_experts", "rollout_indexer_topk"):
            value = getattr(self, name)
            assert value is None or len(value) == len(self.tokens) - 1, name
