"""Python-Markdown extension: a bar in a table's code is written ``\\|``, and shown without the backslash.

Code hosts take the backslash away; Python-Markdown leaves it there.
"""

from __future__ import annotations

import re

from markdown import Markdown
from markdown.extensions import Extension
from markdown.postprocessors import Postprocessor


class _Bars(Postprocessor):
    def run(self, text: str) -> str:
        return re.sub(r"<td[ >].*?</td>", lambda cell: cell[0].replace(r"\|", "|"), text, flags=re.DOTALL)


class _Tables(Extension):
    def extendMarkdown(self, md: Markdown) -> None:  # noqa: N802  # its name there
        md.postprocessors.register(_Bars(md), "table-bars", 0)


def makeExtension(**kwargs: object) -> Extension:  # noqa: N802  # its name there
    """What Python-Markdown calls."""
    return _Tables(**kwargs)
