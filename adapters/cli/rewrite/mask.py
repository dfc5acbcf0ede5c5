"""Text and ids replaced by others of the same shape: so many characters, bytes and digits, in the same places.

Whoever sees the result learns lengths, positions and which things are equal, and nothing of what they were.  Letters
are drawn at random for each place of a text; what stands at a place stays the same however often a stream repeats it.
"""

from __future__ import annotations

import random
import re
import unicodedata
from typing import Any

_LOWER = "abcdefghijklmnopqrstuvwxyz"
_DIGITS = "0123456789"
#: Random characters of two, three and four bytes of UTF-8.
_WIDE = {2: "äöüéèñßøåçπσωдж", 3: "日本語中文字水火木金土月한글テキスト", 4: "😀🙂🚀🐍🦊🌊🎲🧩"}
#: Kept: they are what streams are torn at.
_KEPT = frozenset("\n\r\t\u2028\u2029\u0085\ufeff\ufffd")
_LETTERS = re.compile(rb"[A-Za-z]")
_NUMERALS = re.compile(rb"[0-9]")


class Masks:
    """What stands for what, for one recording; made anew at random each time."""

    def __init__(self, chance: random.Random | None = None) -> None:
        self._random = random.SystemRandom() if chance is None else chance
        self._ids: dict[int, int] = {}
        self._taken: set[int] = set()
        self._names: dict[str, str] = {}

    def token_id(self, value: int) -> int:
        """The id that stands for this one: as many digits, and no other id has it."""
        known = self._ids.get(value)
        if known is None:
            digits = len(str(value))
            low, high = (0, 10) if digits == 1 else (10 ** (digits - 1), 10**digits)
            if value < 2**31:
                high = min(high, 2**31)  # replay arrays are int32
            # Within one number of digits there are at least as many ids as a stream can hold of them.
            known = next(one for one in iter(lambda: self._random.randrange(low, high), None) if one not in self._taken)
            self._taken.add(known)
            self._ids[value] = known
        return known

    def character(self, char: str) -> str:
        """Some character of the same kind and of as many bytes."""
        if char in _KEPT or char.isspace() or (char.isascii() and not char.isalnum()):
            return char
        if char.isascii():
            letters = _DIGITS if char.isdigit() else _LOWER
            chosen = self._random.choice(letters)
            return chosen.upper() if char.isupper() else chosen
        if unicodedata.category(char).startswith(("M", "C")):
            return char  # it belongs to its neighbours
        return self._random.choice(_WIDE[len(char.encode("utf-8"))])

    def text(self, text: str) -> str:
        """Any text, drawn anew."""
        return "".join(map(self.character, text))

    def name(self, text: str) -> str:
        """A name (request id, weight version): the same for the same."""
        if text not in self._names:
            masked = self.text(text)
            while masked in self._names.values() and masked != text:
                masked = self.text(text)
            self._names[text] = masked
        return self._names[text]


class TextMask:
    """The text of one output as it grows: a place keeps its character until the real text changes there."""

    def __init__(self, masks: Masks) -> None:
        self._masks = masks
        self._real = ""
        self._mask = ""

    def grow(self, real: str) -> None:
        """The output's text is this now."""
        same = len(self._real)
        if not real.startswith(self._real):
            same = next(
                (at for at, (one, other) in enumerate(zip(self._real, real, strict=False)) if one != other),
                min(len(self._real), len(real)),
            )
        self._mask = self._mask[:same] + self._masks.text(real[same:])
        self._real = real

    def of(self, piece: str) -> str:
        """What stands for a chunk's text: the whole, its beginning or its end; anything else is drawn anew."""
        if self._real.startswith(piece) and (piece == self._real or not self._real.endswith(piece)):
            return self._mask[: len(piece)]
        if piece and self._real.endswith(piece):
            return self._mask[-len(piece) :]
        return self._masks.text(piece)


def masked_bytes(data: bytes) -> bytes:
    """Bytes that are no JSON: letters and digits go, the rest stays."""
    return _NUMERALS.sub(b"0", _LETTERS.sub(b"x", data))


def masked_numbers(value: Any) -> Any:
    """Nested lists of numbers, all of them 0 (hidden states)."""
    if isinstance(value, list):
        return [masked_numbers(one) for one in value]
    return type(value)(0) if isinstance(value, (int, float)) and not isinstance(value, bool) else value
