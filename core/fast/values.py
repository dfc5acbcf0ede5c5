"""Parse what is new in a payload's slots, check that it adds up, and commit it.

Ids and rows must be as many as each other and say the same ids, other token-aligned lists must be as long as the
tokens, and each counter must be the total.  Only in a batch may cumulative lists have run ahead of their counters.
Token ids and rows are read by the same functions as on the full path, and committed by the same.  Knows nothing of how
the slots were found; but white space that would end a line on the wire is left to the full path.
"""

from __future__ import annotations

from typing import Any

from ..fold import (
    MAX_DEPTH,
    OutputState,
    grow,
    json_backend,
    parse_ids,
    parse_json,
    parse_rows,
    plain_columns,
)
from ..limits import MAX_TOKENS
from ..update import Update
from ..views import none_for_nan
from .template import IDS, LIST, ROWS, Template


def fold_one(template: Template, state: OutputState, new: tuple[bytes, ...]) -> Update | None:
    """For a template of chunks of one plain row: its pattern says already what the row is."""
    have = len(state.token_ids)
    count = b"%d" % (have + 1)
    for place in template.counts:
        if new[place] != count:
            return None
    if state.count != have or have >= MAX_TOKENS:
        return None
    loads = json_backend()
    text: str | None = None
    try:
        logprob, token_id, _ = loads(new[template.rows or 0])
        if template.text is not None:
            raw = new[template.text]
            text = loads(b'"%s"' % raw) if b"\\" in raw else raw.decode()
    except ValueError:
        return None
    return grow(state, (token_id,), (logprob,), None, text, have + 1, (template, new))


def fold_values(template: Template, state: OutputState, new: tuple[bytes, ...]) -> Update | None:
    """Parse what is new, check it, and change the state; or change nothing."""
    have = len(state.token_ids)
    ids: tuple[int, ...] = ()
    logprobs: tuple[float | None, ...] = ()
    texts: list[str | None] | None = None
    text: str | None = None
    lists: list[tuple[list[Any], list[Any]]] = []
    loads = json_backend()
    try:
        if template.text is not None:
            raw = new[template.text]
            text = loads(b'"%s"' % raw) if b"\\" in raw else raw.decode()
        if template.rows is not None:
            raw = new[template.rows]
            if b"\n" in raw or b"\r" in raw:
                return None
            rows = loads(b"[%s]" % raw)
            plain = plain_columns(rows)
            width = 3 if rows else state.row_width
            if plain is not None:
                ids, logprobs = plain
            elif rows:
                parsed = parse_rows(rows, have)
                ids, logprobs, texts = tuple(parsed.ids), tuple(none_for_nan(parsed.logprobs)), parsed.texts
                width = parsed.width
            if width != state.row_width:
                return None
        if template.ids is not None:
            if not template.slots[template.ids].grows and state.count != have:
                return None
            raw = new[template.ids]
            if template.rows is None:
                ids = tuple(parse_ids(loads(b"[%s]" % raw)))
            elif raw != b"%d" % ids if len(ids) == 1 else loads(b"[%s]" % raw) != list(ids):
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
            number = int(new[place])
            if not _may_lag(template, place, number, total):
                return None
            if place == template.completion:
                count = number
    if total > MAX_TOKENS or count < (state.count or 0):
        return None
    for items, entries in lists:
        items.extend(entries)
    return grow(state, ids, logprobs, texts, text, count, (template, new))


def _may_lag(template: Template, place: int, count: int, total: int) -> bool:
    """Whether a counter may be less than the total: lists of a batch run ahead.  Or there is nothing to count."""
    slots = template.slots
    if template.ids is None and template.rows is None:
        return slots[place].name == "completion_tokens" and template.text is not None and slots[template.text].grows
    growing = (slot.grows for slot in slots if slot.role in (IDS, ROWS, LIST))
    return template.is_indexed and count < total and all(growing)
