"""The short way for the chunk that almost every event of an incremental stream is.

Once a stream has settled (every lane a delta, the same keys as before, nothing that ends or replays), its chunks differ
in one or a few tokens only.  This checks exactly that, and then does what ``fold.py`` and the commit would do; anything
else is None, and takes the long way.  An addition to the rules, never another set of them: the tests hold both ways
against each other.
"""

from __future__ import annotations

from array import array
from typing import Any

from ..fold.chunk import Chunk
from ..fold.state import OutputState
from ..limits import MAX_TOKENS
from ..update import Update

_CHUNK_KEYS = frozenset({"text", "output_ids", "meta_info", "index"})
_INTS, _FLOATS = {int}, {float}
_new = tuple.__new__


def form_of(meta: dict[str, Any]) -> list[object]:
    """The keys of ``meta_info`` and the types of their values."""
    return [*meta, *map(type, meta.values())]


def steady_form(state: OutputState, chunk: Chunk) -> list[object] | None:
    """The form of ``meta_info`` that the next chunk must have to go the short way; None if it must not.

    A snapshot from which everything known was cut (``suffix.py``) is a delta as well.
    """
    lane = state.text.lane
    if (
        chunk.finish is not None
        or state.ids_lane != lane
        or state.extras
        or not state.text.sure
        or state.text.missing
        or not chunk.top.keys() <= _CHUNK_KEYS
    ):
        return None
    if state.rows_sent:
        if state.rows_lane != lane or chunk.rows is None or chunk.rows_total is None:
            return None
        if state.row_texts is not None or state.row_width != 3 or len(state.logprobs) != len(state.token_ids):
            return None
    elif chunk.rows is not None or chunk.rows_total is not None:
        return None
    for name, value in chunk.meta.items():
        if type(value) is list and name not in ("output_token_logprobs", "input_token_logprobs"):
            return None
        if name in _NEVER:
            return None
    if chunk.meta.get("finish_reason", True) is not None or chunk.meta.get("input_token_logprobs", ()) is None:
        return None
    return form_of(chunk.meta)


#: With one of these in every chunk there is more to do.
_NEVER = frozenset(
    {
        "routed_experts",
        "indexer_topk",
        "top_p_token_ids",
        "top_p_token_offsets",
        "top_p_kept_token_ids",
        "top_p_kept_token_offsets",
        "hidden_states",
        "input_top_logprobs",
        "input_token_ids_logprobs",
        "beam_results",
    }
)


def fold_steady(state: OutputState, data: dict[str, Any]) -> Update | None:
    """Fold a chunk of a settled stream; None, with nothing changed, if it is anything else.

    The caller has made sure that the chunk holds deltas: the stream sends them, or what was known has been cut out.
    ``data`` must have no keys but text, output_ids, meta_info and the output's own index, and becomes ours.
    """
    meta = data.get("meta_info")
    if type(meta) is not dict:
        return None
    try:
        if [*meta, *map(type, meta.values())] != state.steady:  # so a count is an int, and finish_reason null
            return None
        ids = data["output_ids"]
        text = data["text"]
        rows = meta["output_token_logprobs"]
        token_ids = state.token_ids
        start = len(token_ids)
        total = start + 1
        count = meta["completion_tokens"]
        if count != total or len(rows) != 1:
            return _fold_some(state, data, meta)
        logprob, token_id, row_text = rows[0]
        if (
            meta["output_token_logprobs_length"] != total
            or ids != [token_id]
            or type(ids[0]) is not int
            or type(token_id) is not int
            or type(logprob) is not float
            or type(text) is not str
            or row_text is not None
            or logprob - logprob != 0.0
            or token_id < 0
            or start >= MAX_TOKENS
        ):
            return None
        token_ids.append(token_id)  # the one call that can refuse, before anything has changed
    except (KeyError, TypeError, ValueError, OverflowError):
        return None if "output_token_logprobs" in meta else _fold_some(state, data, meta)
    state.logprobs.append(logprob)
    lane = state.text
    text_start = lane.length
    lane.append(text)
    state.late_meta = meta
    return _new(
        Update, (state.index, start, False, (token_id,), (logprob,), text, text_start, None, None, None, meta, None)
    )


def fold_step(state: OutputState, payload: bytes, text: str, token_id: int, logprob: float) -> Update | None:
    """The same for a payload of which these values were read already (``step.py``); the rest is parsed late."""
    token_ids = state.token_ids
    start = len(token_ids)
    if start >= MAX_TOKENS:
        return None
    try:
        token_ids.append(token_id)
    except OverflowError:
        return None
    state.logprobs.append(logprob)
    lane = state.text
    text_start = lane.length
    lane.append(text)
    state.late_meta = payload
    return _new(
        Update,
        (state.index, start, False, (token_id,), (logprob,), text, text_start, None, None, None, payload, None),
    )


def _fold_some(state: OutputState, data: dict[str, Any], meta: dict[str, Any]) -> Update | None:
    """The same for a chunk of none or several tokens, or without rows."""
    ids, text, count = data.get("output_ids"), data.get("text"), meta.get("completion_tokens")
    start = len(state.token_ids)
    if type(text) is not str or type(ids) is not list or type(count) is not int or count != start + len(ids):
        return None
    if count > MAX_TOKENS:
        return None
    # By columns: a step in Python per token would cost more than the parse did.
    logprobs: tuple[float, ...] = ()
    types = set(map(type, ids))
    try:
        if state.rows_sent:
            rows, length = meta.get("output_token_logprobs"), meta.get("output_token_logprobs_length")
            if type(rows) is not list or length != count or len(rows) != len(ids):
                return None
            if rows:
                logprobs, row_ids, texts = zip(*rows, strict=True)
                total = sum(logprobs)
                if (
                    row_ids != tuple(ids)
                    or texts.count(None) != len(texts)
                    or set(map(type, logprobs)) != _FLOATS
                    or total - total != 0.0
                ):
                    return None
                types.update(map(type, row_ids))
        if ids and (types != _INTS or min(ids) < 0):
            return None
        state.token_ids.extend(array("q", ids))  # what can refuse, before anything has changed
    except (TypeError, ValueError, OverflowError):
        return None
    state.logprobs.extend(logprobs)
    text_start = state.text.length
    state.text.append(text)
    state.late_meta = meta
    return _new(
        Update,
        (state.index, start, False, tuple(ids), logprobs, text, text_start, None, None, None, meta, None),
    )
