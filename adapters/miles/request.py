"""What miles sends to ``/generate`` for a sample: prompt, payload and headers as miles' own functions make them.

They know what their version asks for (LoRA, replay, candidates, cache namespaces).  What a stream cannot bring onto the
sample is refused by name.  Nothing that the caller owns is changed.
"""

from __future__ import annotations

import copy
import inspect
from typing import Any

from .._call import Lookup


def check_sample(sample: Any) -> None:
    """Refuse samples that miles' own single-turn function does not send right either, or not at all.

    :raises ValueError: the sample is for another generate function.
    """
    if getattr(sample, "adapter", None) is not None:
        raise ValueError(
            f"sample.adapter {sample.adapter!r:.80}: an adapter of multi-LoRA is sent (lora_path, rid and extra_key) by"
            " the generate function of miles.rollout.sglang_rollout alone. Use that one for multi-LoRA"
        )
    if getattr(sample, "rollout_prompt_ids", None) is not None:
        raise ValueError("video prompts (sample.rollout_prompt_ids) are not streamed: use miles' own generate function")


def request_of(
    miles: Lookup, args: Any, state: Any, sample: Any, params: dict[str, Any], *, evaluation: bool
) -> tuple[list[int], dict[str, Any] | None]:
    """Ids of the prompt, and the body of the request; None if no tokens are left to ask for.

    :raises AssertionError: more tokens were generated than are asked for.
    :raises ValueError: the payload asks for what a stream cannot bring onto the sample.
    """
    prompt_ids = list(miles["compute_prompt_ids_from_sample"](state, sample))
    input_ids = prompt_ids
    if sample.response_length or sample.response:
        input_ids = list(sample.tokens)
        params.setdefault("max_new_tokens", args.rollout_max_response_len)
        params["max_new_tokens"] -= len(input_ids) - len(prompt_ids)
        if params["max_new_tokens"] < 0:
            raise AssertionError(f"max_new_tokens: {params['max_new_tokens']} should not be less than 0")
    own = miles["compute_request_payload"]
    further = {"evaluation": evaluation} if "evaluation" in inspect.signature(own).parameters else {}
    payload, _ = own(
        args,
        input_ids=input_ids,
        sampling_params=params,
        multimodal_inputs=sample.multimodal_inputs,
        **further,
    )
    if payload is None:
        return prompt_ids, None
    if payload.get("return_outputs_via_store"):
        raise ValueError(
            "return_outputs_via_store is not streamed: use miles' own generate function, or switch the output store off"
            " (replay arrays then come in the response)"
        )
    return prompt_ids, {**copy.deepcopy(payload), "stream": True}
