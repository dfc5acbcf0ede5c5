"""The layers point one way, and each module reaches only what its layer may know.

adapters -> transports -> core: the core knows the standard library (orjson if it is there) and neither clock, socket
nor event loop; a transport knows the core and its one client; an adapter knows both and its one framework.  The files'
syntax trees are read, so that an import inside a function counts as well; what `import ssefold` really loads is seen in
a fresh interpreter.
"""

from __future__ import annotations

import ast
import importlib
import importlib.util
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest

import ssefold

ROOT = Path(__file__).resolve().parent.parent
FOLDERS = {"core": "ssefold", "transports": "ssefold.transports", "adapters": "ssefold.adapters"}

# What the core must do without: it is told the time and handed the bytes.
NOT_PURE = {
    "asyncio", "concurrent", "datetime", "http", "multiprocessing", "random", "select", "selectors", "signal", "socket",
    "ssl", "subprocess", "threading", "time", "urllib",
}  # fmt: skip

# First word of a module's name -> third-party packages it may import.  Modules that are not named may import none.
CLIENTS = {"httpx": {"httpx"}, "aiohttp": {"aiohttp"}, "anyio": {"anyio", "h11"}}
FRAMEWORKS = {
    "cli": {"click", "rich", "httpx", "aiohttp"},
    "slime": {"slime", "httpx"},
    "miles": {"miles", "httpx", "numpy"},
}


@dataclass(frozen=True)
class Import:
    """One imported module: an absolute name, or dots and a name as written."""

    name: str
    where: str
    guarded: bool  # by `except ImportError`, or for type checkers only

    @property
    def root(self) -> str:
        return self.name.partition(".")[0]


class _Imports(ast.NodeVisitor):
    """Collects imports wherever they stand, functions and handlers included."""

    def __init__(self, where: str) -> None:
        self.where = where
        self.guarded = False
        self.found: list[Import] = []

    def visit_Import(self, node: ast.Import) -> None:
        self._add(node.lineno, [alias.name for alias in node.names])

    def visit_ImportFrom(self, node: ast.ImportFrom) -> None:
        # With the names, since `from ssefold import adapters` reaches a module too.
        package = "." * node.level + (f"{node.module}." if node.module else "")
        self._add(node.lineno, [package + alias.name for alias in node.names])

    def visit_Try(self, node: ast.Try) -> None:
        catches = any("ImportError" in ast.dump(handler.type) for handler in node.handlers if handler.type)
        self._visit_all(node.body, guarded=catches)
        self._visit_all([*node.handlers, *node.orelse, *node.finalbody], guarded=False)

    def visit_If(self, node: ast.If) -> None:
        self._visit_all(node.body, guarded="TYPE_CHECKING" in ast.dump(node.test))
        self._visit_all(node.orelse, guarded=False)

    def _visit_all(self, nodes: Sequence[ast.AST], *, guarded: bool) -> None:
        before, self.guarded = self.guarded, self.guarded or guarded
        for node in nodes:
            self.visit(node)
        self.guarded = before

    def _add(self, line: int, names: list[str]) -> None:
        self.found += [Import(name, f"{self.where}:{line}", self.guarded) for name in names]


def imports_of(path: Path) -> list[Import]:
    visitor = _Imports(path.relative_to(ROOT).as_posix())
    visitor.visit(ast.parse(path.read_bytes(), str(path)))
    return visitor.found


def faults_of(folder: str, path: Path) -> list[str]:
    """What this file imports and its layer must not know."""
    inside = path.relative_to(ROOT / folder)
    faults: list[str] = []
    for imported in imports_of(path):
        reason = _fault(folder, inside, imported)
        if reason:
            faults.append(f"{imported.where}: imports {imported.name!r}: {reason}")
    return faults


def _fault(folder: str, inside: Path, imported: Import) -> str:
    name, root = imported.name, imported.root
    own = FOLDERS[folder]
    dots = len(name) - len(name.lstrip("."))
    if dots > len(inside.parts):
        return "climbs out of its layer; across layers write `from ssefold... import`"
    if dots:
        return ""
    if root in FOLDERS:
        return "a folder's name; it would load a second copy of the library: import ssefold"
    if root == "ssefold":
        return _layer_fault(folder, name, own)
    if root == "typing_extensions" and imported.guarded:
        return ""  # what typing has in later versions, for type checkers only
    if root in sys.stdlib_module_names:
        return "the core has no clock, socket, thread or event loop" if folder == "core" and root in NOT_PURE else ""
    if folder == "core":
        if root != "orjson":
            return "the core needs no third-party package"
        return "" if imported.guarded else "orjson may be absent: guard it by `except ImportError`"
    allowed = {"transports": CLIENTS, "adapters": FRAMEWORKS}[folder]
    room = inside.parts[1] if inside.parts[0] == "_engine" else inside.parts[0]
    key = room.removesuffix(".py").lstrip("_").partition("_")[0]
    return "" if root in allowed.get(key, set()) else f"not this module's own client or framework {allowed.get(key)}"


def _layer_fault(folder: str, name: str, own: str) -> str:
    if folder == "core":
        return "inside a layer imports are relative: type checkers see each file under one name only"
    if folder == "transports" and name.startswith("ssefold.adapters"):
        return "a transport knows no adapter"
    if name.startswith(own):
        return "inside a layer imports are relative: type checkers see each file under one name only"
    return ""


def sources(*folders: str) -> list[tuple[str, Path]]:
    return [(folder, path) for folder in folders for path in sorted((ROOT / folder).rglob("*.py"))]


@pytest.mark.parametrize(
    ("folder", "path"), sources(*FOLDERS), ids=lambda value: value.name if isinstance(value, Path) else value
)
def test_layers_point_one_way(folder: str, path: Path) -> None:
    assert faults_of(folder, path) == []


@pytest.mark.parametrize(
    ("file", "line", "reason"),
    [
        ("core/x.py", "from ..transports import httpx", "climbs out"),
        ("core/x.py", "import ssefold.transports", "relative"),
        ("core/x.py", "from core import errors", "second copy"),
        ("core/x.py", "def f():\n    import numpy", "no third-party package"),
        ("core/x.py", "import orjson", "guard it"),
        ("core/x.py", "try:\n    pass\nexcept ImportError:\n    import orjson", "guard it"),
        ("core/x.py", "from time import monotonic", "no clock"),
        ("transports/httpx.py", "import aiohttp", "not this module's own client"),
        ("transports/_retry.py", "import httpx", "not this module's own client"),
        ("transports/httpx.py", "from ssefold import adapters", "knows no adapter"),
        ("transports/httpx.py", "from ssefold.transports._x import y", "relative"),
        ("adapters/slime.py", "import miles", "not this module's own client or framework"),
        ("adapters/slime.py", "from adapters import rollout", "second copy"),
    ],
)
def test_each_fault_is_found(
    file: str, line: str, reason: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setitem(globals(), "ROOT", tmp_path)
    path = tmp_path / file
    path.parent.mkdir()
    path.write_text(line, encoding="utf-8")
    [fault] = faults_of(path.parent.name, path)
    assert reason in fault


@pytest.mark.parametrize(
    ("file", "line"),
    [
        ("core/x.py", "try:\n    import orjson\nexcept ImportError:\n    orjson = None"),
        ("core/x.py", "from .errors import StreamError\nimport json"),
        ("transports/httpx.py", "import httpx\nimport time\nfrom ssefold import GenerateDecoder"),
        ("transports/anyio/_h11.py", "import h11\nfrom .._engine import y"),
        ("adapters/cli/demo/rounds.py", "import rich\nfrom ssefold.transports import httpx"),
    ],
)
def test_what_a_layer_may_import_is_no_fault(
    file: str, line: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setitem(globals(), "ROOT", tmp_path)
    path = tmp_path / file
    path.parent.mkdir(parents=True)
    path.write_text(line, encoding="utf-8")
    assert faults_of(path.relative_to(tmp_path).parts[0], path) == []


def test_nobody_imports_a_folder_by_its_own_name() -> None:
    """`import core` works wherever the root is on `sys.path`, and brings classes that no user's `except` matches."""
    guilty = [
        imported.where
        for folder, path in sources("tests", "docs", ".ci")
        for imported in imports_of(path)
        if imported.root in FOLDERS
    ]
    assert guilty == []


def loaded_by(statement: str, *flags: str) -> set[str]:
    """Top-level names of the modules that a fresh interpreter loads for `statement`, beyond what it starts with."""
    home = Path(ssefold.__file__).parent.parent
    code = (
        f"import sys; sys.path.insert(0, {str(home)!r}); before = set(sys.modules)\n"
        f"{statement}\n"
        "print(*{name.partition('.')[0] for name in set(sys.modules) - before}, sep='\\n')"
    )
    run = subprocess.run([sys.executable, *flags, "-c", code], capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stderr
    return set(run.stdout.split())


@pytest.mark.parametrize("flags", [["-I"], ["-I", "-S"]], ids=["packages at hand", "no packages"])
@pytest.mark.parametrize("module", ["ssefold", "ssefold.transports", "ssefold.adapters"])
def test_import_loads_no_third_party_package(module: str, flags: list[str]) -> None:
    loaded = loaded_by(f"import {module}", *flags)
    assert "ssefold" in loaded
    assert loaded - set(sys.stdlib_module_names) == {"ssefold"}


@pytest.mark.parametrize("module", sorted(NOT_PURE & {"asyncio", "socket", "ssl", "http", "multiprocessing"}))
def test_import_ssefold_starts_no_machinery(module: str) -> None:
    assert module not in loaded_by("import ssefold", "-I", "-S")


def test_no_source_folder_is_on_the_path() -> None:
    """`transports/aiohttp.py` would be what `import aiohttp` finds, were its folder on `sys.path`."""
    homes = {(ROOT / folder).resolve() for folder in FOLDERS}
    homes.add(Path(ssefold.__file__).resolve().parent)
    assert [entry for entry in sys.path if entry and Path(entry).resolve() in homes] == []


@pytest.mark.parametrize("client", sorted(set().union(*CLIENTS.values())))
def test_a_transport_gets_the_real_client_not_itself(client: str) -> None:
    pytest.importorskip(client, reason=f"{client} is an extra")
    if importlib.util.find_spec(f"ssefold.transports.{client}"):
        importlib.import_module(f"ssefold.transports.{client}")
    real = sys.modules[client]
    assert real.__name__ == client
    assert real.__file__ is not None
    assert (ROOT / "transports").resolve() not in Path(real.__file__).resolve().parents
