"""Cut out of a payload what the payload before it already said, and parse only the rest.

A cumulative chunk repeats the text, the ids and the rows so far, byte for byte.  So the regions that grew are compared
with the last payload's and cut; what is left is a small payload of the same form, which goes through the full JSON
parse (or, where it looks as one did that was parsed, through ``step.py``).  The result is the same as parsing
everything, because

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

from ..errors import PayloadError
from ..fold.chunk import Skips
from ..fold.extras import ALIGNED
from ..fold.payload import parse_payload
from ..fold.state import OutputState
from .spans import find_spans
from .step import Step, learn_step, read_step

#: Below this, parsing everything costs less than finding out what repeats.
SMALLEST = 1536
_MOST_REST = 64
# The inside of a string; and at least one value, without a key: no colon or brace but in strings.
_TEXT = re.compile(rb'[^"\\]*(?:\\.[^"\\]*)*', re.DOTALL)
_VALUES = re.compile(rb'(?=[ \t\n\r]*[^ \t\n\r])[^"\\:{}]*(?:"[^"\\]*(?:\\.[^"\\]*)*"[^"\\:{}]*)*', re.DOTALL)
_INDEX_AT_END = re.compile(rb'"index":(\d{1,9})\}\Z')
#: Repeated whole in every chunk, in both modes.
_CONSTANTS: tuple[tuple[str, ...], ...] = (
    ("meta_info", "input_token_logprobs"),
    ("meta_info", "input_top_logprobs"),
    ("meta_info", "input_token_ids_logprobs"),
    ("prompt_token_ids",),
)
_SMALLEST_CONSTANT = 256
_COMMA = 44
# As numbers: to look for b"x" costs ten times as much as for 120.
_BACKSLASH = 92
_NEAR = 2048
_TEXT_PATH: tuple[str, ...] = ("text",)
_IDS_PATH: tuple[str, ...] = ("output_ids",)
_ROWS_PATH: tuple[str, ...] = ("meta_info", "output_token_logprobs")
_STEP_PATHS = (_TEXT_PATH, _IDS_PATH, _ROWS_PATH)
#: Deltas in which a backslash is nothing special.
_LISTS_OF_TEXT: tuple[tuple[str, ...], ...] = (
    _TEXT_PATH,
    *(("meta_info", name) for name in ("output_token_logprobs", *sorted(ALIGNED))),
)


class _Kind(Enum):
    GROWING = "a snapshot: goes on from what the last payload had"
    CONSTANT = "the same in every payload"
    FRESH = "a delta: repeats nothing, but may hold backslashes"


# Told apart once per region of every payload: without the look-up in the class.
_CONSTANT, _FRESH = _Kind.CONSTANT, _Kind.FRESH
#: The gap before a region, where it begins, and where the region's known content begins and ends.
_Known = tuple[bytes, int, int, int]


class _Region(NamedTuple):
    """One value to look at.

    :ivar name: its key in quotes; ``key`` finds it as a key.
    :ivar opener: the bytes between the region before (its closing quote or bracket included) and this one's content.
    :ivar closer: from its closing quote or bracket to the colon of the next key.
    :ivar new: what may be new in it.
    """

    path: tuple[str, ...]
    name: bytes
    key: re.Pattern[bytes]
    opener: bytes
    closer: bytes
    kind: _Kind
    new: re.Pattern[bytes]


def index_of(payload: bytes) -> int:
    """The output that a payload seems to belong to (SGLang appends ``index`` last); checked after the parse."""
    match = _INDEX_AT_END.search(payload, max(len(payload) - 24, 0))
    return 0 if match is None else int(match[1])


class SuffixCutter:
    """The repeating regions of one output's payloads.  ``learn`` from a whole payload, then ``cut`` those after it.

    :ivar constants: names of values that are the same in every payload and are cut whole.
    :ivar ids: length of ``output_ids`` in the last payload, if that is cut.
    :ivar leaves_deltas: text, ids and rows are all cut and nothing else grows: what is left after cutting is what a
        server in incremental mode would send, as long as no list ran ahead of another.
    """

    __slots__ = (
        "_alike",
        "_failures",
        "_growing",
        "_known",
        "_next",
        "_patience",
        "_payload",
        "_pieces",
        "_regions",
        "_rest",
        "_step",
        "constants",
        "ids",
        "leaves_deltas",
    )

    def __init__(self) -> None:
        self._regions: list[_Region] = []
        # How many values were known to be snapshots when the regions were learned.
        self._growing = 0
        self._payload = b""
        # Per region, in the last payload.
        self._known: list[_Known] = []
        # The payload that was split: the gap before each region and what is new in it, in turn, and what comes last.
        self._pieces: list[bytes] = []
        self._next: tuple[bytes, list[_Known]] = (b"", [])
        self._failures = 0
        self._rest = 0
        # What those with one token look like; learned anew, ever later, after one that does not.
        self._step: Step | None = None
        self._alike = 0
        self._patience = 1
        self.constants: tuple[str, ...] = ()
        self.ids: int = 0
        self.leaves_deltas: bool = False

    def learn(self, payload: bytes, data: dict[str, Any], state: OutputState) -> None:
        """Remember where a payload, which was parsed and folded whole, holds what the next one will repeat."""
        if self._rest:
            self._rest -= 1
            return
        self._regions, self._known, self._step = [], [], None
        spans = find_spans(payload)
        growing = _growing(state)
        self._growing = len(growing)
        kinds: dict[tuple[str, ...], _Kind] = {path: _Kind.GROWING for path in growing if path in spans}
        for path in _CONSTANTS:
            if path in spans and spans[path].end - spans[path].start >= _SMALLEST_CONSTANT:
                kinds[path] = _Kind.CONSTANT
        if not kinds:
            self._give_up()
            return
        for path in _LISTS_OF_TEXT:
            if path in spans:
                kinds.setdefault(path, _Kind.FRESH)
        at = 0
        for path in sorted(kinds, key=lambda path: spans[path].start):
            span, kind = spans[path], kinds[path]
            if span.closer is None:
                continue  # nothing behind it to find its end by
            name = b'"%s"' % path[-1].encode()
            key = re.compile(b"%s[ \t\n\r]*:" % name)
            new = _TEXT if path == _TEXT_PATH else _VALUES
            self._regions.append(_Region(path, name, key, span.opener, span.closer, kind, new))
            end = span.start if kind is _FRESH else span.end
            self._known.append((payload[at : span.start], at, span.start, end))
            at = span.end
        self._payload = payload
        self.ids = len(data.get("output_ids") or ())
        self.constants = tuple(region.path[-1] for region in self._regions if region.kind is _CONSTANT)
        cut = {region.path for region in self._regions if region.kind is _Kind.GROWING}
        self.leaves_deltas = cut == {_TEXT_PATH, _IDS_PATH} | ({_ROWS_PATH} if state.rows_sent else set())

    def split(self, payload: bytes) -> bool:
        """Compare and cut: find what is new in each region.  False if in any doubt.

        After True the payload is in pieces, to be matched or parsed, and then taken.
        """
        if not self._regions:
            return False
        if self._split(payload):
            return True
        self._give_up()
        return False

    def step(self, state: OutputState) -> tuple[str, int, float] | None:
        """Text, id and logprob of what was split, if that is all that it adds to a settled output."""
        step = self._step
        if step is None or step.steady != state.steady:
            return None
        return read_step(step, self._pieces, len(state.token_ids) + 1)

    def reduced(self) -> bytes:
        """The payload without what repeats."""
        return b"".join(self._pieces)

    def parse(self) -> dict[str, Any] | None:
        """The payload parsed without what repeats; None if in any doubt."""
        data = self._parse()
        if data is None:
            self._give_up()
        else:
            self.take()
        return data

    def take(self) -> None:
        """What was split is, from now on, what the next payload repeats."""
        self._payload, self._known = self._next
        self._failures = 0

    def expect(self, state: OutputState) -> None:
        """What was split and parsed brought one token: those to come may look like it."""
        if self._step is not None:
            self._step = None  # this one did not, as something else in it changes, too
            self._patience *= 2
            self._alike = 0
        self._alike += 1
        if self._alike == self._patience and state.steady is not None:
            paths = [region.path for region in self._regions]
            if all(path in paths for path in _STEP_PATHS):
                text, ids, rows = (2 * paths.index(path) + 1 for path in _STEP_PATHS)
                self._step = learn_step(self._pieces, (text, ids, rows), len(state.token_ids), state.steady)

    def _split(self, payload: bytes) -> bool:
        pieces: list[bytes] = []
        known: list[_Known] = []
        last = memoryview(self._payload)  # its slices are compared without being copied
        position = 0
        for region, (last_gap, gap_at, start, end) in zip(self._regions, self._known, strict=True):
            _, _, _, opener, closer, kind, pattern = region
            gap, after = last_gap, position
            if payload.startswith(last[gap_at:end], position):
                begin = position + start - gap_at
            else:  # maybe only the gap is another one
                gap = payload[position : payload.find(opener, position) + len(opener)]
                begin = position + len(gap)
                if not gap.endswith(opener) or _BACKSLASH in gap or not payload.startswith(last[start:end], begin):
                    return False
            position = begin + end - start
            new = b""
            if kind is _CONSTANT:
                if not payload.startswith(closer, position):
                    return False
                close = position
            else:
                # It is nearly always close by, and to search little is cheaper than to prepare for searching much.
                close = payload.find(closer, position, position + _NEAR)
                if close < 0 and (close := payload.find(closer, position)) < 0:
                    return False
                if close != position:
                    if pattern is _VALUES and end > start:
                        if payload[position] != _COMMA:  # the list goes on behind the known part
                            return False
                        position += 1
                        if position == close:  # a comma and nothing: no JSON
                            return False
                    new = payload[position:close]
                    position = close
            pieces += (gap, new)
            known.append((gap, after, begin, begin if kind is _FRESH else close))
        pieces.append(payload[position:])
        self._pieces = pieces
        self._next = payload, known
        return True

    def _parse(self) -> dict[str, Any] | None:
        pieces = self._pieces
        for region, new in zip(self._regions, pieces[1::2], strict=True):
            if new and region.new.fullmatch(new) is None:
                return None
        if _BACKSLASH in pieces[-1]:
            return None
        reduced = b"".join(pieces)
        for region in self._regions:
            if reduced.count(region.name) != 1 and len(region.key.findall(reduced)) != 1:
                return None
        try:
            data = parse_payload(reduced)
        except PayloadError:
            return None
        # Each cut value must be where it belongs, and not in some other object under the same name.
        meta = data.get("meta_info")
        if type(meta) is not dict:
            return None
        for region in self._regions:
            path = region.path
            value = (data if len(path) == 1 else meta).get(path[-1])
            if type(value) is not (str if path == _TEXT_PATH else list):
                return None
        return data

    def skips(self, state: OutputState) -> Skips | None:
        """What was cut from the payload that is about to be folded.

        None if a list turned out to be no lane, or if more is known to repeat by now than is cut: learn anew.
        """
        if len(_growing(state)) != self._growing:
            return None
        text = ids = 0
        lists: dict[str, int] = {}
        for region in self._regions:
            path = region.path
            if region.kind is not _Kind.GROWING:
                continue
            if path == _TEXT_PATH:
                text = state.text.length
            elif path == _IDS_PATH:
                ids = self.ids
                if ids > len(state.token_ids):
                    return None  # it ran ahead, and what ran ahead was not compared with anything yet
            elif path == _ROWS_PATH:
                lists[path[-1]] = len(state.logprobs)
            else:
                items = state.extras[path[-1]].items
                if items is None:
                    return None
                lists[path[-1]] = len(items)
        return Skips(text, ids, lists, self.constants)

    def forget(self) -> None:
        """Start anew with the next payload that is learned."""
        self._regions = []
        self._payload = b""
        self._pieces = []
        self._next = (b"", [])

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
        paths.append(_IDS_PATH)
    if state.rows_lane == "cumulative":
        paths.append(_ROWS_PATH)
    paths.extend(("meta_info", name) for name, extra in state.extras.items() if extra.lane == "cumulative")
    return paths
