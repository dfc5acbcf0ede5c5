"""Python-Markdown extension: a bar in a table's code is written with a backslash, and shown without it.

Code hosts take the backslash away; Python-Markdown leaves it there.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from markdown.extensions import Extension
from markdown.postprocessors import Postprocessor

if TYPE_CHECKING:
    from markdown import Markdown


class _Bars(Postprocessor):
    def run(self, text: str) -> str:
        return re.sub(r"<td[ >].*?</td>", lambda cell: cell[0].replace(r"\|", "|"), text, flags=re.DOTALL)


class _Tables(Extension):
    def extendMarkdown(self, md: Markdown) -> None:  # noqa: N802  # its name there
        md.postprocessors.register(_Bars(md), "table-bars", 0)


def makeExtension(**kwargs: object) -> Extension:  # noqa: N802  # its name there
    """What Python-Markdown calls."""
    return _Tables(**kwargs)
