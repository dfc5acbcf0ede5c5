"""The form that the payloads of one output have: fixed pieces, and between them slots for what changes.

Learned from one payload that was parsed and folded, and from the lanes that the output was found to have.  A slot is
the content of a JSON string, array or number; its lane says whether it *grows* (begins with what the last payload had
there) or is new each time.  Whatever else changes from payload to payload (a time stamp, a count) becomes a slot of its
own once it was seen to change.

A payload is of this form if it is ``piece slot piece slot ... piece`` to the last byte, and the content of each slot is
alone valid JSON content of the slot's type.  The pieces were parsed when they were learned, so such a payload is
valid JSON of the same structure, in which each key occurs once.  ``"finish_reason":null`` is in a piece: what ends an
output is never of this form.

Knows which fields are tokens; knows nothing of how a payload is compared or committed (``match.py``).
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import lru_cache
from itertools import pairwise
from typing import Any, Final, NamedTuple

from ..fold import CUMULATIVE, READ_KEYS, OutputState, parse_payload
from .spans import Span

TEXT: Final = "text"
IDS: Final = "output_ids"
ROWS: Final = "output_token_logprobs"
COUNT: Final = "count"
LIST: Final = "list"
FREE: Final = "free"

#: What a slot's content looks like from outside: where it ends.  Whether it is valid is for the JSON parser to say, but
#: for counts and for strings without escapes.
_STRING = rb'[^"\\\x00-\x1f]*(?:\\[^\x00-\x1f][^"\\\x00-\x1f]*)*'
_PLAIN_STRING = rb"[ !#-\[\]-~]*"
_IDS = rb"[0-9, ]*"
_LIST = rb'[^"]*'
_LIST_WITH_STRINGS = rb'[^"\]]*(?:(?:"[^"\\]*(?:\\.[^"\\]*)*"|\](?!%s))[^"\]]*)*'
_COUNT = rb"0|[1-9][0-9]{0,17}"
_ONE_ROW = rb"\[-?(?:0|[1-9][0-9]{0,17})\.[0-9]{1,24}(?:[eE][-+]?[0-9]{1,2})?,%s,null\]"
_NUMBER = rb"-?(?:0|[1-9][0-9]{0,17})(?:\.[0-9]{1,24})?(?:[eE][-+]?[0-9]{1,2})?"

_FIRST_KEY = re.compile(rb'[^"]*"[^"]*"')

#: More than any server has; a pattern costs more than its slots do.
_MOST_SLOTS = 64
_COUNTS = ("completion_tokens", "output_token_logprobs_length", "output_token_sampling_mask_length")
#: Values that come once, and mean that more than tokens is to be planned.
_ENDS = (
    "top_p_token_ids", "top_p_token_offsets", "top_p_kept_token_ids", "top_p_kept_token_offsets", "routed_experts",
    "indexer_topk",
)  # fmt: skip


class Slot(NamedTuple):
    """One place where payloads differ.

    :ivar role: what stands there: :data:`TEXT`, :data:`IDS`, :data:`ROWS`, a counter of tokens (:data:`COUNT`), another
        token-aligned list (:data:`LIST`), or a string or number that may be anything (:data:`FREE`).
    :ivar name: its key.
    :ivar grows: begins with what the last payload had there.
    """

    role: str
    name: str
    grows: bool


class Template:
    """The pieces, the slots between them, and the patterns that cut a payload into both.

    :ivar parts: one pattern from each growing slot to the next; the first begins with the first piece.  Their groups,
        one after the other, are piece, slot, piece, slot, ... and the last piece.
    :ivar growing: the growing slots, and where they were in the payload that this was learned from.
    :ivar text, ids, rows: places of these slots; None where there is no such.
    :ivar completion: place of ``completion_tokens``.
    :ivar counts, lists: places of the counters and of the token-aligned lists.
    :ivar is_single: each chunk is one token: its id, and one plain row with the same id.
    :ivar is_indexed: it has an ``index``: in a batch, whose live lists may have run ahead of their counters.
    """

    __slots__ = (
        "_patterns",
        "completion",
        "counts",
        "growing",
        "ids",
        "is_indexed",
        "is_single",
        "lists",
        "parts",
        "pieces",
        "rows",
        "slots",
        "text",
    )

    def __init__(self, payload: bytes, placed: Sequence[tuple[Slot, Span]], *, is_indexed: bool) -> None:
        edges = [0, *(edge for _, span in placed for edge in (span.start, span.end)), len(payload)]
        cut = [payload[start:end] for start, end in pairwise(edges)]
        pieces = tuple(cut[::2])
        self.pieces: tuple[bytes, ...] = pieces
        slots = [slot for slot, _ in placed]
        self.slots: list[Slot] = slots
        self.growing: list[tuple[Slot, Span]] = [(slot, span) for slot, span in placed if slot.grows]
        self.is_indexed: bool = is_indexed
        contents = {slot.role: content for slot, content in zip(slots, cut[1::2], strict=True)}
        self.is_single: bool = (
            re.fullmatch(_ONE_ROW % re.escape(contents.get(IDS, b"?")), contents.get(ROWS, b"")) is not None
            and list(contents).index(IDS) < list(contents).index(ROWS)
            and not self.growing
            and LIST not in contents
        )
        lists = (LIST,) if self.is_single else (IDS, ROWS, LIST)
        patterns = [_skip(pieces[0])]
        for slot, content, piece in zip(slots, cut[1::2], pieces[1:], strict=True):
            if slot.grows:
                patterns.append(b"")
            patterns[-1] += _of_list(slot, content, piece) if slot.role in lists else _shape(slot) + _skip(piece)
        self._patterns = patterns
        self.parts: list[re.Pattern[bytes]] = _compiled(b"", tuple(patterns), b"")
        places = {slot.role: place for place, slot in enumerate(slots)}
        self.text: int | None = places.get(TEXT)
        self.ids: int | None = places.get(IDS)
        self.rows: int | None = places.get(ROWS)
        self.completion: int = next(place for place, slot in enumerate(slots) if slot.name == "completion_tokens")
        self.counts: list[int] = [place for place, slot in enumerate(slots) if slot.role == COUNT]
        self.lists: list[int] = [place for place, slot in enumerate(slots) if slot.role == LIST]

    def framed(self, before: bytes, after: bytes) -> list[re.Pattern[bytes]]:
        """The same as :attr:`parts` for a payload with something before and after it."""
        return _compiled(before, tuple(self._patterns), after)

    def parsed(self, contents: Sequence[bytes]) -> dict[str, Any]:
        """A payload with these contents in its slots."""
        parts = [self.pieces[0]]
        for content, piece in zip(contents, self.pieces[1:], strict=True):
            parts += (content, piece)
        return parse_payload(b"".join(parts))


def learn(
    payload: bytes, spans: Sequence[Span], state: OutputState, free: frozenset[tuple[str, ...]]
) -> Template | None:
    """The template of ``payload``, which was folded into ``state`` just now; None if nothing can be learned from it.

    :param spans: of ``payload``.
    :param free: paths of strings and numbers that were seen to change.
    """
    named = {span.path: span.kind for span in spans}
    if not _has_all(state, named, payload):
        return None
    placed = [(slot, span) for span in spans if (slot := _slot_of(span, state, named, free)) is not None]
    if len(placed) > _MOST_SLOTS:
        return None
    return Template(payload, placed, is_indexed=("index",) in named)


def changed(payload: bytes, spans: Sequence[Span], before: bytes, then: Sequence[Span]) -> frozenset[tuple[str, ...]]:
    """Paths of the strings and numbers that two payloads both have, with other values."""
    values = {(span.path, span.kind): before[span.start : span.end] for span in then if span.kind != "["}
    return frozenset(
        span.path
        for span in spans
        if values.get((span.path, span.kind), payload[span.start : span.end]) != payload[span.start : span.end]
    )


def is_settled(state: OutputState) -> bool:
    """Each lane of the output is known, and nothing is missing in one."""
    if state.finish is not None or state.error is not None or (state.text.seen and not state.text.sure):
        return False
    if state.ids_sent and state.ids_lane is None:
        return False
    if state.rows_sent and (state.rows_lane is None or len(state.logprobs) != len(state.token_ids)):
        return False
    return all(extra.items is None or extra.lane is not None for extra in state.extras.values())


def _has_all(state: OutputState, named: dict[tuple[str, ...], str], payload: bytes) -> bool:
    """The payload has all parts that the output has, and nothing that comes once."""
    return (
        named.get(("meta_info", "completion_tokens")) == "0"
        and (named.get(("output_ids",)) == "[") is state.ids_sent
        and (named.get(("meta_info", "output_token_logprobs")) == "[") is state.rows_sent
        and not any(("meta_info", name) in named for name in _ENDS)
        and b'"beam_results"' not in payload
        and all(extra.items is None or named.get(("meta_info", name)) == "[" for name, extra in state.extras.items())
    )


def _slot_of(
    span: Span, state: OutputState, named: dict[tuple[str, ...], str], free: frozenset[tuple[str, ...]]
) -> Slot | None:
    path, name = span.path, span.path[-1]
    if path == ("text",) and span.kind == '"':
        return Slot(TEXT, name, state.text.lane == CUMULATIVE)
    if path == ("output_ids",) and span.kind == "[":
        return Slot(IDS, name, state.ids_lane == CUMULATIVE)
    if path == ("meta_info", "output_token_logprobs") and span.kind == "[":
        return Slot(ROWS, name, state.rows_lane == CUMULATIVE)
    if span.kind == "[":
        extra = state.extras.get(name) if path[0] == "meta_info" else None
        return None if extra is None or extra.items is None else Slot(LIST, name, extra.lane == CUMULATIVE)
    if path[0] == "meta_info" and name in _COUNTS and span.kind == "0":
        return Slot(COUNT, name, False)
    return Slot(FREE, span.kind, False) if path in free and name not in READ_KEYS else None


def _shape(slot: Slot) -> bytes:
    """A group for the content of a slot whose end can be recognised."""
    if slot.role == IDS:
        return b"(?P<id>%s)" % _COUNT
    if slot.role == TEXT:
        return b"(%s)" % _STRING
    if slot.role == ROWS:
        return b"(%s)" % (_ONE_ROW % b"(?P=id)")
    if slot.role == FREE:
        return b"(%s)" % (_NUMBER if slot.name == "0" else _PLAIN_STRING)
    return b"(%s)" % _COUNT


def _of_list(slot: Slot, content: bytes, piece: bytes) -> bytes:
    """Groups for what is new in a list, and for the piece after it.

    A list may hold brackets and strings, so the piece's first key is spelled out: it shows where the list ends, and no
    second place can be tried.  A search for one would take exponential time where several lists follow each other.
    """
    first_key = _FIRST_KEY.match(piece)
    start = piece if first_key is None else first_key[0]
    if b'"' in content:
        elements = _LIST_WITH_STRINGS % re.escape(start[1:])
    else:
        elements = _IDS if slot.role == IDS else _LIST
    # What a list that is not empty goes on with: a comma and at least one element, or nothing.
    shape = (rb"(?:, ?(?=[^\s\]])(%s))?" if slot.grows else b"(%s)") % elements
    return shape + b"(%s.{%d})" % (re.escape(start), len(piece) - len(start))


def _skip(piece: bytes) -> bytes:
    """A group for a piece: its length, which outputs of one server have in common, and not its bytes."""
    return b"(%s.{%d})" % (re.escape(piece[:1]), len(piece) - 1)


@lru_cache(maxsize=512)
def _compiled(before: bytes, patterns: tuple[bytes, ...], after: bytes) -> list[re.Pattern[bytes]]:
    # Takes ten times as long as all else that is learned, so outputs share it.
    whole = [re.escape(before) + patterns[0], *patterns[1:]]
    whole[-1] += re.escape(after)
    return [re.compile(pattern, re.DOTALL) for pattern in whole]
