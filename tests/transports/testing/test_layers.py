"""The layers of ``transports/testing`` point one way: nouns, ``wire``, ``engine``, ``http``, and nothing outside.

The code under test takes no part in making its test data, so none of it may be imported.
"""

from __future__ import annotations

import ast
import sys
from pathlib import Path

import pytest

TESTING = Path(__file__).resolve().parents[3] / "transports" / "testing"
#: A layer imports from those before it, and from their ``__init__`` only.
LAYERS = ("wire", "engine", "http")
SOURCES = sorted(TESTING.rglob("*.py"))


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: path.relative_to(TESTING).as_posix())
def test_a_module_imports_its_own_layer_and_those_below(path: Path) -> None:
    layer = path.parent.name if path.parent != TESTING else ""
    below = LAYERS[: LAYERS.index(layer)] if layer else LAYERS if path.name == "__init__.py" else ()
    for node in ast.walk(ast.parse(path.read_bytes())):
        if isinstance(node, ast.Import):
            assert {alias.name.partition(".")[0] for alias in node.names} <= sys.stdlib_module_names
        elif isinstance(node, ast.ImportFrom) and node.level == 0:
            # What typing has in later versions, for type checkers only.
            assert (node.module or "").partition(".")[0] in {*sys.stdlib_module_names, "typing_extensions"}
        elif isinstance(node, ast.ImportFrom):
            to_ground = node.level == (2 if layer else 1)
            assert to_ground or node.level == 1, ast.unparse(node)
            if to_ground:
                assert node.module in {*below, "profiles", "script", "trim"}, ast.unparse(node)


def test_every_layer_is_looked_at() -> None:
    assert {path.parent.name for path in SOURCES} == {*LAYERS, "testing"}
