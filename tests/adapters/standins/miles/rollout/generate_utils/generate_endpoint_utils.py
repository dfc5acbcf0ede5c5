"""Prompt, payload and headers of a request."""

from __future__ import annotations

import copy
from typing import Any


def compute_prompt_ids_from_sample(state: Any, sample: Any, tools: Any = None) -> list[int]:
    prompt = sample.prompt
    if not isinstance(prompt, str):
        prompt = state.tokenizer.apply_chat_template(prompt, tokenize=False, add_generation_prompt=True, tools=tools)
    ids: list[int] = state.tokenizer.encode(prompt, add_special_tokens=False)
    return ids


def compute_request_payload(
    args: Any,
    input_ids: list[int],
    sampling_params: dict[str, Any],
    multimodal_inputs: Any = None,
    *,
    evaluation: bool = False,
) -> tuple[dict[str, Any] | None, Any]:
    params = copy.deepcopy(sampling_params)
    limit = params.pop("max_new_tokens", args.rollout_max_response_len)
    if args.rollout_max_context_len:
        limit = min(limit, args.rollout_max_context_len - len(input_ids))
    if limit <= 0:
        return None, "truncated"
    payload: dict[str, Any] = {
        "input_ids": input_ids,
        "sampling_params": {**params, "max_new_tokens": limit},
        "return_logprob": True,
        "return_routed_experts": args.use_rollout_routing_replay,
        "return_indexer_topk": args.use_rollout_indexer_replay,
        "lora_path": "the adapter",
    }
    if args.use_sampling_mask and not evaluation:
        payload["return_sampling_mask"] = True
    return payload, None


def compute_routing_headers(args: Any, sample: Any) -> dict[str, str] | None:
    return {"X-SMG-Routing-Key": sample.routing_key} if sample.routing_key else None
