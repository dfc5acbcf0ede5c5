"""Prompt, payload and headers of a request, and a sample from a whole response."""

from __future__ import annotations

import base64
import copy
from typing import Any

import numpy as np

from ...utils.types import Sample


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
        return None, Sample.Status.TRUNCATED
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
    if args.rollout_top_logprobs_num and not evaluation:
        if args.rollout_sampling_logprobs_mode == "support":
            payload["sampling_logprobs_mode"] = "support"
        else:
            payload["top_logprobs_num"] = args.rollout_top_logprobs_num
    if args.use_output_store and not evaluation:
        payload["return_outputs_via_store"] = True
    return payload, None


def compute_routing_headers(args: Any, sample: Any) -> dict[str, str] | None:
    return {"X-SMG-Routing-Key": sample.routing_key} if sample.routing_key else None


async def update_sample_from_response(
    args: Any, sample: Any, payload: dict[str, Any], output: dict[str, Any], update_loss_mask: bool = False
) -> None:
    meta = output["meta_info"]
    if not sample.response and not sample.tokens:
        sample.tokens = payload["input_ids"]
    rows = meta.get("output_token_logprobs") or []
    log_probs = [row[0] for row in rows]
    mode = payload.get("sampling_logprobs_mode", "selected")
    if payload.get("return_sampling_mask"):
        log_probs = _append_mask(sample, meta, len(rows), [row[1] for row in rows], mode)
    sample.tokens = sample.tokens + [row[1] for row in rows]
    sample.response_length += len(rows)
    sample.response += output["text"]
    sample.rollout_log_probs = (sample.rollout_log_probs or []) + log_probs
    if payload.get("top_logprobs_num") or mode == "support":
        _append_candidates(sample, meta, len(rows), args.rollout_top_logprobs_num, mode)
    if update_loss_mask:
        sample.loss_mask = (sample.loss_mask or []) + [1] * len(rows)
    positions = len(sample.tokens) - 1
    experts = _placed(meta.get("routed_experts"), positions, args.num_layers)
    assert experts is None or not experts.size or experts.any(), "no expert was ever chosen"
    sample.rollout_routed_experts = experts
    sample.rollout_indexer_topk = _indexer(args, meta, positions)
    sample.update_from_meta_info(args, meta)


def _append_mask(sample: Any, meta: dict[str, Any], count: int, tokens: list[int], mode: str) -> list[float]:
    """The candidates of each token, whose logprobs are those among them."""
    kept, scores = meta["output_token_sampling_mask"], meta["output_token_sampling_logprobs"]
    if not len(kept) == len(scores) == count:
        raise ValueError(f"{count} tokens, {len(kept)} sampling masks and {len(scores)} logprobs")
    sample.rollout_sampling_mask = (sample.rollout_sampling_mask or []) + [list(row) for row in kept]
    if mode == "support":
        return [row[ids.index(token)] for row, ids, token in zip(scores, kept, tokens, strict=True)]
    return list(scores)


def _append_candidates(sample: Any, meta: dict[str, Any], count: int, width: int, mode: str) -> None:
    if mode == "support":
        found = list(zip(meta["output_token_sampling_mask"], meta["output_token_sampling_logprobs"], strict=True))
    else:
        rows = [row or [] for row in meta.get("output_top_logprobs") or []]
        found = [([entry[1] for entry in row], [entry[0] for entry in row]) for row in rows]
    if len(found) != count:
        raise ValueError(f"{count} tokens and {len(found)} rows of candidates")
    ids, scores = np.full((count, width), -1, np.int32), np.full((count, width), -np.inf, np.float32)
    for at, (row_ids, row_scores) in enumerate(found):
        ids[at, : len(row_ids)], scores[at, : len(row_ids)] = row_ids[:width], row_scores[:width]
    for name, new in (("rollout_topk_token_ids", ids), ("rollout_topk_log_probs", scores)):
        before = getattr(sample, name)
        setattr(sample, name, new if before is None else np.concatenate([before, new]))


def _placed(value: str | None, positions: int, layers: int) -> Any:
    if value is None:
        return None
    flat = np.frombuffer(base64.b64decode(value), dtype=np.int32)
    if positions <= 0:
        return np.empty((0, layers, 0), dtype=np.int32)
    return flat.reshape(positions, layers, len(flat) // (positions * layers))


def _indexer(args: Any, meta: dict[str, Any], positions: int) -> Any:
    if meta.get("indexer_topk") is None:
        return None
    layers = meta.get("indexer_topk_num_layers")
    assert layers is not None, "how many indexer layers?"
    expected = getattr(args, "rollout_indexer_topk_num_streams", None)
    assert expected is None or layers == expected, f"{layers} indexer layers came, {expected} were due"
    return _placed(meta["indexer_topk"], positions, layers)
