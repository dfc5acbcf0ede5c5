"""What goes into an inference engine and what comes out."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any


@dataclass
class GenerationHyperparameters:
    max_new_tokens: int = 24
    top_p: float = 1.0
    temperature: float = 1.0
    greedy: bool = True


@dataclass
class ModelRequest:
    input_ids: list[int]
    gconfig: GenerationHyperparameters = field(default_factory=GenerationHyperparameters)
    metadata: dict[str, Any] = field(default_factory=dict[str, Any])

    def copy(self) -> ModelRequest:
        return ModelRequest(list(self.input_ids), replace(self.gconfig), dict(self.metadata))


@dataclass
class ModelResponse:
    input_tokens: list[int]
    output_tokens: list[int]
    output_logprobs: list[float]
    output_versions: list[int]
    stop_reason: str
