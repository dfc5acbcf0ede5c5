"""Carry out what was planned for a chunk: the one place where an output's state changes.

Whatever could be refused was refused by then; nothing here can fail.  Knows nothing of how a plan came about.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import nan
from typing import Any

from ..replay import TopPRows
from ..update import Update
from ..views import Floats
from .chunk import Chunk
from .extras import Extra, ExtraStep
from .native import rows_of
from .plan import Plan
from .state import Form, OutputState

# In C all the way: a Python frame per update would cost more than its fields.
_new_update = tuple.__new__
_NOT_ALIGNED = Extra()


def commit(state: OutputState, chunk: Chunk, plan: Plan) -> Update:
    """Change ``state`` as ``plan`` says, and tell what is new."""
    meta, tokens = chunk.meta, plan.tokens
    start = len(state.token_ids)
    replace = plan.whole_top_p
    if tokens is not None:
        _add_tokens(state, tokens.ids, tokens.rows.logprobs, tokens.rows.texts)
        if tokens.rows.ids:
            state.row_width = tokens.rows.width
        if chunk.completion is not None:
            state.count = chunk.completion
        state.rows_lane = tokens.rows_lane
        state.ids_lane = tokens.ids_lane
        state.rows_sent = state.rows_sent or chunk.rows is not None
        state.catch_ups += tokens.caught_up
        replace = replace or tokens.caught_up
        if chunk.rows is not None and tokens.rows_first:
            meta["output_token_logprobs"] = chunk.rows[tokens.rows_first :]
    for step in plan.extras:
        _add_entries(state, meta, step)
    text_start = state.text.length
    text: str | None = None
    if plan.text is not None:
        text_start, text = plan.text.start, plan.text.tail
        state.text.apply(plan.text)
    if plan.text_missing:
        state.text.missing = True
    state.merge(chunk.top, without_rows=tokens is not None)
    if plan.top_p is not None:
        if plan.whole_top_p:
            state.top_p = TopPRows(plan.top_p)
        else:
            state.top_p.append(plan.top_p)
    if plan.routed_experts is not None:
        state.routed_experts = plan.routed_experts
    if plan.indexer_topk is not None:
        state.indexer_topk = plan.indexer_topk
    state.ids_sent = state.ids_sent or chunk.ids is not None
    state.begun = True
    state.version += 1
    state.finish = chunk.finish
    ids = state.token_ids[start:]
    logprobs = state.logprobs[start:]
    if replace:
        start, ids, logprobs = 0, state.token_ids, state.logprobs
        text_start, text = 0, (state.text.value() if state.text.seen and not state.text.missing else None)
        meta = _whole(state, meta)
    return _new_update(
        Update,
        (
            state.index,
            start,
            replace,
            tuple(ids),
            Floats(logprobs)[:],
            text,
            text_start,
            chunk.finish,
            state.top_p.value() if replace else plan.top_p,
            plan.routed_experts,
            meta,
            plan.indexer_topk,
        ),
    )


def nothing_new(state: OutputState) -> Update:
    """The update of a chunk that adds nothing and changes nothing."""
    return _new_update(
        Update, (state.index, len(state.token_ids), False, (), (), None, state.text.length, None, None, None, {}, None)
    )


def grow(
    state: OutputState,
    ids: tuple[int, ...],
    logprobs: tuple[float | None, ...],
    row_texts: list[str | None] | None,
    text: str | None,
    count: int,
    late: tuple[Form, tuple[bytes, ...]],
) -> Update:
    """The commit of a payload that only goes on: tokens, their text, and a ``meta_info`` that is parsed late."""
    start = len(state.token_ids)
    _add_tokens(
        state, ids, [nan if value is None else value for value in logprobs] if None in logprobs else logprobs, row_texts
    )
    state.count = count
    lane = state.text
    text_start = lane.length
    if text:
        lane.append(text)
    elif text is None and ids:
        lane.missing = True
    state.late = late
    return _new_update(
        Update, (state.index, start, False, ids, logprobs, text, text_start, None, None, None, late, None)
    )


def _add_tokens(
    state: OutputState, ids: Sequence[int], logprobs: Sequence[Any], texts: list[str | None] | None
) -> None:
    """Append token ids, and logprob rows: their logprobs (NaN for null), their texts (None: all are null)."""
    if texts is not None or state.row_texts is not None:
        known: list[str | None] = [None] * len(state.logprobs) if state.row_texts is None else state.row_texts
        known.extend([None] * len(logprobs) if texts is None else texts)
        state.row_texts = known
    # From a list at half the price of an extend.
    state.token_ids.fromlist(list(ids))
    state.logprobs.fromlist(list(logprobs))


def _add_entries(state: OutputState, meta: dict[str, Any], step: ExtraStep) -> None:
    extra = state.extras.get(step.name)
    items = [] if extra is None else extra.items
    if step.new is None or items is None:
        # There can be many lists that are not aligned with the tokens, so they share an object.
        state.extras[step.name] = _NOT_ALIGNED if step.lane is None else Extra(step.lane)
        return
    if not items:
        state.meta.pop(step.name, None)  # an empty list, which said nothing of what it is
    items.extend(step.new)
    state.extras[step.name] = Extra(step.lane, items)
    meta[step.name] = step.new


def _whole(state: OutputState, meta: dict[str, Any]) -> dict[str, Any]:
    """``meta`` for an update that replaces: token-aligned lists from the first token on."""
    whole = dict(meta)
    if state.rows_sent:
        whole["output_token_logprobs"] = rows_of(state)
    for name, extra in state.extras.items():
        if extra.items is not None:
            whole[name] = list(extra.items)
    return whole
