"""Which output a payload belongs to, before it is parsed; and events that are compared while they come.

Knows where SGLang writes ``index`` (last in the payload, ``managers/tokenizer_manager.py::_stream_batch_responses``)
and how it frames an event; knows nothing of what a template is.
"""

from __future__ import annotations

import re

from ..fold import OutputState
from ..sse import end_of
from ..update import Update
from .match import Matcher

#: What follows the last colon of a payload that ends in its index.
_LONGEST_TAIL = 24
#: More objects than this would take more memory than the bytes in them.
_MANY_READS = 1024
_FRAME = len(b"data: \n\n")


class FastPath:
    """The matchers of one response's outputs.

    :param max_event_size: larger events are left to the parser, which refuses them.
    """

    def __init__(self, max_event_size: int) -> None:
        self._max_size = max_event_size + _FRAME
        self._matchers: dict[int, Matcher] = {}
        # With several outputs, by the bytes after a payload's last colon: b"3}".
        self._by_tail: dict[bytes, Matcher] = {}
        self._only: Matcher | None = None
        #: The matcher of the only output, once there is a template to compare its events with.
        self.ready: Matcher | None = None
        # The parts of its template, with the frame that SGLang puts around a payload.
        self._parts: list[re.Pattern[bytes]] = []
        # What has come of the event that has not ended: its size, its last reads, and what was in many reads before.
        self._reads: list[bytes | memoryview] = []
        self._front = bytearray()
        self._kept = 0

    def follow(self, data: bytes, updates: list[Update]) -> bytes:
        """Fold the events at the front of ``data`` without splitting them off first, if there is one output.

        To be called between two events, or while an event is kept.  The beginning of an event that is as expected so
        far is kept.  Returns what is left to the parser: everything from the first event on that is not as expected.
        """
        matcher = self.ready
        if matcher is None:
            return data
        begin, size = 0, len(data)
        while begin < size:
            if self._kept:
                at = matcher.advance(data, 0, self._parts)
            else:
                at = matcher.begin(data, begin, self._parts)
            if at == size and not matcher.is_at_end and matcher.is_within():
                self._reads.append(end_of(data, begin) if begin else data)
                self._kept += size - begin
                if len(self._reads) > _MANY_READS:
                    self._front += b"".join(self._reads)
                    self._reads = []
                return b"" if self._kept <= self._max_size else self.release()
            if at < 0 or not matcher.is_at_end or self._kept + at - begin > self._max_size:
                break
            update = matcher.finish()
            if update is None:
                break
            updates.append(update)
            begin = at
            if self._kept:
                self._drop()
        if self._kept:
            return self.release() + data[begin:]
        return data[begin:]

    def release(self) -> bytes:
        """Give out what is kept."""
        kept = b"".join((self._front, *self._reads))
        self._drop()
        return kept

    def _drop(self) -> None:
        self._front, self._reads, self._kept = bytearray(), [], 0

    def fold(self, payload: bytes) -> Update | None:
        """What a payload adds to its output; None if the full path must say."""
        matcher = self._only or self._by_tail.get(payload[payload.rfind(b":") + 1 :])
        template = None if matcher is None else matcher.template
        if matcher is None or template is None:
            return None
        if matcher.begin(payload, 0, template.parts) != len(payload) or not matcher.is_at_end:
            return None
        return matcher.finish()

    def learn(self, state: OutputState, payload: bytes) -> None:
        """The full path has folded ``payload`` into ``state``."""
        index = state.index
        if state.finish is not None or state.error is not None:
            self.forget(index)
            return
        matcher = self._matchers.get(index)
        if matcher is None:
            matcher = self._matchers[index] = Matcher(state)
            self._only = matcher if len(self._matchers) == 1 else None
            self.ready = None
        tail = payload[payload.rfind(b":") + 1 :]
        if tail != matcher.tail and len(tail) <= _LONGEST_TAIL:
            self._by_tail.pop(matcher.tail, None)
            self._by_tail[tail] = matcher
            matcher.tail = tail
        matcher.learn(payload)
        template = matcher.template
        self.ready = None if template is None else self._only
        if self.ready is not None and template is not None:
            self._parts = template.framed(b"data: ", b"\n\n")

    def forget(self, index: int) -> None:
        """The output has ended."""
        gone = self._matchers.pop(index, None)
        if gone is not None:
            self._by_tail.pop(gone.tail, None)
        self._only = self.ready = None
        if len(self._matchers) == 1:
            (self._only,) = self._matchers.values()
