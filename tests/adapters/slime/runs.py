"""Runs of ``generate_streaming`` against the stand-in for slime."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

from ssefold.adapters import slime as adapter

from ..fakes import Client, Tokenizer


def state_of(**changes: Any) -> SimpleNamespace:
    return SimpleNamespace(**{"tokenizer": Tokenizer(), "processor": None, "aborted": False, **changes})


def args_of(**changes: Any) -> SimpleNamespace:
    given = {
        "ci_test": False,
        "sglang_router_ip": "frontend",
        "sglang_router_port": 8000,
        "use_rollout_routing_replay": False,
        "sglang_incremental_streaming_output": True,
        "router_policy": None,
        "sglang_speculative_algorithm": False,
        "num_layers": 1,
        "moe_router_topk": 1,
        "partial_rollout": False,
        "mask_offpolicy_in_partial_rollout": False,
        "custom_generate_function_path": "ssefold.adapters.slime.generate_streaming",
        **changes,
    }
    return SimpleNamespace(**{name: value for name, value in given.items() if value is not ABSENT})


ABSENT = object()


class Run:
    """One or more calls of ``generate_streaming`` with one state and client."""

    def __init__(self, slime: Any, *responses: Any, state: Any = None, **args: Any) -> None:
        self.state = state_of() if state is None else state
        self.client = Client(*responses)
        self.args = args_of(**args)
        slime.http_utils._http_client = self.client
        slime.sglang_rollout.GenerateState = lambda _args: self.state

    def __call__(self, sample: Any, **params: Any) -> Any:
        return asyncio.run(self.call(sample, **params))

    async def call(self, sample: Any, **params: Any) -> Any:
        return await adapter.generate_streaming(self.args, sample, {"max_new_tokens": 8, **params})
