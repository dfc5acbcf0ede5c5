"""Hatchling hook: an editable build lays the link tree, a standard build does nothing here.

Hatchling refuses an editable install once a source folder is renamed, and says so; ``dev-mode-dirs`` together with this
hook is the way round.  What is laid, and why, is told in ``links.py`` beside this file.
"""

from __future__ import annotations

import runpy
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface


class LinkTree(BuildHookInterface):  # type: ignore[type-arg]
    """Lay the link tree for an editable wheel."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Hatchling calls this before it builds a wheel."""
        if version == "editable":
            # By path: hatchling runs this file by path too, so its folder is not on sys.path.
            runpy.run_path(str(Path(__file__).with_name("links.py")))["lay"](Path(self.root))
