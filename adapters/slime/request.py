"""What slime sends to ``/generate`` for a sample.

Source: slime ``rollout/sglang_streaming_rollout.py`` and ``rollout/sglang_rollout.py``.  Nothing that the caller owns
is changed or aliased: a list that is sent must not grow with the sample.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable
from typing import Any


def payload_of(
    args: Any, sample: Any, prompt_ids: Any, params: dict[str, Any], encode_image: Callable[[Any], str] | None
) -> dict[str, Any]:
    """The body of the request.

    With images, the first call sends the text of the prompt, so that the server expands the images' places by its own
    rules; a later one sends the ids, expanded prompt and partial response, since no text says the latter.

    :param params: sampling parameters with the budget that is left.
    :param encode_image: an image to what SGLang takes in ``image_data``; None if there are none.
    """
    payload: dict[str, Any] = {
        "rid": uuid.uuid4().hex,
        "sampling_params": params,
        "return_logprob": True,
        "stream": True,
    }
    if args.use_rollout_routing_replay:
        payload["return_routed_experts"] = True
    images = sample.multimodal_inputs.get("images") if sample.multimodal_inputs else None
    if images and encode_image is not None:
        payload["image_data"] = [encode_image(image) for image in images]
        if not sample.response_length:
            return {**payload, "text": sample.prompt}
        # What slime prepares may be the prompt alone, where its processor gave nothing for the trainer.
        prompt_ids = sample.tokens
    return {**payload, "input_ids": copied(prompt_ids)}


def headers_of(args: Any, sample: Any) -> dict[str, str] | None:
    """The header by which a consistently hashing router keeps a session on one worker; None elsewhere."""
    if sample.session_id and getattr(args, "router_policy", None) == "consistent_hashing":
        return {"X-SMG-Routing-Key": sample.session_id}
    return None


def copied(ids: Any) -> Any:
    """A copy of a list; anything else that a processor returns stays as it is."""
    return list(ids) if isinstance(ids, list) else ids  # pyright: ignore[reportUnknownArgumentType, reportUnknownVariableType]
