"""Many like events at once: a run of one-token chunks, folded without a Python step per event.

The events of a settled incremental stream differ in the text, one id, one logprob row and a few counters.  So one
payload is made into a pattern, in which everything else must stand as it stood there, and a whole read is matched by
one call; what was captured goes through the JSON parser as arrays.  Bytes that match are events of one ``data`` line
whose payload is valid JSON of exactly that form: the fixed parts were parsed before, the variable parts are now.  Like
``steady.py`` this only adds a shorter way to the same result; ``meta_info`` of the updates is parsed when it is read.
"""

from __future__ import annotations

import re
from array import array
from collections.abc import Callable, Sequence
from itertools import accumulate, count, repeat

from ..fold.payload import json_backend
from ..fold.state import OutputState
from ..limits import MAX_TOKENS
from ..update import Update
from .spans import find_spans
from .steady import form_of

#: Fewer events than this are not worth the preparation.
SHORTEST = 6
_MOST_REST = 64
_LAST = b"\ndata: [DONE]\n\n"
_TEXT = rb'(?P<text>[^"\\\r\n]*(?:\\.[^"\\\r\n]*)*)'
_ROW = rb"\[(?P<logprob>[^,\[\]\"\r\n]+),{id},null\]"
_WHOLE_NUMBER = rb"(?:0|[1-9][0-9]{0,17})"
#: Counts of tokens that nothing is checked against.
_FREE = frozenset({("meta_info", "reasoning_tokens"), ("meta_info", "num_retractions")})
_VARIABLE: dict[tuple[str, ...], bytes] = {
    ("text",): _TEXT,
    ("output_ids",): b"{id}",
    ("meta_info", "output_token_logprobs"): _ROW,
    ("meta_info", "output_token_logprobs_length"): b"{total}",
    ("meta_info", "completion_tokens"): b"{total}",
}
# In C all the way: no Python frame per update.
_make_update: Callable[..., Update] = tuple.__new__


class RunFolder:
    """The pattern of one output's events; ``fold`` takes as many of them from the front of a read as match it."""

    __slots__ = ("_failures", "_order", "_pattern", "_rest", "example")

    def __init__(self) -> None:
        self._pattern: re.Pattern[bytes] | None = None
        # Where the captures of text, id, logprob and total are among all.
        self._order: list[int] = []
        self._failures = 0
        self._rest = 0
        #: A payload of the form that runs have, to learn from; None as long as there was none.
        self.example: bytes | None = None

    @property
    def is_worth_it(self) -> bool:
        """Runs are to be expected: one was found lately, or it is time to look again."""
        if self.example is None:
            return False
        if self._rest:
            self._rest -= 1
            return False
        return True

    def fold(self, state: OutputState, data: bytes) -> tuple[list[Update], int]:
        """Fold the events at the front of ``data``, which begins between two events, that match.

        Returns their updates and where the first other event begins.
        """
        pattern = self._pattern
        if pattern is None:
            pattern = self._pattern = self._learn(self.example or b"")
        updates: list[Update] = []
        end = 0
        if pattern is not None:
            end = data.rfind(b"\n\n") + 2
            if data.endswith(_LAST, 0, end):  # the event before it ends the output, so it is another, too
                end = data.rfind(b"\n\n", 0, data.rfind(b"\n\n", 0, end - len(_LAST)) - 1) + 2
            found: list[tuple[bytes, ...]] = pattern.findall(data[:end])
            if data.count(b"\n", 0, end) != 2 * len(found):
                # Something else is among them: line ends are left over.  Find where.
                end = 0
                while match := pattern.match(data, end):
                    end = match.end()
                found = pattern.findall(data[:end])
            if len(found) >= SHORTEST:
                columns = list(zip(*found, strict=True))
                updates = _fold_columns(state, columns[0], [columns[at] for at in self._order])
        if updates:
            self._failures = 0
            return updates, end
        # Streams whose payloads keep differing must not pay for looking: rest longer each time.
        self._pattern = self.example = None
        self._failures += 1
        self._rest = min(self._failures * self._failures, _MOST_REST)
        return [], 0

    def _learn(self, payload: bytes) -> re.Pattern[bytes] | None:
        spans = find_spans(payload)
        if not spans.keys() >= _VARIABLE.keys():
            return None
        pieces: list[bytes] = []
        at = 0
        seen: set[bytes] = set()
        for path, span in sorted(spans.items(), key=lambda item: item[1].start):
            template = _VARIABLE.get(path)
            if template is None:
                if path not in _FREE or not payload[span.start : span.end].isdigit():
                    continue
                template = _WHOLE_NUMBER
            pieces.append(re.escape(payload[at : span.start]))
            # What must be the same number twice is captured once, and required again by name.
            for name in (b"id", b"total"):
                if b"{%s}" % name in template:
                    number = b"(?P=%s)" % name if name in seen else b"(?P<%s>[0-9]+)" % name
                    template = template.replace(b"{%s}" % name, number)
                    seen.add(name)
            pieces.append(template)
            at = span.end
        pattern = re.compile(b"^data: (%s%s)\n\n" % (b"".join(pieces), re.escape(payload[at:])), re.MULTILINE)
        groups = pattern.groupindex
        self._order = [groups["text"] - 1, groups["id"] - 1, groups["logprob"] - 1, groups["total"] - 1]
        return pattern if pattern.fullmatch(b"data: %s\n\n" % payload) else None


def _fold_columns(state: OutputState, payloads: Sequence[bytes], columns: list[tuple[bytes, ...]]) -> list[Update]:
    texts_raw, ids_raw, logprobs_raw, totals_raw = columns
    start = len(state.token_ids)
    loads = json_backend()
    try:
        totals = loads(b"[%s]" % b",".join(totals_raw))
        ids = loads(b"[%s]" % b",".join(ids_raw))
        logprobs = loads(b"[%s]" % b",".join(logprobs_raw))
        texts = loads(b'["%s"]' % b'","'.join(texts_raw))
        new_ids = array("q", ids)
        meta = loads(payloads[-1])["meta_info"]
    except (ValueError, TypeError, OverflowError):
        return []
    if (
        start + len(ids) > MAX_TOKENS
        or totals != list(range(start + 1, start + len(ids) + 1))
        or set(map(type, logprobs)) != {float}
    ):
        return []
    if form_of(meta) != state.steady:
        return []  # the pattern is older than the form that the stream has now
    lane = state.text
    starts = accumulate(map(len, texts), initial=lane.length)
    none = repeat(None)
    updates = list(
        map(
            _make_update,
            repeat(Update),
            zip(
                repeat(state.index),
                count(start),
                repeat(False),
                zip(ids),
                zip(logprobs),
                texts,
                starts,
                none,
                none,
                none,
                payloads,
                none,
                strict=False,
            ),
        )
    )
    state.token_ids.extend(new_ids)
    state.logprobs.extend(logprobs)
    lane.append("".join(texts))
    state.late_meta = meta
    return updates
