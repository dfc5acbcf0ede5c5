"""Every field of a sample is what miles' function that does not stream makes of it: all servers, aborts, resumes."""

from __future__ import annotations

from typing import Any
from urllib.parse import urlsplit

import pytest

from ssefold.adapters import miles as adapter
from ssefold.transports.testing import PROFILES

from ..servers import PLAIN, fields_of, runs
from .runs import Run

pytest.importorskip("httpx", reason="miles' client is httpx's")
pytest.importorskip("numpy", reason="miles' replay arrays are NumPy's")


def sample_of(miles: Any, function: Any, profile: str, aborts: tuple[int, ...]) -> dict[str, Any]:
    run = Run(
        miles,
        use_rollout_routing_replay=True,
        use_rollout_indexer_replay=True,
        rollout_top_logprobs_num=2,
        use_sampling_mask=PROFILES[profile].sampling_mask,
    )
    sample = miles.Sample(prompt="p")

    async def call(server: Any, _client: Any) -> None:
        address = urlsplit(server.url)
        run.state.args.sglang_router_ip, run.state.args.sglang_router_port = address.hostname, address.port
        params = {"max_new_tokens": 24, "temperature": 0}
        await function(miles.base_types.GenerateFnInput(run.state, sample, params, False))

    def use(client: Any) -> None:
        miles.http_utils._http_client = client

    runs(PROFILES[profile], call, use, aborts)
    sample.validate()
    return fields_of(sample)


@pytest.mark.parametrize("aborts", [(), (9, 3)], ids=["to the end", "aborted twice"])
@pytest.mark.parametrize("profile", [name for name in PLAIN if not PROFILES[name].tokens_only])
def test_every_field_is_equal(miles: Any, profile: str, aborts: tuple[int, ...]) -> None:
    theirs = sample_of(miles, miles.single_turn.reference_generate, profile, aborts)
    ours = sample_of(miles, adapter.generate, profile, aborts)
    assert ours == theirs
    assert theirs["response_length"] == len(theirs["rollout_topk_token_ids"]) == 24
    assert len(theirs["weight_versions"]) == len(aborts) + 1
