"""slime's own streaming function, restated from the table of its effects: what ours must equal wherever this works."""

from __future__ import annotations

import json
from typing import Any

from ..utils import http_utils
from ..utils.types import Sample
from . import sglang_rollout
from .streaming_utils import ReferenceAccumulator

_COPIED = ("tokens", "rollout_log_probs", "loss_mask")
_KEPT = (
    "response",
    "response_length",
    "rollout_top_p_token_ids",
    "rollout_top_p_token_offsets",
    "rollout_routed_experts",
)


def _copy(value: Any) -> Any:
    return None if value is None else list(value)


async def reference_streaming(args: Any, sample: Sample, sampling_params: dict[str, Any]) -> Sample:
    state = sglang_rollout.GenerateState(args)
    assert sample.status in (Sample.Status.PENDING, Sample.Status.ABORTED)
    prompt_ids = sglang_rollout._prepare_prompt_ids(sample, state.tokenizer, state.processor)
    sampling_params["max_new_tokens"] -= sample.response_length
    assert sampling_params["max_new_tokens"] >= 0
    if not sampling_params["max_new_tokens"]:
        sample.status = Sample.Status.TRUNCATED
        return sample
    payload = {"sampling_params": sampling_params, "return_logprob": True, "stream": True, "input_ids": prompt_ids}
    sample.tokens = sample.tokens or prompt_ids
    copied = {name: _copy(getattr(sample, name)) for name in _COPIED}
    kept = {name: getattr(sample, name) for name in _KEPT}
    stream = ReferenceAccumulator("incremental" if args.sglang_incremental_streaming_output else "cumulative")
    finish = None
    url = f"http://{args.sglang_router_ip}:{args.sglang_router_port}/generate"
    try:
        async with http_utils._http_client.stream("POST", url, json=payload, headers=None) as response:
            response.raise_for_status()
            async for line in response.aiter_lines():
                data = line[5:].strip() if line.startswith("data:") else ""
                if not data or data == "[DONE]":
                    continue
                added = stream.add(json.loads(data))
                finish = added.meta_info.get("finish_reason")
                if added.replace_call_state:
                    for name, value in copied.items():
                        setattr(sample, name, _copy(value))
                    for name, value in kept.items():
                        setattr(sample, name, value)
                sample.append_response_tokens(
                    args,
                    tokens=added.tokens,
                    log_probs=added.log_probs,
                    meta_info=added.meta_info,
                    update_terminal_info=bool(finish),
                )
                if state.aborted:
                    break
    finally:
        skip = sampling_params.get("skip_special_tokens", True)
        text = stream.response_text(lambda ids: state.tokenizer.decode(ids, skip_special_tokens=skip))
        sample.response = (kept["response"] or "") + text
    if not finish:
        if not state.aborted:
            raise RuntimeError("SGLang streaming response ended without a terminal finish_reason.")
        sample.status = Sample.Status.ABORTED
    return sample
