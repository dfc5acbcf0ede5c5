"""Fold a payload by its output's template: compare what repeats, parse what is new, and check that it adds up.

The result is what the full path would give, or None: then the full path decides, and the template is learned anew.
What must hold for a payload to be folded here:

- it is of the template's form to the last byte (``template.py``); a slot that grows begins with all that it held
  before, and goes on with a comma if that was not empty;
- what is new in each slot is by itself valid JSON of the slot's type;
- ids and rows are as many as each other and say the same ids, other token-aligned lists are as long, and each counter
  is the total.  Only in a batch may cumulative lists have run ahead of their counters.

Token ids and rows are read by the same functions as on the full path, and committed by the same.  Knows one output;
knows nothing of the others, of events and of failures: nothing here raises.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
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
from .spans import Span, find_spans
from .template import LIST, TEXT, Slot, Template, changed, is_settled, learn

_MOST_WAITING = 64
_new_update = tuple.__new__


class Matcher:
    """The template of one output, and the last payload of its form."""

    __slots__ = (
        "_failures",
        "_free",
        "_held",
        "_last",
        "_learned_from",
        "_loads",
        "_state",
        "_template",
        "_waiting",
        "tail",
    )

    def __init__(self, state: OutputState) -> None:
        self._state = state
        self._template: Template | None = None
        # The last payload, and where its growing slots are.
        self._last: memoryview = memoryview(b"")
        self._held: list[tuple[int, int]] = []
        self._learned_from: tuple[bytes, Sequence[Span]] = (b"", ())
        self._free: frozenset[tuple[str, ...]] = frozenset()
        self._loads: Callable[[bytes], Any] = json_backend()
        # Payloads that keep changing their form must not pay for learning: wait longer each time.
        self._failures: int = 0
        self._waiting: int = 0
        #: What the payloads end with, as far as it tells them from those of other outputs.
        self.tail: bytes = b""

    def fold(self, data: bytes, start: int, end: int) -> Update | None:
        """Fold the payload ``data[start:end]`` if it is of the template's form and all its claims hold."""
        template = self._template
        if template is None:
            return None
        parts = template.parts
        found = parts[0].match(data, start, end)
        if found is None:
            return None
        groups = found.groups()
        held: list[tuple[int, int]] = []
        if len(parts) > 1:
            last = self._last
            for (first, stop), part in zip(self._held, parts[1:], strict=True):
                at = found.end()
                if not data.startswith(last[first:stop], at):
                    return None
                found = part.match(data, at + stop - first, end)
                if found is None:
                    return None
                groups += found.groups(b"")
                held.append((at, found.start(2)))
        if found.end() != end or groups[::2] != template.pieces:
            return None
        update = self._commit(template, groups[1::2])
        if update is None:
            return None
        self._failures = 0
        if held:
            self._last = memoryview(data)
            self._held = held
        return update

    def _commit(self, template: Template, new: tuple[bytes, ...]) -> Update | None:
        """Parse what is new, check it, and change the state; or change nothing."""
        state, loads = self._state, self._loads
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
                rows = loads(b"[%s]" % new[template.rows])
                plain: tuple[Sequence[int], Sequence[float]] | None = None
                if len(rows) == 1:
                    plain = plain_row(rows[0])
                else:
                    plain = plain_columns(rows)
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
                entries = parse_json(b"[%s]" % new[place], MAX_DEPTH - 2)
                if len(items) + len(entries) != total:
                    return None
                lists.append((items, entries))
        except (ValueError, RecursionError):
            return None
        wanted = b"%d" % total
        for place in template.counts:
            if new[place] != wanted and not self._may_lag(template, place, int(new[place]), total):
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

    def _may_lag(self, template: Template, place: int, count: int, total: int) -> bool:
        """Whether a counter may be less than the total: lists of a batch run ahead.  Or there is nothing to count."""
        slots = template.slots
        name = slots[place].name
        token_slots = [place for place in (template.ids, template.rows) if place is not None]
        if name == "completion_tokens" and count < (self._state.count or 0):
            return False
        if not token_slots:
            return name == "completion_tokens"
        return template.is_indexed and count < total and all(slots[place].grows for place in token_slots)

    def learn(self, payload: bytes) -> None:
        """Learn from a payload that the full path has just folded."""
        self._template = None
        if self._waiting:
            self._waiting -= 1
            return
        if not is_settled(self._state):
            return
        self._waiting = min(2**self._failures - 1, _MOST_WAITING)
        self._failures += 1
        spans = find_spans(payload)
        self._free |= changed(payload, spans, *self._learned_from)
        self._learned_from = payload, spans
        template = learn(payload, spans, self._state, self._free)
        if template is not None and all(
            self._holds(slot, payload[span.start : span.end]) for slot, span in template.growing
        ):
            self._template = template
            self._last = memoryview(payload)
            self._held = [(span.start, span.end) for _, span in template.growing]

    def _holds(self, slot: Slot, content: bytes) -> bool:
        """Whether the content of a growing slot is all that the state holds of it."""
        state = self._state
        if slot.role == TEXT:
            return bool(self._loads(b'"%s"' % content) == state.text.value())
        known = len(state.extras[slot.name].items or ()) if slot.role == LIST else len(state.token_ids)
        return known > 0 and len(self._loads(b"[%s]" % content)) == known
