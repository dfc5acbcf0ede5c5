"""Every field of a sample is what miles' function that does not stream makes of it: all servers, aborts, resumes."""

from __future__ import annotations

from typing import Any
from urllib.parse import urlsplit

import pytest

from ssefold.adapters import miles as adapter
from ssefold.transports.testing import PROFILES

from ..servers import PLAIN, fields_of, model, runs, support_model
from .runs import Run

pytest.importorskip("httpx", reason="miles' client is httpx's")
pytest.importorskip("numpy", reason="miles' replay arrays are NumPy's")

#: miles' own function needs the server's text.
WITH_TEXT = [name for name in PLAIN if not PROFILES[name].tokens_only]


def sample_of(
    miles: Any, function: Any, profile: str, aborts: tuple[int, ...], *, support: bool = False
) -> dict[str, Any]:
    run = Run(
        miles,
        use_rollout_routing_replay=True,
        use_rollout_indexer_replay=True,
        rollout_top_logprobs_num=2,
        use_sampling_mask=PROFILES[profile].sampling_mask,
        rollout_sampling_logprobs_mode="support" if support else "selected",
    )
    sample = miles.Sample(prompt="p")

    async def call(server: Any, _client: Any) -> None:
        address = urlsplit(server.url)
        run.state.args.sglang_router_ip, run.state.args.sglang_router_port = address.hostname, address.port
        params = {"max_new_tokens": 24, "temperature": 0}
        await function(miles.base_types.GenerateFnInput(run.state, sample, params, False))

    def use(client: Any) -> None:
        miles.http_utils._http_client = client

    runs(PROFILES[profile], call, use, aborts, support_model if support else model)
    sample.validate()
    return fields_of(sample)


@pytest.mark.parametrize("aborts", [(), (9, 3)], ids=["to the end", "aborted twice"])
@pytest.mark.parametrize("profile", WITH_TEXT)
def test_every_field_is_equal(miles: Any, profile: str, aborts: tuple[int, ...]) -> None:
    theirs = sample_of(miles, miles.single_turn.reference_generate, profile, aborts)
    ours = sample_of(miles, adapter.generate, profile, aborts)
    assert ours == theirs
    assert theirs["response_length"] == len(theirs["rollout_topk_token_ids"]) == 24
    assert len(theirs["weight_versions"]) == len(aborts) + 1


@pytest.mark.parametrize("profile", [name for name in WITH_TEXT if PROFILES[name].sampling_mask])
def test_the_logprobs_of_all_candidates(miles: Any, profile: str) -> None:
    """``sampling_logprobs_mode`` "support": lists inside of lists."""
    theirs = sample_of(miles, miles.single_turn.reference_generate, profile, (9,), support=True)
    ours = sample_of(miles, adapter.generate, profile, (9,), support=True)
    assert ours == theirs
    assert ours["rollout_log_probs"] == [-0.5] * 24
    assert ours["rollout_topk_log_probs"][0] == [-0.5, -0.75]
