"""Which text leaves with which token: the server's incremental detokenizer.

Text lags the ids: while the newest text ends inside a UTF-8 character, all but what is surely final is held back and
sent with a later chunk, at the latest with the last one, where a rest becomes U+FFFD
(``detokenizer_manager._decode_batch_token_id_output``).  A matched stop string is cut off, a matched stop token is not
decoded (``trim_matched_stop``).  The server's known fault is here as well: a held-back tail may be sent twice (SGLang
issue 31598).  This module knows no JSON and no chunks.
"""

from __future__ import annotations

from bisect import bisect_right
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ..script import Script

_REPLACEMENT = "\N{REPLACEMENT CHARACTER}"

# First and one past the last code point of the CJK ideograph blocks (utils.py::_is_chinese_char).
_IDEOGRAPHS = (
    (0x3400, 0x4DC0), (0x4E00, 0xA000), (0xF900, 0xFB00), (0x20000, 0x2A6E0), (0x2A700, 0x2B740), (0x2B740, 0x2B820),
    (0x2B820, 0x2CEB0), (0x2F800, 0x2FA20),
)  # fmt: skip
_IDEOGRAPH_STARTS = [start for start, _ in _IDEOGRAPHS]


class Detokenizer:
    """The text of one output as its tokens become known.

    :param cuts_untrimmed: with ``no_stop_trim``, drop what follows the stop string (since 0.5.14).
    :param trims_token_zero: a stop token of id 0 is recognised as one (since 0.5.21).
    """

    def __init__(self, script: Script, *, cuts_untrimmed: bool = True, trims_token_zero: bool = True) -> None:
        self._pieces = script.pieces
        self._matched = None if script.finish.how != "finished" else (script.finish.reason or {}).get("matched")
        self._no_stop_trim = script.no_stop_trim
        self._cuts_untrimmed = cuts_untrimmed
        self._trims_token_zero = trims_token_zero
        self._committed = ""
        self._sent = 0
        # Tokens [window, clean) are decoded again with each step, to give the new ones their context.
        self._window = 0
        self._clean = 0

    def step(self, tokens: int, *, finished: bool) -> str:
        """The text that goes out when this many tokens are known."""
        end = tokens
        if finished and self._drops_last_token():
            end = max(tokens - 1, self._window)
        context = _decode(self._pieces[self._window : self._clean])
        new = _decode(self._pieces[self._window : end])[len(context) :]
        if finished:
            text = self._trim(self._committed + new)
            delta = text[self._sent :]
            self._sent = len(text)
            return delta
        pending = self._sent - len(self._committed)
        if new and not new.endswith(_REPLACEMENT):
            self._committed += new
            self._window, self._clean = self._clean, tokens
            self._sent = len(self._committed)
            return new[pending:]
        printable = _printable(new)
        self._sent = len(self._committed) + len(printable)
        return printable[pending:]

    def _drops_last_token(self) -> bool:
        if self._no_stop_trim or not isinstance(self._matched, int):
            return False
        return self._trims_token_zero or self._matched != 0

    def _trim(self, text: str) -> str:
        if not isinstance(self._matched, str) or (at := text.find(self._matched)) < 0:
            return text
        if not self._no_stop_trim:
            return text[:at]
        return text[: at + len(self._matched)] if self._cuts_untrimmed else text


def _decode(pieces: tuple[bytes, ...]) -> str:
    return b"".join(pieces).decode("utf-8", "replace")


def _printable(text: str) -> str:
    """What of an unfinished text can be shown already: up to a line end, an ideograph, or the last space."""
    if text.endswith("\n"):
        return text
    if text and _is_ideograph(text[-1]):
        return text
    if len(text) > 1 and _is_ideograph(text[-2]):
        return text[:-1]
    return text[: text.rfind(" ") + 1]


def _is_ideograph(character: str) -> bool:
    at = bisect_right(_IDEOGRAPH_STARTS, ord(character)) - 1
    return at >= 0 and ord(character) < _IDEOGRAPHS[at][1]
