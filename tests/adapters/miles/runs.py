"""Runs of ``generate`` against the stand-in for miles."""

from __future__ import annotations

import asyncio
import copy
from types import SimpleNamespace
from typing import Any

from ssefold.adapters import miles as adapter

from ..fakes import STOP, Client, Tokenizer, lines_response, stream_of


class Run:
    """One or more calls of ``generate`` with one state and client."""

    def __init__(self, miles: Any, *responses: Any, aborted: bool = False, **args: Any) -> None:
        given = {
            "sglang_router_ip": "frontend",
            "sglang_router_port": 8000,
            "rollout_max_response_len": 8,
            "rollout_max_context_len": None,
            "use_rollout_routing_replay": False,
            "use_rollout_indexer_replay": False,
            "use_sampling_mask": False,
            "use_output_store": False,
            "rollout_top_logprobs_num": 0,
            "rollout_sampling_logprobs_mode": "selected",
            "sglang_speculative_algorithm": None,
            "num_layers": 2,
            **args,
        }
        self.miles = miles
        self.state = SimpleNamespace(
            args=SimpleNamespace(**given), tokenizer=Tokenizer(), processor=None, aborted=aborted
        )
        self.client: Any = Client(*responses)
        miles.http_utils._http_client = self.client

    def __call__(self, sample: Any, **params: Any) -> Any:
        return asyncio.run(self.call(sample, **params))

    async def call(self, sample: Any, evaluation: bool = False, **params: Any) -> Any:
        given = {"max_new_tokens": 8, **params}
        before = copy.deepcopy(given)
        input_ = self.miles.base_types.GenerateFnInput(self.state, sample, given, evaluation)
        try:
            output = await adapter.generate(input_)
        finally:
            assert given == before
        assert type(output) is self.miles.base_types.GenerateFnOutput
        assert output.samples is sample
        sample.validate()
        return sample

    @property
    def payloads(self) -> list[dict[str, Any]]:
        return [payload for _, payload, _ in self.client.requests]


def finished(*tokens: int, **terminal: Any) -> Any:
    return lines_response(stream_of(list(tokens) or [11], incremental=True, finish=STOP, **terminal))


def resumable(miles: Any, **changes: Any) -> Any:
    given = {
        "prompt": "p",
        "tokens": [1, 2, 5],
        "response": "five",
        "response_length": 1,
        "rollout_log_probs": [-0.5],
        "status": miles.Sample.Status.ABORTED,
    }
    return miles.Sample(**{**given, **changes})
