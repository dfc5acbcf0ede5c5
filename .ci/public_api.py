"""Write ``tests/data/public_api.txt``: every public name of the library with its signature, one a line.

``python .ci/public_api.py`` brings the file up to date; a test fails while it is not, so that no change of what users
see goes unnoticed.  Source text is read and nothing is run: the result is the same on every Python, and needs none of
the optional packages.  Standard library only.
"""

from __future__ import annotations

import ast
import copy
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

HEADER = "# Public names and their signatures; written by `python .ci/public_api.py`, see docs/versioning.md.\n"
FOLDERS = {"ssefold.transports": "transports", "ssefold.adapters": "adapters", "ssefold": "core"}
MODULES = (
    "ssefold",
    "ssefold.transports",
    "ssefold.transports.httpx",
    "ssefold.transports.aiohttp",
    "ssefold.transports.anyio",
    "ssefold.transports.testing",
    "ssefold.adapters.rollout",
    "ssefold.adapters.slime",
    "ssefold.adapters.miles",
)
#: Methods that say nothing about how a class is used.
_UNTOLD = {"__slots__", "__repr__", "__reduce__", "__setattr__", "__delattr__", "__init_subclass__"}

_LONGEST = 160
"""Characters of a default; a table of a module is no part of its signature."""

Function = (ast.FunctionDef, ast.AsyncFunctionDef)


class Found(NamedTuple):
    """A definition, and the module that it stands in."""

    module: str
    node: ast.stmt


class Source:
    """The modules of one tree, parsed when they are asked for."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self._trees: dict[str, ast.Module] = {}
        self._by_name: dict[str, dict[str, ast.stmt]] = {}

    def tree(self, module: str) -> ast.Module:
        """The syntax tree of ``ssefold.something``."""
        if module not in self._trees:
            path = self._path(module)
            file = path / "__init__.py" if path.is_dir() else path.with_suffix(".py")
            self._trees[module] = ast.parse(file.read_bytes(), str(file))
        return self._trees[module]

    def _path(self, module: str) -> Path:
        package = next(name for name in FOLDERS if f"{module}.".startswith(f"{name}."))
        return self._root.joinpath(FOLDERS[package], *module.removeprefix(package).split("."))

    def is_package(self, module: str) -> bool:
        """Whether siblings are below it, and not beside it."""
        return self._path(module).is_dir()

    def find(self, module: str, name: str) -> Found | None:
        """Where a name of a module is defined, through whatever imports of ours; None if it is not ours."""
        node = self._names(module).get(name)
        if not isinstance(node, ast.ImportFrom):
            return Found(module, node) if node is not None else None
        origin = self._origin(module, node)
        [original] = [alias.name for alias in node.names if (alias.asname or alias.name) == name]
        return self.find(origin, original) if origin.partition(".")[0] == "ssefold" else None

    def _names(self, module: str) -> dict[str, ast.stmt]:
        """What a module defines or imports by name, and the first statement that does."""
        if module not in self._by_name:
            by_name = self._by_name[module] = {}
            for node in statements(self.tree(module).body):
                imported = node.names if isinstance(node, ast.ImportFrom) else []
                for name in [*names_of(node), *(alias.asname or alias.name for alias in imported)]:
                    by_name.setdefault(name, node)
        return self._by_name[module]

    def _origin(self, module: str, node: ast.ImportFrom) -> str:
        if not node.level:
            return node.module or ""
        parts = module.split(".")
        up = node.level - self.is_package(module)
        return ".".join([*parts[: len(parts) - up], *([node.module] if node.module else [])])

    def text(self, module: str, node: ast.AST) -> str:
        """An annotation or a default as text, with constants and `Literal`s spelled out: their changes count."""
        return ast.unparse(_SpellOut(self, module).visit(copy.deepcopy(node)))


class _SpellOut(ast.NodeTransformer):
    def __init__(self, source: Source, module: str) -> None:
        self._source = source
        self._module = module

    def visit_Name(self, node: ast.Name) -> ast.AST:
        found = self._source.find(self._module, node.id)
        value: ast.expr | None = getattr(found.node, "value", None) if found else None
        if isinstance(value, (ast.Constant, ast.BinOp)):
            return value
        return value if value is not None and ast.unparse(value).startswith("Literal[") else node


def statements(body: list[ast.stmt]) -> Iterator[ast.stmt]:
    """Statements as type checkers see them: `if TYPE_CHECKING` is taken, its `else` is not."""
    for node in body:
        if isinstance(node, ast.If):
            yield from statements(node.body)
        else:
            yield node


def names_of(node: ast.stmt) -> list[str]:
    """What a statement defines."""
    if isinstance(node, (*Function, ast.ClassDef)):
        return [node.name]
    return [target.id for target in _targets(node) if isinstance(target, ast.Name)]


def public_api(root: Path) -> str:
    """The whole file."""
    source = Source(root)
    lines: list[str] = []
    for module in MODULES:
        for name in sorted(public_names(source, module)):
            found = source.find(module, name)
            if found is None:
                raise LookupError(f"{module}.__all__ has {name!r}, which is defined nowhere")
            lines += described(source, found, f"{module}.{name}")
    return HEADER + "\n".join(lines) + "\n"


def public_names(source: Source, module: str) -> list[str]:
    """``__all__`` of a module."""
    for node in source.tree(module).body:
        if isinstance(node, ast.Assign) and names_of(node) == ["__all__"]:
            names: list[str] = ast.literal_eval(node.value)
            return names
    raise LookupError(f"{module} has no __all__")


def described(source: Source, found: Found, name: str) -> list[str]:
    """The lines of one name."""
    node = found.node
    if isinstance(node, Function):
        # Overloads are several definitions of one name.
        same = [other for other in statements(source.tree(found.module).body) if node.name in names_of(other)]
        return [signature(source, found.module, other, name) for other in same if isinstance(other, Function)]
    if isinstance(node, ast.ClassDef):
        keywords = [ast.unparse(keyword) for keyword in node.keywords if keyword.arg != "metaclass"]
        bases = ", ".join([*(ast.unparse(base) for base in node.bases), *keywords])
        decorators = "".join(f"@{ast.unparse(decorator)} " for decorator in node.decorator_list)
        # The order of a record's fields is that of its arguments.
        fields = [field for member in node.body if isinstance(member, ast.AnnAssign) for field in names_of(member)]
        ordered = "dataclass" in decorators or "NamedTuple" in bases
        order = [f"{name}: fields {', '.join(fields)}"] if ordered and fields else []
        return [f"{name}: {decorators}class({bases})", *order, *members_of(source, found, name)]
    return [f"{name}: {_value(source, found.module, node)}"]


def members_of(source: Source, found: Found, of: str) -> list[str]:
    """The lines of a class' public members, those that it has from classes of ours included."""
    by_name: dict[str, list[str]] = {}
    for owner in lineage(source, found):
        own: dict[str, list[str]] = {}
        for name, line in own_members(source, owner, of):
            if name not in _UNTOLD and (not name.startswith("_") or name.endswith("__")):
                own.setdefault(name, []).append(line)
        by_name = {**own, **by_name}
    return [line for name in sorted(by_name) for line in by_name[name]]


def lineage(source: Source, found: Found) -> Iterator[Found]:
    """The class, and the bases that are ours, nearest first."""
    if isinstance(found.node, ast.ClassDef):
        yield found
        for base in found.node.bases:
            parent = source.find(found.module, base.id) if isinstance(base, ast.Name) else None
            if parent is not None:
                yield from lineage(source, parent)


def own_members(source: Source, owner: Found, of: str) -> Iterator[tuple[str, str]]:
    """Name and line of what a class body defines, and of what ``__init__`` sets on ``self``."""
    module = owner.module
    for member in statements(owner.node.body if isinstance(owner.node, ast.ClassDef) else []):
        if not isinstance(member, Function):
            for name in names_of(member):
                yield name, f"{of}.{name}: {_value(source, module, member)}"
            continue
        decorators = sorted(ast.unparse(decorator) for decorator in member.decorator_list)
        if "property" in decorators:
            yield member.name, f"{of}.{member.name}: property{_returns(source, module, member)}"
        elif not any(decorator.endswith(".setter") for decorator in decorators):
            before = "".join(f"@{decorator} " for decorator in decorators)
            yield member.name, before + signature(source, module, member, f"{of}.{member.name}")
        if member.name == "__init__":
            for node in ast.walk(member):
                for target in _targets(node):
                    if isinstance(target, ast.Attribute) and ast.unparse(target.value) == "self":
                        kind = f": {ast.unparse(node.annotation)}" if isinstance(node, ast.AnnAssign) else ""
                        yield target.attr, f"{of}.{target.attr}{kind}"


def signature(source: Source, module: str, node: ast.FunctionDef | ast.AsyncFunctionDef, name: str) -> str:
    """A function's line, annotations as they are written."""
    before = "async " if isinstance(node, ast.AsyncFunctionDef) else ""
    return f"{before}{name}({source.text(module, node.args)}){_returns(source, module, node)}"


def _returns(source: Source, module: str, node: ast.FunctionDef | ast.AsyncFunctionDef) -> str:
    return f" -> {source.text(module, node.returns)}" if node.returns else ""


def _targets(node: ast.AST) -> list[ast.expr]:
    return node.targets if isinstance(node, ast.Assign) else [node.target] if isinstance(node, ast.AnnAssign) else []


def _value(source: Source, module: str, node: ast.stmt) -> str:
    if not isinstance(node, (ast.Assign, ast.AnnAssign)):
        return ""
    kind = source.text(module, node.annotation) if isinstance(node, ast.AnnAssign) else ""
    value = source.text(module, node.value) if node.value else ""
    if len(value) > _LONGEST:
        value = "..."
    return f"{kind} = {value}".strip() if value else kind


if __name__ == "__main__":
    root = Path(__file__).resolve().parent.parent
    (root / "tests" / "data" / "public_api.txt").write_text(public_api(root), encoding="utf-8")
