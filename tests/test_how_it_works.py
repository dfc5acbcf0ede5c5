"""``docs/how-it-works.md`` says what is there: its map has every module, and its invariants name tests that exist."""

from __future__ import annotations

import ast
import importlib.util
import re
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs" / "how-it-works.md"
TEST = re.compile(r"`(tests/[\w/]+\.py)::(\w+)`")


def load_script() -> ModuleType:
    spec = importlib.util.spec_from_file_location("module_map", ROOT / ".ci" / "module_map.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_module_map_is_up_to_date() -> None:
    page = PAGE.read_text(encoding="utf-8")
    assert load_script().with_map(page, ROOT) == page, "run: python .ci/module_map.py"


def invariants() -> list[str]:
    section = PAGE.read_text(encoding="utf-8").partition("## Architecture invariants")[2].partition("\n## ")[0]
    return re.split(r"\n- ", section)[1:]


def test_there_are_invariants() -> None:
    assert len(invariants()) > 8


@pytest.mark.parametrize("invariant", invariants(), ids=lambda text: text[2:40])
def test_every_invariant_is_held_by_a_test(invariant: str) -> None:
    named = TEST.findall(invariant)
    assert named
    for path, name in named:
        tree = ast.parse((ROOT / path).read_text(encoding="utf-8"))
        assert name in {node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)}, (path, name)
