"""The text of one output: pieces or snapshots, joined when it is read.

Text alone does not show whether it is a delta or a snapshot ("a" then "a"), so the accumulator brings evidence from the
other lanes.  Without evidence the prefix test decides for the time being; lengths are kept so that the guess can be
corrected: then the next update rewrites from where the two readings differ.  Nothing here knows of ids, counters or
chunks.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from ..errors import ProtocolError
from .lanes import CUMULATIVE, INCREMENTAL, Lane

#: Pieces in a row that are worth joining.
_MANY_PARTS = 128


class TextStep(NamedTuple):
    """What a chunk's text does: cut the text to ``start`` characters, append ``tail``.

    ``whole``: the chunk carried the text from the beginning, so nothing before it is missing any more.
    """

    start: int
    tail: str
    lane: Lane | None
    sure: bool
    whole: bool = False


class TextLane:
    """Text received so far.  ``plan_*`` changes nothing; ``apply`` cannot fail."""

    __slots__ = ("_joined", "_marks", "lane", "length", "missing", "parts", "seen", "sure")

    def __init__(self) -> None:
        #: Pieces of the text in order; the list itself stays the same object.
        self.parts: list[str] = []
        # This many pieces at the front are joined ones.
        self._joined: int = 0
        self.length: int = 0
        self.lane: Lane | None = None
        self.sure: bool = False
        #: Text came at least once.
        self.seen: bool = False
        #: Tokens came without text, so the text is not whole.
        self.missing: bool = False
        # While unsure: the length after each chunk under the cumulative reading, to rebuild the other one.
        self._marks: list[int] = []

    def value(self) -> str:
        """The whole text."""
        parts = self.parts
        if len(parts) > 1:
            parts[:] = ["".join(parts)]
            self._joined = 1
        return parts[0] if parts else ""

    def plan(self, text: str, evidence: Lane | None, sure: bool) -> TextStep:
        """Place the text of an ordinary chunk, given what the other lanes say."""
        if self.sure:
            lane, sure = self.lane, True
        else:
            lane, sure = self._judge(text, evidence, sure)
            if lane == INCREMENTAL and self.lane != INCREMENTAL and len(self._marks) > 1:
                return self._as_deltas(text, sure)
        if lane == INCREMENTAL:
            return TextStep(self.length, text, lane, sure)
        step = self._snapshot(text, lane, sure)
        if self.lane != INCREMENTAL:  # else the guess is taken back
            self._check_kept(step)
        return step

    def plan_nothing(self) -> TextStep:
        """Keep the text as it is."""
        return TextStep(self.length, "", self.lane, self.sure)

    def plan_abort(self, text: str, glued: bool | None) -> TextStep:
        """Place the text of a queue abort: a snapshot in every mode, perhaps (``glued``) after pending deltas.

        :raises ProtocolError: deltas and snapshot are glued together, but not in a way that can be taken apart.
        """
        known = self.value()
        if glued is False or text == known:
            return self._snapshot(text, self.lane, self.sure)._replace(whole=True)
        pending = self.pending_in(text)
        if pending is None:
            if glued is None:
                return self._snapshot(text, self.lane, self.sure)._replace(whole=True)
            raise ProtocolError(
                f"text of the abort chunk ({len(text)} characters) is not pending deltas followed by the whole text "
                f"({len(known)} characters were known), although the token lists of the same chunk are"
            )
        return TextStep(len(known), text[:pending], self.lane, self.sure, True)

    def pending_in(self, text: str) -> int | None:
        """How many characters of pending deltas stand before a snapshot that ends in them; None: it is not that."""
        known = self.value()
        pending, odd = divmod(len(text) - len(known), 2)
        if pending < 0 or odd or text[pending:] != known + text[:pending]:
            return None
        return pending

    def append(self, text: str) -> None:
        """Take a delta, the lane being sure to be one of deltas.  Can not fail."""
        if text:
            self.parts.append(text)
            self.length += len(text)
            if len(self.parts) - self._joined > _MANY_PARTS:
                # A string per token takes ten times the memory of its characters.
                self.parts[self._joined :] = ["".join(self.parts[self._joined :])]
                self._joined += 1

    def apply(self, step: TextStep) -> None:
        """Take the step.  Can not fail."""
        if step.start != self.length:
            self.parts[:] = [self.value()[: step.start]]
            self._joined = 1
        self.length = step.start
        self.append(step.tail)
        self.lane = step.lane
        self.sure = step.sure
        self.seen = True
        self.missing = self.missing and not step.whole
        if step.sure:
            self._marks = []
        elif step.lane != INCREMENTAL:
            self._marks.append(self.length)

    def state(self) -> dict[str, Any]:
        """Plain data for a snapshot."""
        return {
            "text": self.value(),
            "lane": self.lane,
            "sure": self.sure,
            "seen": self.seen,
            "missing": self.missing,
            "marks": list(self._marks),
        }

    @classmethod
    def from_state(cls, state: dict[str, Any]) -> TextLane:
        """The inverse of :meth:`state`."""
        lane = cls()
        lane.parts = [state["text"]] if state["text"] else []
        lane.length = len(state["text"])
        lane.lane = state["lane"]
        lane.sure = state["sure"]
        lane.seen = state["seen"]
        lane.missing = state["missing"]
        lane._marks = list(state["marks"])
        return lane

    def _judge(self, text: str, evidence: Lane | None, sure: bool) -> tuple[Lane | None, bool]:
        if sure or self.length == 0:
            return evidence or self.lane, sure
        # The prefix test, last of all: a snapshot starts with what is known; a delta hardly ever does.
        goes_on = len(text) >= self.length and text.startswith(self.value())
        if evidence is None:
            return (CUMULATIVE if goes_on else INCREMENTAL), False
        # Keys of a certain server version, and the test: one agreement or contradiction settles it.
        return (evidence if goes_on == (evidence == CUMULATIVE) else INCREMENTAL), True

    def _snapshot(self, text: str, lane: Lane | None, sure: bool) -> TextStep:
        known = self.value()
        if text.startswith(known):
            return TextStep(len(known), text[len(known) :], lane, sure, lane == CUMULATIVE)
        # The tail was rewritten: a stop string cut off, a replacement character resolved.
        start = common_prefix(known, text)
        return TextStep(start, text[start:], lane, sure, lane == CUMULATIVE)

    def _check_kept(self, step: TextStep) -> None:
        """A snapshot may cut off the end of the text (a stop string), or resolve its replacement characters."""
        known = self.value()
        if step.tail and step.start < self.length and known[step.start] != "\ufffd":
            at = max(step.start - 20, 0)
            raise ProtocolError(
                f"text is cumulative and was changed at character {step.start}: {known[at : step.start + 20]!r} is now "
                f"{(known[at : step.start] + step.tail)[:40]!r}. Was the request restarted within the stream, or are "
                "two answers mixed? If mode='cumulative' was given, the server may need mode='incremental'"
            )

    def _as_deltas(self, text: str, sure: bool) -> TextStep:
        # The chunks so far were read as snapshots and were deltas: concatenate them.
        known = self.value()
        whole = "".join([known[:mark] for mark in self._marks]) + text
        start = common_prefix(known, whole)
        return TextStep(start, whole[start:], INCREMENTAL, sure)


def common_prefix(left: str, right: str) -> int:
    """How many characters two texts share at the front; by halving, as comparing slices is far cheaper than a loop."""
    low, high = 0, min(len(left), len(right))
    while low < high:
        middle = (low + high + 1) // 2
        if left[low:middle] == right[low:middle]:
            low = middle
        else:
            high = middle - 1
    return low
