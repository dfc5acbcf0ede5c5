"""How tokens, text and numbers look on a terminal, whatever a model has put into them.

Model text is data: brackets in it are no markup, and control characters, line separators and direction marks are shown
as escapes, so that nothing in a stream can move the cursor, clear the screen or turn a line around.
"""

from __future__ import annotations

import json
import unicodedata
from collections.abc import Mapping
from typing import Any

from rich.text import Text

#: Logprobs at which a token becomes more surprising: probabilities of 78 %, 22 % and 1.8 %.
LEVELS = (-0.25, -1.5, -4.0)
_STYLES = ("green", "yellow", "dark_orange", "bold red")
_SHORT = {"\n": "\\n", "\r": "\\r", "\t": "\\t", "\\": "\\\\", '"': '\\"'}


def quoted(text: str, limit: int | None = None) -> str:
    """``text`` in double quotes, with escapes for everything that is not plainly printable.

    :param limit: show so many characters at most, the beginning and the end of longer ones.
    """
    if limit is not None and len(text) > limit:
        head = limit * 2 // 3
        tail = limit - head
        return f'"{_escaped(text[:head])}" … {len(text) - limit:,} more … "{_escaped(text[-tail:])}"'
    return f'"{_escaped(text)}"'


def one_line(text: str) -> str:
    """A message as one line without control characters, for people to read."""
    return "".join(char if char.isprintable() else _escape(char) for char in " ".join(text.split()))


def level(logprob: float) -> int:
    """How surprising a token is, from 0 (expected) to ``len(LEVELS)``."""
    return sum(logprob <= bound for bound in LEVELS)


def surprise(logprob: float | None) -> str:
    """The style of a token that was this probable."""
    return "dim italic" if logprob is None else _STYLES[level(logprob)]


def number(value: float | None) -> str:
    """A logprob for a column: four decimals, or ``null`` as the server sent it."""
    return "null" if value is None else f"{value:.4f}"


def token_text(text: str | None, logprob: float | None) -> Text:
    """A token's text in the colour of its surprise; a dot where the server sent none yet."""
    return Text("·" if not text else quoted(text), style="dim" if not text else surprise(logprob))


def as_json(value: object) -> str:
    """JSON for machines: one document, readable, in UTF-8 safe for any pipe."""
    return json.dumps(value, ensure_ascii=True, indent=2, allow_nan=False, default=_plain)


def as_compact_json(value: object) -> str:
    """JSON as servers write it: no spaces, UTF-8."""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"), allow_nan=False, default=_plain)


def _plain(view: Any) -> Any:
    """What json takes instead of the core's read-only mappings and sequences."""
    return dict(view) if isinstance(view, Mapping) else list(view)


def plural(count: int, noun: str) -> str:
    """``1 token``, ``2 tokens``, ``12,345 tokens``."""
    return f"{count:,} {noun}{'' if count == 1 else 's'}"


def _escaped(text: str) -> str:
    return "".join(_SHORT.get(char) or (char if char.isprintable() or _joins(char) else _escape(char)) for char in text)


def _joins(char: str) -> bool:
    # Marks that sit on the character before them are printable in every sense that matters.
    return unicodedata.category(char) in ("Mn", "Mc", "Me")


def _escape(char: str) -> str:
    code = ord(char)
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"
