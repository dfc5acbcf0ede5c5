"""Griffe extension: docstrings as they are written here, in the Markdown that the documentation site reads.

Fields (``:param x:``) are read by griffe itself.  Roles become code, linked where the site has what they name; the
``::`` before an example becomes a colon; ``#:`` comments above an attribute are its docstring.
"""

from __future__ import annotations

import re
from typing import Any

import griffe

_ROLE = re.compile(r":(?:attr|class|data|exc|func|meth|mod):`(?P<short>~?)(?P<name>[^`]+)`")
_SAME_LINE = re.compile(r"[;,] (?=:ivar \w+:)")
_BEFORE_EXAMPLE = re.compile(r"::(?=\n\n+ +\S)")


class Docstrings(griffe.Extension):
    """Rewrites every docstring once, when all modules have been read."""

    def on_object(self, *, obj: griffe.Object, **_: Any) -> None:
        """Griffe calls this for each module, class, function and attribute."""
        if obj.docstring is None and obj.is_attribute:
            obj.docstring = _comment_above(obj)
        if obj.docstring is not None:
            text = _SAME_LINE.sub("\n", obj.docstring.value)
            text = _BEFORE_EXAMPLE.sub(":", text)
            text = re.sub(r"(?m)^:$", "", text)  # `::` on a line of its own
            obj.docstring.value = _ROLE.sub(lambda role: _as_html(role, obj), text)


def _as_html(role: re.Match[str], obj: griffe.Object) -> str:
    name = role["name"]
    shown = name.rpartition(".")[2] if role["short"] or name.startswith(".") else name
    first, dot, rest = name.partition(".")
    try:
        path = name if first == "ssefold" else obj.resolve(first) + dot + rest
    except griffe.NameResolutionError:
        return f"`{shown}`"
    return f'<autoref identifier="{path}" optional><code>{shown}</code></autoref>'


def _comment_above(attribute: griffe.Object) -> griffe.Docstring | None:
    lines: list[str] = []
    number = attribute.lineno or 1
    while number > 1 and (line := attribute.lines_collection[attribute.filepath][number - 2].strip()).startswith("#:"):
        lines.insert(0, line.removeprefix("#:").strip())
        number -= 1
    return griffe.Docstring(" ".join(lines), parent=attribute) if lines else None
