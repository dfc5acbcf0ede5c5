"""Which output a payload belongs to, before it is parsed.

Knows where SGLang writes ``index`` (last in the payload, ``managers/tokenizer_manager.py::_stream_batch_responses``);
knows nothing of what a template is.
"""

from __future__ import annotations

from ..fold import OutputState
from ..update import Update
from .match import Matcher

#: What follows the last colon of a payload that ends in its index.
_LONGEST_TAIL = 24


class FastPath:
    """The matchers of one response's outputs."""

    def __init__(self) -> None:
        self._matchers: dict[int, Matcher] = {}
        # With several outputs, by the bytes after a payload's last colon: b"3}".
        self._by_tail: dict[bytes, Matcher] = {}
        self._only: Matcher | None = None

    def fold(self, data: bytes, start: int, end: int) -> Update | None:
        """What the payload ``data[start:end]`` adds to its output; None if the full path must say."""
        matcher = self._only
        if matcher is None:
            matcher = self._by_tail.get(data[data.rfind(b":", start, end) + 1 : end])
            if matcher is None:
                return None
        return matcher.fold(data, start, end)

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
        tail = payload[payload.rfind(b":") + 1 :]
        if tail != matcher.tail and len(tail) <= _LONGEST_TAIL:
            self._by_tail.pop(matcher.tail, None)
            self._by_tail[tail] = matcher
            matcher.tail = tail
        matcher.learn(payload)

    def forget(self, index: int) -> None:
        """The output has ended."""
        gone = self._matchers.pop(index, None)
        if gone is not None:
            self._by_tail.pop(gone.tail, None)
        self._only = next(iter(self._matchers.values())) if len(self._matchers) == 1 else None
