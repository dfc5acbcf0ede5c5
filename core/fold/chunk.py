"""One chunk with its fields named and typed: the form in which JSON enters the fold.

Reads SGLang's keys, checks the types of those that are interpreted, and looks at nothing else.  Knows nothing of what
came before.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from ..errors import PayloadError
from .finish import FinishReason

_LARGEST = 2**63
#: Strings and numbers that planning compares between chunks or counts by: a change of one must never be skipped.
READ_KEYS = frozenset(
    {
        "id",
        "finish_reason",
        "prompt_tokens",
        "completion_tokens",
        "output_token_logprobs_length",
        "output_token_sampling_mask_length",
        "index",
        "error",
        "text",
    }
)


class Chunk(NamedTuple):
    """One data event of ``/generate``.

    :ivar completion: ``completion_tokens``, the total in every mode and version; None after beam search, which counts
        the tokens of all beams (``build_beam_search_out``).
    :ivar rows: ``output_token_logprobs``; None when absent or null.
    :ivar rows_total: ``output_token_logprobs_length``, the total in every mode (0.5.10 and later).
    """

    text: str | None
    ids: list[Any] | None
    meta: dict[str, Any]
    rows: list[Any] | None
    rows_total: int | None
    completion: int | None
    finish: FinishReason | None
    top: dict[str, Any]


def read_chunk(data: dict[str, Any]) -> Chunk:
    """Name and type the fields of one parsed payload.  ``data`` becomes ours: its ``meta_info`` may be edited.

    :raises PayloadError: it is no chunk at all, or an interpreted field has the wrong type.
    """
    meta = data.get("meta_info")
    if meta is None:
        if "text" not in data and "output_ids" not in data:
            raise PayloadError(
                "the event is no chunk of /generate: it has none of text, output_ids, meta_info (its keys: "
                f"{', '.join(sorted(map(str, data)))[:200] or 'none'}). Is this the native /generate endpoint?"
            )
        meta = {}
    elif type(meta) is not dict:
        raise _wrong("meta_info", "an object or null", meta)
    text = data.get("text")
    if text is not None and type(text) is not str:
        raise _wrong("text", "a string or null", text)
    ids = data.get("output_ids")
    if ids is not None and type(ids) is not list:
        raise _wrong("output_ids", "a list or null", ids)
    rows = meta.get("output_token_logprobs")
    if rows is not None and type(rows) is not list:
        raise _wrong("meta_info.output_token_logprobs", "a list or null", rows)
    finish = meta.get("finish_reason")
    completion = counter(meta, "completion_tokens")
    if "beam_results" in meta:
        completion = None  # of all beams together; the chunk's ids are the best one's, and there is no other chunk
    return Chunk(
        text,
        ids,
        meta,
        rows,
        counter(meta, "output_token_logprobs_length"),
        completion,
        None if finish is None else FinishReason.parse(finish),
        data,
    )


def counter(meta: Mapping[str, Any], name: str) -> int | None:
    """A counter of ``meta_info``: a whole number from 0, or None when absent or null."""
    value = meta.get(name)
    if value is None or (type(value) is int and 0 <= value < _LARGEST):
        return value
    raise _wrong(f"meta_info.{name}", "a whole number from 0 or null", value)


def _wrong(field: str, wanted: str, value: object) -> PayloadError:
    try:
        shown = repr(value)
    except (ValueError, RecursionError):
        shown = "..."
    return PayloadError(f"{field} must be {wanted}, found {type(value).__name__} {shown[:80]}")
