"""Replay arrays of a chunk: which tokens do they belong to, and are they what they say?

Sources: slime's image (``add_logprob_to_meta_info``, ``_b64_encode_int32``), SGLang
``managers/detokenizer_manager.py::_b64_encode_per_request``; one version of slime's image wrote ``routed_experts`` as
uint8 and said so in ``routed_experts_dtype``.  Knows nothing of text and of lanes.
"""

from __future__ import annotations

from array import array
from base64 import b64decode
from collections.abc import Mapping
from struct import error as StructError  # noqa: N812  # it is a class
from struct import unpack
from typing import Any

from ..errors import ReplayError
from ..replay import ReplayArray, TopPReplay, decode_int32
from .state import OutputState

_TOP_P_KEYS = (("top_p_token_ids", "top_p_token_offsets"), ("top_p_kept_token_ids", "top_p_kept_token_offsets"))


def plan_top_p(state: OutputState, meta: Mapping[str, Any], new: int, total: int) -> tuple[TopPReplay | None, bool]:
    """Top-p rows of a chunk, and whether they are those of the whole call.

    :raises ReplayError: they are not what they say.
    """
    for ids_key, offsets_key in _TOP_P_KEYS:
        ids, offsets = meta.get(ids_key), meta.get(offsets_key)
        if ids is None and offsets is None:
            continue
        if ids is None or offsets is None:
            missing, present = (ids_key, offsets_key) if ids is None else (offsets_key, ids_key)
            raise ReplayError(f"meta_info.{missing} is missing although meta_info.{present} came: both belong together")
        replay = TopPReplay(
            decode_int32(ids, field=f"meta_info.{ids_key}"), decode_int32(offsets, field=f"meta_info.{offsets_key}")
        )
        rows = len(replay)
        if rows == new and state.top_p.rows + new == total:
            state.top_p.check(replay)
            return replay, False
        if rows == total:
            return replay, True
        raise ReplayError(
            f"meta_info.{offsets_key} has {rows + 1} entries: it must describe either this chunk's {new} new tokens "
            f"({new + 1} entries) or the whole call ({total + 1}). A prefill/decode hand-over can lose rows: such a "
            "sample cannot be replayed"
        )
    return None, False


def replay_array(meta: Mapping[str, Any], name: str) -> ReplayArray | None:
    """An array that comes once; base64 holds int32, or what ``NAME_dtype`` beside it says.

    :raises ReplayError: it is not what it says.
    """
    value = meta.get(name)
    if value is None:
        return None
    field, dtype = f"meta_info.{name}", meta.get(f"{name}_dtype")
    if isinstance(value, str) and dtype is not None and dtype != "int32":
        value = _unsigned(value, field, dtype)
    return ReplayArray(decode_int32(value, field=field), field=name)


def _unsigned(text: str, field: str, dtype: object) -> array[int]:
    size, code = {"uint8": (1, "B"), "uint16": (2, "H")}.get(str(dtype), (0, ""))
    if not size:
        raise ReplayError(
            f"{field}_dtype is {dtype!r:.40}: expected int32, uint16 or uint8. Is the server newer than this?"
        )
    try:
        raw = b64decode(text, validate=True)
        return array("i", unpack(f"<{len(raw) // size}{code}", raw))
    except (ValueError, StructError) as error:
        raise ReplayError(f"{field} is not base64 of {dtype}: {error}") from None
