"""JSON of lists and texts that grow from chunk to chunk: each part is written only once.

Knows JSON; knows no streams.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ..terminal import as_compact_json


class Grown:
    """A list.

    :ivar count: its length.
    """

    def __init__(self) -> None:
        self.count: int = 0
        self._old = bytearray()
        self._new = b""

    def take(self, items: Sequence[Any]) -> Grown:
        """Append items; they are what is new."""
        self._old += b"," * bool(self._old and self._new) + self._new
        self._new = as_compact_json(list(items)).encode("utf-8")[1:-1]
        self.count += len(items)
        return self

    def json(self, *, whole: bool) -> bytes:
        """All of it, or what is new."""
        if not whole:
            return b"[" + self._new + b"]"
        return b"[" + self._old + b"," * bool(self._old and self._new) + self._new + b"]"


class GrownText:
    """A text."""

    def __init__(self) -> None:
        self._text = ""
        self._old = bytearray()
        self._new = b""

    def take(self, start: int, text: str) -> bool:
        """From character ``start`` on the text is this; returns whether something that was known is gone."""
        rewritten = start < len(self._text) and self._text[start:] != text[: len(self._text) - start]
        new = text[len(self._text) - start :]
        if rewritten:
            self._text, self._old, self._new, new = "", bytearray(), b"", self._text[:start] + text
        self._old += self._new
        self._new = as_compact_json(new).encode("utf-8")[1:-1]
        self._text += new
        return rewritten

    def json(self, *, whole: bool) -> bytes:
        """All of it, or what is new."""
        return b'"' + (self._old if whole else b"") + self._new + b'"'
