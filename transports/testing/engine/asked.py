"""What a ``/generate`` payload asks for, output by output.

The rules are ``GenerateReqInput.normalize_batch_and_arguments`` and ``_handle_batch_request``: a list of prompts or
``n > 1`` makes the answer list-shaped; sample ``k`` of prompt ``i`` is output ``i*n + k``; a batch with one string rid
gets ``rid_0``, ``rid_1``; with ``n > 1`` every sample gets a new id, whatever rid was sent.  This module knows nothing
of what is generated.
"""

from __future__ import annotations

import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast

from .refusals import StumbleError, check_parameters, check_shape

_DEFAULT_MAX_NEW_TOKENS = 128  # sampling_params.SamplingParams
_NO_LIMIT = 1 << 30  # what the scheduler makes of null; the context ends it


@dataclass(frozen=True, kw_only=True)
class Asked:
    """One output: one sample of one prompt.

    :ivar prompt_ids: as sent, or made of the prompt's text, one id a byte.
    :ivar sample: which of the prompt's ``n`` samples.
    :ivar interval: the request's own ``stream_interval``; None leaves it to the server.
    """

    rid: str
    prompt_ids: tuple[int, ...]
    sample: int = 0
    max_new_tokens: int = _DEFAULT_MAX_NEW_TOKENS
    interval: int | None = None
    ignore_eos: bool = False
    return_logprob: bool = False
    text_in_logprobs: bool = False
    top_logprobs_num: int = 0
    return_top_p: bool = False
    return_routed_experts: bool = False
    routed_experts_start_len: int = 0
    return_prompt_token_ids: bool = False


@dataclass(frozen=True)
class Request:
    """One payload.

    :ivar limits: ``max_new_tokens`` of each output as the payload has it; None where it does not say.
    :ivar listed: the answer is a list, and chunks carry ``index``.
    """

    payload: Mapping[str, Any]
    outputs: tuple[Asked, ...]
    limits: tuple[int | None, ...]
    listed: bool
    stream: bool


def read_request(payload: Mapping[str, Any]) -> Request:
    """The outputs that this payload asks for, in index order.

    :raises ValueError: as the server does, for what it cannot serve; a :class:`SchemaError` for what is no request.
    :raises StumbleError: for a value that crashes the real server.
    """
    check_shape(payload)
    try:
        return _read(payload)
    except (TypeError, IndexError, AttributeError) as error:
        raise StumbleError(repr(error)) from error


def _read(payload: Mapping[str, Any]) -> Request:
    prompts, is_batch = _prompts(payload)
    params = _per_prompt(payload.get("sampling_params") or {}, len(prompts))
    for one in params:
        check_parameters(one)
    samples = {one.get("n", 1) for one in params}
    if len(samples) != 1:
        raise ValueError("The parallel_sample_num should be the same for all samples in sample params.")
    [n] = samples
    if n < 1 and not is_batch:
        n = 1  # only more than one makes a list of a single prompt; nothing looks at what is less
    rids = _rids(payload.get("rid"), len(prompts), is_batch=is_batch)
    outputs = [
        _asked(payload, prompt, params[i], rid=rids[i] if n == 1 else uuid.uuid4().hex, sample=sample)
        for i, prompt in enumerate(prompts)
        for sample in range(n)
    ]
    limits = tuple(one.get("max_new_tokens") for one in params for _ in range(n))
    return Request(payload, tuple(outputs), limits, is_batch or n > 1, bool(payload.get("stream", False)))


def _prompts(payload: Mapping[str, Any]) -> tuple[list[tuple[int, ...]], bool]:
    ids = payload.get("input_ids")
    if ids is None:
        text = payload.get("text")
        if isinstance(text, str):
            return [_ids_of(text)], False
        if isinstance(text, list):
            return [_ids_of(one) for one in cast("list[str]", text)], True
        raise ValueError("Either text, input_ids or input_embeds should be provided.")
    if not ids:
        raise ValueError("input_ids cannot be empty.")
    if isinstance(ids[0], list):
        return [tuple(map(int, one)) for one in ids], True
    return [tuple(map(int, ids))], False


def _ids_of(text: str) -> tuple[int, ...]:
    return tuple(text.encode("utf-8"))


def _per_prompt(params: Any, prompts: int) -> list[Mapping[str, Any]]:
    if isinstance(params, Mapping):
        return [cast("Mapping[str, Any]", params)] * prompts
    return list(cast("Sequence[Mapping[str, Any]]", params))


def _rids(rid: Any, prompts: int, *, is_batch: bool) -> list[str]:
    if rid is None:
        return [uuid.uuid4().hex for _ in range(prompts)]
    if isinstance(rid, str):
        return [f"{rid}_{i}" for i in range(prompts)] if is_batch else [rid]
    if len(rid) != prompts:
        raise ValueError("The specified rids length mismatch with the batch_size for batch processing.")
    return list(rid)


def _asked(
    payload: Mapping[str, Any], prompt: tuple[int, ...], params: Mapping[str, Any], *, rid: str, sample: int
) -> Asked:
    custom = params.get("custom_params") or {}
    limit = params.get("max_new_tokens", _DEFAULT_MAX_NEW_TOKENS)
    return Asked(
        rid=rid,
        prompt_ids=prompt,
        sample=sample,
        max_new_tokens=_NO_LIMIT if limit is None else limit,
        interval=params.get("stream_interval"),
        ignore_eos=bool(params.get("ignore_eos", False)),
        return_logprob=bool(payload.get("return_logprob", False)),
        text_in_logprobs=bool(payload.get("return_text_in_logprobs", False)),
        top_logprobs_num=int(payload.get("top_logprobs_num") or 0),
        return_top_p=bool(payload.get("return_logprob")) and bool(custom.get("return_top_p_token_ids", False)),
        return_routed_experts=bool(payload.get("return_routed_experts", False)),
        routed_experts_start_len=int(payload.get("routed_experts_start_len") or 0),
        return_prompt_token_ids=bool(payload.get("return_prompt_token_ids", False)),
    )
