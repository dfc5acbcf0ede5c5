"""The generate function that does not stream, restated from what it does: what ours must equal."""

from __future__ import annotations

from typing import Any

from ...utils import http_utils
from ..base_types import GenerateFnOutput
from ..generate_utils import generate_endpoint_utils as utils


async def reference_generate(input: Any) -> GenerateFnOutput:
    args, sample, params = input.args, input.sample, input.sampling_params
    status = type(sample).Status
    assert sample.status in (status.PENDING, status.ABORTED)
    prompt_ids = utils.compute_prompt_ids_from_sample(input.state, sample)
    input_ids = prompt_ids
    if sample.response:
        input_ids = sample.tokens
        params["max_new_tokens"] -= len(sample.tokens) - len(prompt_ids)
        assert params["max_new_tokens"] >= 0
        if not params["max_new_tokens"]:
            sample.status = status.TRUNCATED
            return GenerateFnOutput(samples=sample)
    payload, halted = utils.compute_request_payload(args, input_ids, params, evaluation=input.evaluation)
    if payload is None:
        sample.status = halted
        return GenerateFnOutput(samples=sample)
    url = f"http://{args.sglang_router_ip}:{args.sglang_router_port}/generate"
    output = await http_utils.post(url, payload, headers=utils.compute_routing_headers(args, sample))
    await utils.update_sample_from_response(args, sample, payload=payload, output=output)
    return GenerateFnOutput(samples=sample)
