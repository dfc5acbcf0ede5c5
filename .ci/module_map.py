"""Write the module map of ``docs/how-it-works.md`` from the first paragraph of each module's docstring.

``python .ci/module_map.py`` brings the page up to date; the tests say when that is needed.  Standard library only.
"""

from __future__ import annotations

import ast
import re
from pathlib import Path

HEADING = "## Module map\n"
FOLDERS = (
    ("core", "ssefold", "bytes, events, chunks, updates"),
    ("transports", "ssefold.transports", "one HTTP client a module"),
    ("adapters", "ssefold.adapters", "where people use it"),
)


def module_map(root: Path) -> str:
    """The section, heading included."""
    lines = [HEADING]
    for folder, name, what in FOLDERS:
        lines += [f"**`{folder}/`** is `{name}`: {what}.", "", "| file or folder | what it is |", "|---|---|"]
        base = root / folder
        for path in sorted(
            base.rglob("*.py"), key=lambda path: (path.parent != base, path.parent, path.name != "__init__.py", path)
        ):
            inside = path.relative_to(base).as_posix().removesuffix("__init__.py")
            if inside:
                lines.append(f"| `{inside}` | {_first_paragraph(path)} |")
        lines.append("")
    return "\n".join(lines).rstrip() + "\n"


def with_map(page: str, root: Path) -> str:
    """The page with the section as it should be; the section is its last."""
    return page[: page.index(HEADING)] + module_map(root)


def _first_paragraph(path: Path) -> str:
    docstring = ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))) or ""
    text = " ".join(docstring.partition("\n\n")[0].split())
    text = re.sub(r":\w+:`[~.]*([^`]*)`", r"`\1`", text).replace("``", "`")
    return text.replace("|", r"\|")


if __name__ == "__main__":
    root = Path(__file__).resolve().parent.parent
    page = root / "docs" / "how-it-works.md"
    page.write_text(with_map(page.read_text(encoding="utf-8"), root), encoding="utf-8")
