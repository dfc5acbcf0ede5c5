"""MkDocs hook: pages that live outside ``docs/`` become pages of the site, and links follow them there.

In the repository every link is a path from the file it stands in, so that it works wherever files are read.  Only here
is it known that ``README.md`` is the site's front page.  A link to a file that is no page is left as it is, and the
strict build refuses it.
"""

from __future__ import annotations

import posixpath
import re
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent

#: Path in the repository -> path in the site.
PAGES = {"README.md": "index.md", "CHANGELOG.md": "changelog.md", "tests/live/README.md": "live-tests.md"}
_SOURCES = {page: source for source, page in PAGES.items()}
_LINK = re.compile(r"(?P<before>\]\()(?P<target>[^)\s#:]+)(?=[)#\s])")


def on_files(files: Any, config: Any) -> Any:
    """Add the pages from outside."""
    from mkdocs.structure.files import File  # here, so that links can be tested without MkDocs

    for source, page in PAGES.items():
        files.append(File.generated(config, page, content=(ROOT / source).read_text(encoding="utf-8")))
    return files


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """Bend the links of one page."""
    return relinked(markdown, page.file.src_uri)


def on_page_content(html: str, **_: Any) -> str:
    """A bar in code in a table is written with a backslash, which Python-Markdown leaves there."""
    return re.sub(r"<td[ >].*?</td>", lambda cell: cell[0].replace(r"\|", "|"), html, flags=re.DOTALL)


def relinked(markdown: str, page: str) -> str:
    """The text of ``page``, a path in the site, with each link to where its file is in the site."""
    source = _SOURCES.get(page, f"docs/{page}")

    def bend(link: re.Match[str]) -> str:
        target = posixpath.normpath(posixpath.join(posixpath.dirname(source), link["target"]))
        in_site = PAGES.get(target) or (target.removeprefix("docs/") if target.startswith("docs/") else None)
        if in_site is None:
            return link[0]
        return link["before"] + posixpath.relpath(in_site, posixpath.dirname(page) or ".")

    return _LINK.sub(bend, markdown)
