"""What the same request returns with ``stream=false``, rebuilt from a stream.

Source: SGLang ``managers/tokenizer_manager.py::_wait_one_response``: the non-streaming answer is the dict of the
cumulative terminal chunk, without ``index``.  Knows the state; knows nothing of folding.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from ..views import Floats, thaw
from .state import OutputState


def rows_of(state: OutputState, start: int = 0) -> list[list[Any]]:
    """``output_token_logprobs`` rows from ``start`` on, in the width the server used."""
    ids = state.token_ids[start : len(state.logprobs)].tolist()
    logprobs = Floats(state.logprobs)[start:]
    if state.row_width == 2:
        return [list(pair) for pair in zip(logprobs, ids, strict=True)]
    texts: Sequence[str | None] = [None] * len(ids) if state.row_texts is None else state.row_texts[start:]
    return [list(row) for row in zip(logprobs, ids, texts, strict=True)]


def text_of(state: OutputState, decode: Callable[[Sequence[int]], str] | None) -> str:
    """The server's own text, or ``decode(token_ids)`` where the server sent none with its tokens."""
    if state.text.missing:
        return "" if decode is None else decode(state.token_ids.tolist())
    return state.text.value()


def native_response(state: OutputState, decode: Callable[[Sequence[int]], str] | None) -> dict[str, Any]:
    """Plain, caller-owned data, with full lists under every token-aligned key that was seen."""
    meta: dict[str, Any] = dict(state.meta)
    if state.rows_sent and (state.logprobs or "output_token_logprobs" not in meta):
        meta["output_token_logprobs"] = rows_of(state)
    for name, extra in state.extras.items():
        if extra.items is not None:
            meta[name] = list(extra.items)
    response: dict[str, Any] = {}
    if state.text.seen or (decode is not None and state.text.missing):
        response["text"] = text_of(state, decode)
    if state.ids_sent:
        response["output_ids"] = state.token_ids.tolist()
    response["meta_info"] = meta
    response.update(state.other)
    result: dict[str, Any] = thaw(response)
    return result
