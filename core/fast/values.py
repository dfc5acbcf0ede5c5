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
    plain_row,
)
from ..limits import MAX_TOKENS
from ..update import Update
from ..views import none_for_nan
from .template import Template

_new_update = tuple.__new__


def fold_values(template: Template, state: OutputState, new: tuple[bytes, ...]) -> Update | None:
    """Parse what is new, check it, and change the state; or change nothing."""
    loads = json_backend()
    have = len(state.token_ids)
    text: str | None = None
    ids: Sequence[int] = ()
    logprobs: Sequence[float] = ()
    told: tuple[float | None, ...] = ()
    texts: list[str | None] | None = None
    lists: list[tuple[list[Any], list[Any]]] = []
    try:
        if template.text is not None:
            raw = new[template.text]
            text = loads(b'"%s"' % raw) if b"\\" in raw else raw.decode()
        if template.rows is not None:
            raw = new[template.rows]
            if b"\n" in raw or b"\r" in raw:
                return None
            rows = loads(b"[%s]" % raw)
            plain = plain_row(rows[0]) if len(rows) == 1 else plain_columns(rows)
            if plain is not None:
                ids, logprobs = plain
                told = tuple(logprobs)
            elif rows:
                ids, logprobs, texts, width = parse_rows(rows, have)
                told = tuple(none_for_nan(logprobs))
                if width != state.row_width:
                    return None
            if len(state.logprobs) != have:
                return None
        if template.ids is not None:
            raw = new[template.ids]
            if template.rows is None:
                ids = parse_ids(loads(b"[%s]" % raw))
            elif raw != b"%d" % ids[0] if len(ids) == 1 else loads(b"[%s]" % raw) != list(ids):
                return None
        total = have + len(ids)
        for place in template.lists:
            items = state.extras[template.slots[place].name].items or []
            if b"\n" in new[place] or b"\r" in new[place]:
                return None
            entries = parse_json(b"[%s]" % new[place], MAX_DEPTH - 2)
            if len(items) + len(entries) != total:
                return None
            lists.append((items, entries))
    except (ValueError, RecursionError):
        return None
    wanted = b"%d" % total
    for place in template.counts:
        if new[place] != wanted and not _may_lag(template, state, place, int(new[place]), total):
            return None
    if total > MAX_TOKENS:
        return None
    add_tokens(state, ids, logprobs, texts)
    state.count = int(new[template.completion])
    for items, entries in lists:
        items.extend(entries)
    lane = state.text
    text_start = lane.length
    if text is not None:
        lane.append(text)
    elif ids:
        lane.missing = True
    late = state.late = template, new
    return _new_update(
        Update, (state.index, have, False, tuple(ids), told, text, text_start, None, None, None, late, None)
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
