"""What the command's subcommands share when they write: consoles, lines, escapes, numbers."""

from __future__ import annotations

from .console import TERMINAL_TEXT, Hanging, json_option, new_console, print_lines
from .progress import reading_line
from .text import LEVELS, as_compact_json, as_json, level, number, one_line, plural, quoted, surprise, token_text

__all__ = [
    "LEVELS",
    "TERMINAL_TEXT",
    "Hanging",
    "as_compact_json",
    "as_json",
    "json_option",
    "level",
    "new_console",
    "number",
    "one_line",
    "plural",
    "print_lines",
    "quoted",
    "reading_line",
    "surprise",
    "token_text",
]
