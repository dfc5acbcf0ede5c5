"""A linter for streams: what can be remarkable (the codes), and what finds it while a body is folded."""

from __future__ import annotations

from .errors import dialect_of, is_silence, no_stream, words
from .rules import RULES, Rule
from .stream import Checker, Finding

__all__ = ["RULES", "Checker", "Finding", "Rule", "dialect_of", "is_silence", "no_stream", "words"]
