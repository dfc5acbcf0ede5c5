"""The request that resumes a sample: what it may still ask for, given what it has.

A continued answer is a new request to a server that knows nothing of the first, so limits that count tokens shrink by
what is there, and what cannot be continued is refused.  Source: SGLang ``sampling/sampling_params.py`` and
``managers/io_struct.py::GenerateReqInput``.  Knows parameters and numbers, nothing of the sample.
"""

from __future__ import annotations

import uuid
from collections.abc import Mapping, Sequence
from typing import Any

from ssefold import PayloadError
from ssefold.views import thaw

from .errors import RolloutError

#: What SGLang takes for an absent ``max_new_tokens``.
DEFAULT_MAX_NEW_TOKENS = 128
#: Routing numbers of one token: far more than any model has, and few enough to multiply by tokens.
_MAX_ROW = 2**24
_GRAMMARS = ("json_schema", "regex", "ebnf", "structural_tag")


def own_params(sampling_params: Mapping[str, Any] | None) -> dict[str, Any]:
    """A deep copy of the caller's parameters, checked where a sample depends on them.

    :raises RolloutError: ``n`` other than 1, a limit in tokens that is no whole number from 0, or no JSON: nested too
        deeply, or a key is no string.
    """
    if not isinstance(sampling_params, (Mapping, type(None))):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise RolloutError(f"sampling_params must be a mapping or None, found {type(sampling_params).__name__}")
    try:
        params: dict[str, Any] = thaw({} if sampling_params is None else sampling_params)
    except PayloadError as error:
        raise RolloutError(f"sampling_params cannot be sent as JSON: {error}") from error
    if params.get("n") not in (None, 1):
        raise RolloutError(f"sampling_params.n is {params['n']!r}: a sample is one output; make one sample for each")
    for name in ("max_new_tokens", "min_new_tokens"):
        limit = params.get(name)
        if limit is not None and (type(limit) is not int or limit < 0):
            raise RolloutError(f"sampling_params.{name} must be a whole number from 0 or null, found {limit!r}")
    return params


def own_shape(num_layers: int | None, top_k: int | None) -> tuple[int, int] | None:
    """Layers and experts of the routing that is asked for; None for no routing.

    :raises RolloutError: only one of them, or no whole numbers of a size that a model can have.
    """
    if num_layers is None and top_k is None:
        return None
    if num_layers is None or top_k is None:
        raise RolloutError("num_layers and top_k only come together: both are needed to place routed experts")
    for name, value in (("num_layers", num_layers), ("top_k", top_k)):
        if type(value) is not int or value < 1:
            raise RolloutError(f"{name} must be a whole number, at least 1, found {value!r:.80}")
    if num_layers * top_k > _MAX_ROW:
        raise RolloutError(f"num_layers * top_k must be at most {_MAX_ROW}, found {num_layers!r:.40} * {top_k!r:.40}")
    return num_layers, top_k


def budget(params: Mapping[str, Any], used: int) -> int | None:
    """Tokens that the response may still grow by; None for no limit."""
    limit = params.get("max_new_tokens", DEFAULT_MAX_NEW_TOKENS)
    return None if limit is None else max(limit - used, 0)


def wants_top_p(params: Mapping[str, Any]) -> bool:
    """Were top-p rows asked for (``custom_params.return_top_p_token_ids``, slime's image)?"""
    custom = params.get("custom_params")
    return isinstance(custom, Mapping) and bool(custom.get("return_top_p_token_ids"))


def filters_tokens(params: Mapping[str, Any]) -> bool:
    """Does sampling keep some tokens only?  Without a filter (and not greedy) the server has no top-p rows to send."""

    def number(name: str, default: float) -> float:
        value = params.get(name)
        return value if isinstance(value, (int, float)) else default

    return number("top_p", 1) < 1 or number("top_k", -1) >= 1 or number("min_p", 0) > 0 or number("temperature", 1) == 0


def grammar_of(params: Mapping[str, Any]) -> str | None:
    """The grammar that binds the output, or None."""
    return next((name for name in _GRAMMARS if params.get(name)), None)


def payload_of(
    input_ids: Sequence[int], params: Mapping[str, Any], used: int, *, routed_from: int | None
) -> dict[str, Any]:
    """The body of ``POST /generate``, all of it the caller's own.

    :param used: tokens of the response so far.
    :param routed_from: ask for routing from this row on; None: do not ask.
    """
    sampling: dict[str, Any] = thaw(params)
    sampling["max_new_tokens"] = budget(params, used)
    if sampling.get("min_new_tokens"):
        sampling["min_new_tokens"] = max(sampling["min_new_tokens"] - used, 0)
    payload: dict[str, Any] = {
        # Servers match ids by their beginning, so all are of one length.
        "rid": uuid.uuid4().hex,
        "input_ids": list(input_ids),
        "sampling_params": sampling,
        "return_logprob": True,
        "stream": True,
    }
    if routed_from is not None:
        payload["return_routed_experts"] = True
        payload["routed_experts_start_len"] = routed_from
    return payload
