"""Compare a payload with the template of its output while its bytes come, and fold it if it fits to the last byte.

A slot that grows must begin with all that it held before; what is new in it is cut out by the template's pattern, and
so is every other slot.  The result is what the full path would give, or nothing: then the full path decides, and the
template is learned anew.

The states are places in a payload: at a byte of what a growing slot held, or after the last slot.  Knows one output;
knows nothing of the others, of events and of failures: nothing here raises.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from ..fold import OutputState, json_backend
from ..update import Update
from .spans import Span, find_spans
from .template import LIST, TEXT, Slot, Template, changed, is_settled, learn
from .values import fold_one, fold_values

_MOST_WAITING = 64


class Matcher:
    """The template of one output, and what its growing slots hold."""

    __slots__ = (
        "_failures",
        "_free",
        "_groups",
        "_held",
        "_learned_from",
        "_new",
        "_offset",
        "_place",
        "_state",
        "_version",
        "_waiting",
        "is_at_end",
        "tail",
        "template",
    )

    def __init__(self, state: OutputState) -> None:
        self._state = state
        # Of the state that the template was learned from: a caller may add to an output by hand.
        self._version: int = 0
        #: The form that payloads have; None if the full path must take them.
        self.template: Template | None = None
        # The content of each growing slot in the last payload.
        self._held: list[bytearray] = []
        # How far this payload has come: slots and pieces cut out, new contents of growing slots, the growing slot it is
        # in, and how much of what that slot held has come again.
        self._groups: tuple[bytes, ...] = ()
        self._new: list[bytes] = []
        self._place: int = 0
        self._offset: int = 0
        self._learned_from: tuple[bytes, Sequence[Span]] = (b"", ())
        self._free: frozenset[tuple[str, ...]] = frozenset()
        # Payloads that keep changing their form must not pay for learning: wait longer each time.
        self._failures: int = 0
        self._waiting: int = 0
        #: The payload has come to the end of its last piece.
        self.is_at_end: bool = False
        #: What the payloads end with, as far as it tells them from those of other outputs.
        self.tail: bytes = b""

    def begin(self, data: bytes, at: int, parts: Sequence[re.Pattern[bytes]]) -> int:
        """Begin with what begins at ``at``: a payload or an event, as ``parts`` say.  Returns as :meth:`advance`."""
        found = parts[0].match(data, at)
        if found is None:
            return -1
        self._groups = found.groups()
        if not self._held:
            self.is_at_end = True
            return found.end()
        self.is_at_end = False
        self._new = []
        self._place = self._offset = 0
        return self.advance(data, found.end(), parts)

    def advance(self, data: bytes, at: int, parts: Sequence[re.Pattern[bytes]]) -> int:
        """Go on at ``at``; returns the offset up to which it is of the form, or -1 if it is not."""
        for held in self._held[self._place :]:
            offset = self._offset
            left = len(held) - offset
            if left > len(data) - at:
                left = len(data) - at
                self._offset = offset + left
                return at + left if data.startswith(memoryview(held)[offset : offset + left], at) else -1
            if not data.startswith(memoryview(held)[offset:] if offset else held, at):
                return -1
            at += left
            place = self._place = self._place + 1
            self._offset = 0
            found = parts[place].match(data, at)
            if found is None:
                return -1
            self._groups += found.groups(b"")
            self._new.append(data[at : found.start(2)])
            at = found.end()
        self.is_at_end = True
        return at

    def is_within(self) -> bool:
        """No line ends in what was cut out so far: the event goes on in the next read."""
        cut = b"".join(self._groups)
        return b"\n" not in cut and b"\r" not in cut

    def finish(self) -> Update | None:
        """The payload ends here: fold it if all its claims hold."""
        template, groups = self.template, self._groups
        if template is None or groups[::2] != template.pieces or self._version != self._state.version:
            return None
        update = (fold_one if template.is_single else fold_values)(template, self._state, groups[1::2])
        if update is not None:
            self._failures = 0
            if self._held:
                for held, new in zip(self._held, self._new, strict=True):
                    held.extend(new)
        return update

    def learn(self, payload: bytes) -> None:
        """Learn from a payload that the full path has just folded."""
        self.template = None
        if self._waiting:
            self._waiting -= 1
            return
        if not is_settled(self._state) or b"\n" in payload or b"\r" in payload:
            return
        self._waiting = min(2**self._failures - 1, _MOST_WAITING)
        self._failures += 1
        spans = find_spans(payload)
        self._free |= changed(payload, spans, *self._learned_from)
        self._learned_from = payload, spans
        template = learn(payload, spans, self._state, self._free)
        if template is not None:
            held = [(slot, payload[span.start : span.end]) for slot, span in template.growing]
            if all(self._holds(slot, content) for slot, content in held):
                self.template = template
                self._version = self._state.version
                self._held = [bytearray(content) for _, content in held]

    def _holds(self, slot: Slot, content: bytes) -> bool:
        """Whether the content of a growing slot is all that the state holds of it."""
        state, loads = self._state, json_backend()
        if slot.role == TEXT:
            return bool(loads(b'"%s"' % content) == state.text.value())
        known = len(state.extras[slot.name].items or ()) if slot.role == LIST else len(state.token_ids)
        return known > 0 and len(loads(b"[%s]" % content)) == known
