"""Lay the sources of the documentation site into ``.site/``, where ``make docs`` builds it.

In the repository every link is a path from the file it stands in, so that it works wherever files are read.  Only here
is it known that ``README.md`` is the site's front page.  A link to a file that is no page is left as it is, and the
strict build refuses it.
"""

from __future__ import annotations

import posixpath
import re
import shutil
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
SITE = ROOT / ".site"

#: Path in the repository -> path in the site.
PAGES = {"README.md": "index.md", "CHANGELOG.md": "changelog.md", "tests/live/README.md": "live-tests.md"}
_SOURCES = {page: source for source, page in PAGES.items()}
_LINK = re.compile(r"(?P<before>\]\()(?P<target>[^)\s#:]+)(?=[)#\s])")


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


def main() -> None:
    """Copy pages, with their links bent, and what else stands in ``docs/``."""
    shutil.rmtree(SITE, ignore_errors=True)
    shutil.copytree(ROOT / "docs", SITE / "docs")
    for source, page in PAGES.items():
        shutil.copyfile(ROOT / source, SITE / "docs" / page)
    for path in (SITE / "docs").rglob("*.md"):
        page = path.relative_to(SITE / "docs").as_posix()
        path.write_text(relinked(path.read_text(encoding="utf-8"), page), encoding="utf-8")
    shutil.copytree(ROOT / ".ci" / "site_theme", SITE / "theme")
    shutil.copyfile(ROOT / ".ci" / "site.yml", SITE / "mkdocs.yml")


if __name__ == "__main__":
    main()
