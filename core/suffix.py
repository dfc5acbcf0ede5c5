"""Cut out of a payload what the payload before it already said, and parse only the rest.

A cumulative chunk repeats the text, the ids and the rows so far, byte for byte.  So the regions that grew are compared
with the last payload's and cut; what is left is a small payload of the same form, which goes through the full JSON
parse.  The result is the same as parsing everything, because

- each cut region is a run of whole elements (or characters) that was parsed when it first came;
- a region's key stands unescaped exactly once in what is left, and the parse finds it where it belongs;
- what is new in a region holds no key of its own, and the rest holds no backslash, so no key hides behind an escape.

Anything else is a doubt, and a doubt means the full parse.  Knows bytes and positions; what the lists mean is the
accumulator's business.
"""

from __future__ import annotations

import re
from enum import Enum
from typing import Any, NamedTuple

from .chunk import Skips
from .errors import PayloadError
from .extras import ALIGNED
from .payload import parse_payload
from .spans import find_spans
from .state import OutputState

#: Below this, parsing everything costs less than finding out what repeats.
SMALLEST = 1536
_MOST_REST = 64
# The inside of a string; and values without a key: no colon or brace but in strings.
_TEXT = re.compile(rb'[^"\\]*(?:\\.[^"\\]*)*', re.DOTALL)
_VALUES = re.compile(rb'[^"\\:{}]*(?:"[^"\\]*(?:\\.[^"\\]*)*"[^"\\:{}]*)*', re.DOTALL)
_INDEX_AT_END = re.compile(rb'"index":(\d{1,9})\}\Z')
#: Repeated whole in every chunk, in both modes.
_CONSTANTS: tuple[tuple[str, ...], ...] = (
    ("meta_info", "input_token_logprobs"),
    ("meta_info", "input_top_logprobs"),
    ("meta_info", "input_token_ids_logprobs"),
    ("prompt_token_ids",),
)
_SMALLEST_CONSTANT = 256
_TEXT_PATH: tuple[str, ...] = ("text",)
#: Deltas in which a backslash is nothing special.
_LISTS_OF_TEXT: tuple[tuple[str, ...], ...] = (
    _TEXT_PATH,
    *(("meta_info", name) for name in ("output_token_logprobs", *sorted(ALIGNED))),
)


class _Kind(Enum):
    GROWING = "a snapshot: goes on from what the last payload had"
    CONSTANT = "the same in every payload"
    FRESH = "a delta: repeats nothing, but may hold backslashes"


class _Region(NamedTuple):
    """One value to look at.  ``key`` finds its key; ``opener`` and ``closer`` are its surroundings, see ``Span``."""

    path: tuple[str, ...]
    key: re.Pattern[bytes]
    opener: bytes
    closer: bytes
    kind: _Kind


def index_of(payload: bytes) -> int:
    """The output that a payload seems to belong to (SGLang appends ``index`` last); checked after the parse."""
    match = _INDEX_AT_END.search(payload, max(len(payload) - 24, 0))
    return 0 if match is None else int(match[1])


class SuffixCutter:
    """The repeating regions of one output's payloads.  ``learn`` from a whole payload, then ``cut`` those after it."""

    __slots__ = ("_entries", "_failures", "_known", "_payload", "_regions", "_rest")

    def __init__(self) -> None:
        self._regions: list[_Region] = []
        self._payload = b""
        # Per region: where its known content stands in the last payload.
        self._known: list[tuple[int, int]] = []
        # Characters of text, entries of output_ids, entries of each other list: of the last payload.
        self._entries: tuple[int, int, dict[str, int]] = (0, 0, {})
        self._failures = 0
        self._rest = 0

    def learn(self, payload: bytes, data: dict[str, Any], state: OutputState) -> None:
        """Remember where a payload, which was parsed and folded whole, holds what the next one will repeat."""
        if self._rest:
            self._rest -= 1
            return
        self._regions, self._known = [], []
        spans = find_spans(payload)
        kinds: dict[tuple[str, ...], _Kind] = {path: _Kind.GROWING for path in _growing(state) if path in spans}
        for path in _CONSTANTS:
            if path in spans and spans[path].end - spans[path].start >= _SMALLEST_CONSTANT:
                kinds[path] = _Kind.CONSTANT
        if not kinds:
            self._give_up()
            return
        for path in _LISTS_OF_TEXT:
            if path in spans:
                kinds.setdefault(path, _Kind.FRESH)
        for path in sorted(kinds, key=lambda path: spans[path].start):
            span = spans[path]
            if span.closer is not None:  # else there is nothing behind it to find its end by
                key = re.compile(b'"%s"[ \t\n\r]*:' % path[-1].encode())
                self._regions.append(_Region(path, key, span.opener, span.closer, kinds[path]))
                self._known.append((span.start, span.start if kinds[path] is _Kind.FRESH else span.end))
        self._payload = payload
        self._count(state, len(data.get("output_ids") or ()))

    def cut(self, payload: bytes) -> tuple[dict[str, Any], Skips] | None:
        """The payload parsed without what repeats, and what was left out; None if in any doubt."""
        if not self._regions:
            return None
        result = self._cut(payload)
        if result is None:
            self._give_up()
        return result

    def _cut(self, payload: bytes) -> tuple[dict[str, Any], Skips] | None:
        rest: list[bytes] = []
        known: list[tuple[int, int]] = []
        last = self._payload
        position = 0
        for region, (start, end) in zip(self._regions, self._known, strict=True):
            found = payload.find(region.opener, position)
            if found < 0:
                return None
            begin = found + len(region.opener)
            gap = payload[position:begin]
            if b"\\" in gap or not payload.startswith(last[start:end], begin):
                return None
            position = begin + end - start
            close = payload.find(region.closer, position)
            if close < 0 or (region.kind is _Kind.CONSTANT and close != position):
                return None
            rest.append(gap)
            is_text = region.path == _TEXT_PATH
            if close != position:
                if not is_text and end > start:
                    if payload[position] != 44:  # a comma: the list goes on behind the known part
                        return None
                    position += 1
                new = payload[position:close]
                if not new.strip() and not is_text:
                    return None  # a comma before the bracket, which is no JSON
                if (_TEXT if is_text else _VALUES).fullmatch(new) is None:
                    return None
                rest.append(new)
                position = close
            known.append((begin, begin if region.kind is _Kind.FRESH else close))
        tail = payload[position:]
        if b"\\" in tail:
            return None
        rest.append(tail)
        reduced = b"".join(rest)
        for region in self._regions:
            if len(region.key.findall(reduced)) != 1:
                return None
        try:
            data = parse_payload(reduced)
        except PayloadError:
            return None
        skips = self._skips(data)
        if skips is None:
            return None
        self._payload, self._known, self._failures = payload, known, 0
        return data, skips

    def advance(self, data: dict[str, Any], skips: Skips, state: OutputState) -> None:
        """The cut payload was folded: what it added is known from now on."""
        self._count(state, skips.ids + len(data.get("output_ids") or ()))

    def forget(self) -> None:
        """Start anew with the next payload that is learned."""
        self._regions = []
        self._payload = b""

    def _count(self, state: OutputState, ids: int) -> None:
        """How many characters and entries the last payload's snapshots have."""
        lists = {name: len(extra.items) for name, extra in state.extras.items() if extra.items is not None}
        lists["output_token_logprobs"] = len(state.logprobs)
        self._entries = (state.text.length, ids, lists)

    def _skips(self, data: dict[str, Any]) -> Skips | None:
        """What was left out, if each cut value is where it belongs."""
        text = ids = 0
        lists: dict[str, int] = {}
        constants: list[str] = []
        for region in self._regions:
            path = region.path
            value = _value(data, path)
            if type(value) is not (str if path == _TEXT_PATH else list):
                return None
            if region.kind is _Kind.CONSTANT:
                constants.append(path[-1])
            elif region.kind is _Kind.GROWING:
                if path == _TEXT_PATH:
                    text = self._entries[0]
                elif path == ("output_ids",):
                    ids = self._entries[1]
                else:
                    entries = self._entries[2].get(path[-1])
                    if entries is None:
                        return None
                    lists[path[-1]] = entries
        return Skips(text, ids, lists, tuple(constants))

    def _give_up(self) -> None:
        # A stream that keeps raising doubts, or repeats nothing, must not pay for looking: rest longer each time.
        self._failures += 1
        self._rest = min(self._failures * self._failures - 1, _MOST_REST)
        self.forget()


def _growing(state: OutputState) -> list[tuple[str, ...]]:
    """Paths of the values that are known to be snapshots."""
    paths: list[tuple[str, ...]] = []
    if state.text.sure and state.text.lane == "cumulative":
        paths.append(_TEXT_PATH)
    if state.ids_lane == "cumulative":
        paths.append(("output_ids",))
    if state.rows_lane == "cumulative":
        paths.append(("meta_info", "output_token_logprobs"))
    paths.extend(("meta_info", name) for name, extra in state.extras.items() if extra.lane == "cumulative")
    return paths


def _value(data: Any, path: tuple[str, ...]) -> Any:
    for name in path:
        data = data.get(name) if type(data) is dict else None
    return data
