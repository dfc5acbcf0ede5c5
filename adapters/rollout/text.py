"""The text of a rollout: pieces in order, the tail of which may still be rewritten.

Knows characters and nothing of tokens.
"""

from __future__ import annotations


class RolloutText:
    """Text so far.  Joined when it is read, so that a long answer costs no more per chunk than a short one."""

    __slots__ = ("_parts", "length")

    def __init__(self, text: str = "") -> None:
        self._parts = [text]
        self.length: int = len(text)

    def put(self, start: int, text: str) -> None:
        """Cut to ``start`` characters, then append ``text``."""
        if start != self.length:
            self._parts = [self.value()[:start]]
        self._parts.append(text)
        self.length = start + len(text)

    def value(self) -> str:
        """The whole text."""
        if len(self._parts) > 1:
            self._parts = ["".join(self._parts)]
        return self._parts[0]
