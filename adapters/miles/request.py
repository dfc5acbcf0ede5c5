"""What miles sends to ``/generate`` for a sample.

miles' own functions make prompt and payload, where they are: they know what their version asks for (LoRA, replay,
cache namespaces).  Where they are not, the same is done here.  Source: miles
``rollout/generate_utils/generate_endpoint_utils.py``.  Nothing that the caller owns is changed.
"""

from __future__ import annotations

import copy
import inspect
import uuid
from collections.abc import Callable
from typing import Any

#: What would change the meaning of tokens or logprobs in ways that only miles' own, whole response handles.
_NOT_STREAMED = ("return_sampling_mask", "return_outputs_via_store")


def prompt_ids_of(state: Any, sample: Any, own: Callable[..., Any] | None) -> list[int]:
    """Token ids of the prompt.

    :param own: miles' ``compute_prompt_ids_from_sample``, if there is one.
    """
    if own is not None:
        return list(own(state, sample))
    prompt = sample.prompt
    if not isinstance(prompt, str):
        prompt = state.tokenizer.apply_chat_template(prompt, tokenize=False, add_generation_prompt=True)
    return list(state.tokenizer.encode(prompt, add_special_tokens=False))


def payload_of(
    args: Any,
    sample: Any,
    input_ids: list[int],
    params: dict[str, Any],
    own: Callable[..., Any] | None,
    *,
    evaluation: bool,
) -> dict[str, Any] | None:
    """The body of the request; None if no tokens are left to ask for.

    :param own: miles' ``compute_request_payload``, if there is one.
    :raises ValueError: the payload asks for what a stream can not bring onto the sample.
    """
    if getattr(sample, "rollout_prompt_ids", None) is not None:
        raise ValueError("video prompts (sample.rollout_prompt_ids) are not streamed: use miles' own generate function")
    payload = (
        _plain_payload(args, input_ids, params)
        if own is None
        else _own_payload(own, args, sample, input_ids, params, evaluation)
    )
    if payload is None:
        return None
    asked = next((name for name in _NOT_STREAMED if payload.get(name)), None)
    if asked is not None:
        raise ValueError(f"{asked} is not streamed: use miles' own generate function, or switch it off")
    return {**copy.deepcopy(payload), "rid": uuid.uuid4().hex, "stream": True}


def _own_payload(
    own: Callable[..., Any], args: Any, sample: Any, input_ids: list[int], params: dict[str, Any], evaluation: bool
) -> dict[str, Any] | None:
    known = inspect.signature(own).parameters
    further = {"evaluation": evaluation} if "evaluation" in known else {}
    payload, _ = own(
        args,
        input_ids=input_ids,
        sampling_params=params,
        multimodal_inputs=sample.multimodal_inputs,
        **further,
    )
    found: dict[str, Any] | None = payload
    return found


def _plain_payload(args: Any, input_ids: list[int], params: dict[str, Any]) -> dict[str, Any] | None:
    limit = params.get("max_new_tokens", getattr(args, "rollout_max_response_len", None))
    context = getattr(args, "rollout_max_context_len", None)
    if context:
        limit = context - len(input_ids) if limit is None else min(limit, context - len(input_ids))
    if limit is not None and limit <= 0:
        return None
    return {
        "input_ids": input_ids,
        "sampling_params": {**params, "max_new_tokens": limit},
        "return_logprob": True,
        "return_routed_experts": bool(getattr(args, "use_rollout_routing_replay", False)),
        "return_indexer_topk": bool(getattr(args, "use_rollout_indexer_replay", False)),
    }
