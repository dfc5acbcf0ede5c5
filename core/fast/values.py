"""Parse what is new in a payload's slots, check that it adds up, and commit it.

Ids and rows must be as many as each other and say the same ids, other token-aligned lists must be as long as the tokens,
and each counter must be the total.  Only in a batch may cumulative lists have run ahead of their counters.  Token ids
and rows are read by the same functions as on the full path, and committed by the same.  Knows nothing of how the slots
were found; but white space that would end a line on the wire is left to the full path.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ..fold import (
    MAX_DEPTH,
    OutputState,
    add_tokens,
    json_backend,
    parse_ids,
    parse_json,
    parse_rows,
    plain_columns,
)
from ..limits import MAX_TOKENS
from ..update import Update
from ..views import none_for_nan
from .template import Template

_new_update = tuple.__new__


def fold_values(template: Template, state: OutputState, new: tuple[bytes, ...]) -> Update | None:
    """Parse what is new, check it, and change the state; or change nothing."""
    have = len(state.token_ids)
    ids: Sequence[int] = ()
    new_ids: Sequence[int] | None = None
    logprobs: Sequence[float] = ()
    told: tuple[float | None, ...] = ()
    texts: list[str | None] | None = None
    lists: list[tuple[list[Any], list[Any]]] = []
    loads = json_backend()
    try:
        text = _text(template, new)
        if template.rows is not None:
            raw = new[template.rows]
            if b"\n" in raw or b"\r" in raw or len(state.logprobs) != have:
                return None
            rows = loads(b"[%s]" % raw)
            plain = plain_columns(rows)
            if plain is not None:
                ids, told, new_ids, logprobs = plain
            elif rows:
                ids, logprobs, texts, width = parse_rows(rows, have)
                told = tuple(none_for_nan(logprobs))
                if width != state.row_width:
                    return None
        if template.ids is not None:
            said = loads(b"[%s]" % new[template.ids])
            if template.rows is None:
                ids = parse_ids(said)
            elif said != list(ids):
                return None
        total = have + len(ids)
        for place in template.lists:
            if b"\n" in new[place] or b"\r" in new[place]:
                return None
            items = state.extras[template.slots[place].name].items or []
            entries = parse_json(b"[%s]" % new[place], MAX_DEPTH - 2)
            if len(items) + len(entries) != total:
                return None
            lists.append((items, entries))
    except (ValueError, RecursionError):
        return None
    count = total
    wanted = b"%d" % total
    for place in template.counts:
        if new[place] != wanted:
            said = int(new[place])
            if not _may_lag(template, state, place, said, total):
                return None
            if place == template.completion:
                count = said
    if total > MAX_TOKENS:
        return None
    add_tokens(state, new_ids or ids, logprobs, texts)
    for items, entries in lists:
        items.extend(entries)
    return _committed(template, state, new, have, tuple(ids), told, text, count)


def fold_one(template: Template, state: OutputState, new: tuple[bytes, ...]) -> Update | None:
    """The same for a template of chunks of one plain row: its pattern says already what the row is."""
    have = len(state.token_ids)
    wanted = b"%d" % (have + 1)
    for place in template.counts:
        if new[place] != wanted:
            return None
    number, token_id = new[template.rows or 0][1:-6].split(b",")
    if (
        (template.ids is not None and new[template.ids] != token_id)
        or len(state.logprobs) != have
        or have >= MAX_TOKENS
    ):
        return None
    try:
        text = _text(template, new)
    except ValueError:
        return None
    ids, logprobs = (int(token_id),), (float(number),)
    add_tokens(state, ids, logprobs)
    return _committed(template, state, new, have, ids, logprobs, text, have + 1)


def _text(template: Template, new: tuple[bytes, ...]) -> str | None:
    if template.text is None:
        return None
    raw = new[template.text]
    text: str = json_backend()(b'"%s"' % raw) if b"\\" in raw else raw.decode()
    return text


def _committed(
    template: Template,
    state: OutputState,
    new: tuple[bytes, ...],
    start: int,
    ids: tuple[int, ...],
    logprobs: tuple[float | None, ...],
    text: str | None,
    count: int,
) -> Update:
    """The rest of the commit, and the update."""
    state.count = count
    lane = state.text
    text_start = lane.length
    if text:
        lane.append(text)
    elif text is None and ids:
        lane.missing = True
    late = state.late = template, new
    return _new_update(
        Update, (state.index, start, False, ids, logprobs, text, text_start, None, None, None, late, None)
    )


def _may_lag(template: Template, state: OutputState, place: int, count: int, total: int) -> bool:
    """Whether a counter may be less than the total: lists of a batch run ahead.  Or there is nothing to count."""
    slots = template.slots
    name = slots[place].name
    token_slots = [place for place in (template.ids, template.rows) if place is not None]
    if name == "completion_tokens" and count < (state.count or 0):
        return False
    if not token_slots:
        return name == "completion_tokens"
    return template.is_indexed and count < total and all(slots[place].grows for place in token_slots)
