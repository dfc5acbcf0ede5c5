"""What a server refuses before it generates: wrong shapes, values out of range, prompts that are too long.

The words are those of 0.5.23 (``SamplingParams.verify``, ``tokenizer_manager._validate_one_request``); older versions
say some of them a little differently.  This module knows nothing of how a refusal is sent.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any, cast


class SchemaError(ValueError):
    """The JSON is not that of a request at all: status 400 instead of a stream (``RequestValidationError``)."""


class StumbleError(Exception):
    """The server raises an exception that it does not catch (a string for a number): the body is cut, or status 500."""


def check_shape(payload: Mapping[str, Any]) -> None:
    """What FastAPI looks at before the server itself does.

    :raises SchemaError: a field is of a type that the server's schema does not have.
    """
    for name, fits in _SHAPES.items():
        value = payload.get(name)
        if value is not None and not fits(value):
            raise SchemaError(f"1 validation error: ('body', '{name}'): input of type {type(value).__name__}")


def check_parameters(params: Mapping[str, Any]) -> None:
    """``SamplingParams.verify``.

    :raises ValueError: a value is out of range.
    :raises TypeError: a value cannot be compared.
    """
    for name, (fits, wanted) in _RANGES.items():
        if name in params and not fits(params[name]):
            raise ValueError(f"{name} must be {wanted}, got {params[name]}.")
    least, most = params.get("min_new_tokens", 0), params.get("max_new_tokens", 128)
    if least < 0 or (most is not None and least > most >= 0):
        upper = "max_new_tokens" if least < 0 else f"max_new_tokens({most})"
        raise ValueError(f"min_new_tokens must be in [0, {upper}], got {least}.")


def check_length(prompt_tokens: int, max_new_tokens: int | None, context_length: int) -> None:
    """``_validate_one_request``; ``max_new_tokens`` is None where the request does not say.

    :raises ValueError: prompt, or prompt and answer, do not fit into the model's context.
    """
    if prompt_tokens >= context_length:
        raise ValueError(
            f"The input ({prompt_tokens} tokens) is longer than the model's context length ({context_length} tokens)."
        )
    if max_new_tokens is not None and prompt_tokens + max_new_tokens > context_length:
        raise ValueError(
            f"Requested token count exceeds the model's maximum context length of {context_length} tokens. You "
            f"requested a total of {prompt_tokens + max_new_tokens} tokens: {prompt_tokens} tokens from the input "
            f"messages and {max_new_tokens} tokens for the completion. Please reduce the number of tokens in the "
            "input messages or the completion to fit within the limit."
        )


def _is_one_or_many(kind: type) -> Callable[[Any], bool]:
    def fits(value: Any) -> bool:
        if isinstance(value, kind):
            return True
        return isinstance(value, list) and all(isinstance(one, kind) for one in cast("list[object]", value))

    return fits


def _is_ids(value: Any) -> bool:
    if not isinstance(value, list):
        return False
    ids = cast("list[object]", value)
    return _is_one_or_many(int)(ids) or all(isinstance(one, list) and _is_ids(one) for one in ids)


_SHAPES: Mapping[str, Callable[[Any], bool]] = {
    "text": _is_one_or_many(str),
    "input_ids": _is_ids,
    "sampling_params": _is_one_or_many(dict),
    "rid": _is_one_or_many(str),
}
_RANGES: Mapping[str, tuple[Callable[[Any], bool], str]] = {
    "temperature": (lambda value: math.isfinite(value) and value >= 0.0, "a non-negative finite number"),
    "top_p": (lambda value: 0.0 < value <= 1.0, "in (0, 1]"),
    "min_p": (lambda value: 0.0 <= value <= 1.0, "in [0, 1]"),
    "top_k": (lambda value: value == -1 or value >= 1, "-1 (disable) or at least 1"),
    "frequency_penalty": (lambda value: -2.0 <= value <= 2.0, "in [-2, 2]"),
    "presence_penalty": (lambda value: -2.0 <= value <= 2.0, "in [-2, 2]"),
    "repetition_penalty": (lambda value: 0.0 < value <= 2.0, "in (0, 2] (1.0 = no penalty)"),
    "max_new_tokens": (lambda value: value is None or value >= 0, "at least 0"),
}
