"""What is built and installed is the whole library: wheel, sdist, wheel from the sdist, and the editable install.

Everything is built from a copy of the tree that has a link tree in it, as a developer's checkout has: hatchling follows
links, and left to itself packs `transports/` and `adapters/` under `.links/` alone, so that a wheel made from the sdist
lacks them.  A fresh clone never shows that.  Builds use no isolation and installs no index, so this needs no network.
"""

from __future__ import annotations

import os
import re
import runpy
import shutil
import subprocess
import sys
import tarfile
import venv
import zipfile
from collections.abc import Callable
from email.message import Message
from email.parser import Parser
from pathlib import Path

import pytest

import ssefold

FOLDERS = {"core": "ssefold", "transports": "ssefold/transports", "adapters": "ssefold/adapters"}
LITTER = shutil.ignore_patterns(".git", ".venv*", ".links", "__pycache__", "dist", ".hypothesis", ".*_cache", ".site")

lay: Callable[[Path], None] = runpy.run_path(str(Path(__file__).parent.parent / ".ci" / "links.py"))["lay"]


def run(*command: str | Path, cwd: Path) -> str:
    """Standard output of a command that must succeed, and that no setting of the caller's reaches."""
    environment = {key: value for key, value in os.environ.items() if not key.startswith(("PIP_", "PYTHON", "HATCH_"))}
    environment |= {"PIP_NO_INDEX": "1", "PIP_DISABLE_PIP_VERSION_CHECK": "1"}
    done = subprocess.run(list(map(str, command)), cwd=cwd, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, f"{command}\n{done.stdout}\n{done.stderr}"
    return done.stdout


def files_below(folder: Path) -> set[str]:
    """Files as paths below ``folder``; links of an editable install are followed."""
    walk = os.walk(folder, followlinks=True)
    found = (Path(home, name) for home, _, names in walk for name in names if "__pycache__" not in Path(home).parts)
    return {path.relative_to(folder).as_posix() for path in found}


def package_files(tree: Path) -> set[str]:
    """The files that an installation of this tree must hold, as paths below site-packages."""
    return {f"{package}/{path}" for folder, package in FOLDERS.items() for path in files_below(tree / folder)}


@pytest.fixture(scope="module")
def tree(repository: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the source tree, with the links of an editable install in it."""
    copy = tmp_path_factory.mktemp("tree") / "ssefold"
    shutil.copytree(repository, copy, ignore=LITTER)
    lay(copy)
    return copy


def build(tree: Path, kind: str, out: Path) -> Path:
    for module in ("build", "hatchling"):
        pytest.importorskip(module, reason=f"{module} is in the `test` group")
    run(sys.executable, "-m", "build", "--no-isolation", f"--{kind}", "--outdir", out, tree, cwd=out.parent)
    [built] = out.iterdir()
    return built


@pytest.fixture(scope="module")
def sdist(tree: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build(tree, "sdist", tmp_path_factory.mktemp("build") / "sdist")


@pytest.fixture(scope="module")
def wheel(tree: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build(tree, "wheel", tmp_path_factory.mktemp("build") / "wheel")


@pytest.fixture(scope="module")
def unpacked(sdist: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The sdist's own tree."""
    out = tmp_path_factory.mktemp("unpacked")
    with tarfile.open(sdist) as archive:
        if hasattr(tarfile, "data_filter"):
            archive.extractall(out, filter="data")
        else:
            archive.extractall(out)
    [root] = out.iterdir()
    # Another checkout, another day, another umask.
    for path in root.rglob("*.py"):
        path.chmod(0o664)
        os.utime(path, (1_700_000_000, 1_700_000_000))
    return root


@pytest.fixture(scope="module")
def wheel_from_sdist(unpacked: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build(unpacked, "wheel", tmp_path_factory.mktemp("build") / "wheel")


@pytest.fixture(scope="module")
def metadata(wheel: Path) -> Message:
    with zipfile.ZipFile(wheel) as archive:
        [name] = [name for name in archive.namelist() if name.endswith(".dist-info/METADATA")]
        return Parser().parsestr(archive.read(name).decode())


class CleanEnvironment:
    """A virtual environment with nothing in it; pip works on it from outside, which saves setting one up there."""

    def __init__(self, home: Path) -> None:
        pytest.importorskip("pip", reason="no pip to install with")
        venv.create(home, with_pip=False)
        self.home = home
        self.python = home / ("Scripts" if sys.platform == "win32" else "bin") / "python"

    def install(self, artefact: Path) -> None:
        outside = (sys.executable, "-m", "pip", "--python", self.python)
        run(*outside, "install", "--quiet", "--no-deps", artefact, cwd=self.home)

    def answers(self, code: str) -> list[str]:
        return run(self.python, "-I", "-W", "error", "-c", code, cwd=self.home).split()


LOOK = """
import importlib, os, pathlib, ssefold, ssefold.transports, ssefold.adapters
home = pathlib.Path(ssefold.__file__).parent
assert pathlib.Path(ssefold.transports.__file__).parent == home / "transports"
assert pathlib.Path(ssefold.adapters.__file__).parent == home / "adapters"
for path in sorted(home.glob("*.py")):
    importlib.import_module("ssefold" if path.stem == "__init__" else "ssefold." + path.stem)
print(ssefold.__version__, home.parent)
# An editable install is a tree of links.
print(*("ssefold/" + (pathlib.Path(folder) / name).relative_to(home).as_posix()
        for folder, _, names in os.walk(home, followlinks=True) for name in names if "__pycache__" not in folder))
"""


@pytest.mark.slow
@pytest.mark.parametrize("built", ["wheel", "wheel_from_sdist"])
def test_a_wheel_works_in_a_clean_environment(
    built: str, tree: Path, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    clean = CleanEnvironment(tmp_path / "clean")
    clean.install(request.getfixturevalue(built))
    version, home, *files = clean.answers(LOOK)
    assert version == ssefold.__version__
    assert Path(home).is_relative_to(clean.home)
    assert set(files) == package_files(tree)
    assert "ssefold/py.typed" in files
    assert (clean.python.parent / ("ssefold.exe" if sys.platform == "win32" else "ssefold")).is_file()


@pytest.mark.slow
def test_an_editable_install_shows_the_tree_itself(tree: Path, tmp_path: Path) -> None:
    pytest.importorskip("hatchling", reason="hatchling is in the `test` group")
    checkout = tmp_path / "checkout"  # with no links yet: the build has to lay them
    shutil.copytree(tree, checkout, ignore=LITTER)
    code = "import sys, hatchling.build as b; print(b.build_editable(sys.argv[1]))"
    name = run(sys.executable, "-c", code, tmp_path, cwd=checkout).split()[-1]
    clean = CleanEnvironment(tmp_path / "clean")
    clean.install(tmp_path / name)
    _, home, *files = clean.answers(LOOK)
    assert Path(home).samefile(checkout / ".links")
    assert set(files) == package_files(checkout)


@pytest.mark.slow
def test_a_wheel_holds_the_package_and_nothing_else(wheel: Path, tree: Path) -> None:
    assert _without_dist_info(wheel) == package_files(tree)


@pytest.mark.slow
def test_builds_are_reproducible(wheel: Path, wheel_from_sdist: Path, sdist: Path, unpacked: Path) -> None:
    """Byte for byte, whatever the files' times and modes are: from the tree, from its sdist, and the sdist of that."""
    assert wheel_from_sdist.read_bytes() == wheel.read_bytes()
    assert build(unpacked, "sdist", unpacked.parent / "again").read_bytes() == sdist.read_bytes()


def _without_dist_info(wheel: Path) -> set[str]:
    return {name for name in zipfile.ZipFile(wheel).namelist() if ".dist-info/" not in name}


@pytest.mark.slow
def test_the_sdist_holds_the_whole_repository(unpacked: Path, tree: Path) -> None:
    kept = ["core", "transports", "adapters", "tests", "docs", ".ci"]
    expected = {f"{folder}/{path}" for folder in kept for path in files_below(tree / folder)}
    expected |= {"pyproject.toml", "Makefile", "README.md", "LICENSE", "CHANGELOG.md"}
    assert expected - files_below(unpacked) == set()
    # Beyond those: hatchling's own metadata, and the ignore file that steers its walk.
    assert files_below(unpacked) - expected == {"PKG-INFO", ".gitignore"}


@pytest.mark.slow
def test_nothing_is_required_but_what_an_extra_asks_for(metadata: Message) -> None:
    requirements = metadata.get_all("Requires-Dist", [])
    assert [line for line in requirements if "extra ==" not in line] == []
    assert set(metadata.get_all("Provides-Extra", [])) == {"httpx", "aiohttp", "anyio", "fast", "cli", "all"}
    in_all = {_name(line) for line in requirements if re.search(r"extra == .all.", line)}
    assert in_all == {"httpx", "aiohttp", "anyio", "h11", "orjson", "click", "rich"}


def _name(requirement: str) -> str:
    return re.split(r"[^A-Za-z0-9_.-]", requirement, maxsplit=1)[0]


@pytest.mark.slow
def test_the_license_is_named_and_shipped(metadata: Message, wheel: Path) -> None:
    assert metadata["License-Expression"] == "Apache-2.0"
    assert any(name.endswith("LICENSE") for name in zipfile.ZipFile(wheel).namelist())


@pytest.mark.slow
def test_the_metadata_is_complete(metadata: Message) -> None:
    assert metadata["Summary"]
    assert metadata["Keywords"]
    assert metadata["Description-Content-Type"] == "text/markdown"
    assert str(metadata.get_payload()).lstrip().startswith("# ssefold")
    said = {line.rpartition(" :: ")[2] for line in metadata.get_all("Classifier", []) if ":: Python :: 3." in line}
    assert said == {"3.10", "3.11", "3.12", "3.13"}
    assert metadata["Requires-Python"] == ">=3.10"
    assert {"Typing :: Typed", "Framework :: AsyncIO", "Framework :: Trio"} <= set(metadata.get_all("Classifier", []))


def test_every_file_is_installed(repository: Path) -> None:
    """This very environment shows all files of the tree it tests: a file added to core/ needs `make links`."""
    installed = {f"ssefold/{path}" for path in files_below(Path(ssefold.__path__[0]))}
    missing = package_files(repository) - installed
    assert not missing, f"not installed: {sorted(missing)}; run `make links` (or install again)"


class TestLinks:
    """The link tree is brought up to date, not laid anew: uv takes a changed tree for a reason to install again."""

    @pytest.fixture
    def small(self, tmp_path: Path) -> Path:
        for folder in FOLDERS:
            (tmp_path / folder).mkdir()
            (tmp_path / folder / "__init__.py").touch()
        lay(tmp_path)
        return tmp_path

    def test_the_three_folders_are_one_package(self, small: Path) -> None:
        package = small / ".links" / "ssefold"
        assert sorted(path.name for path in package.iterdir()) == ["__init__.py", "adapters", "transports"]
        (small / "transports" / "new.py").touch()
        assert (package / "transports" / "new.py").is_file()

    def test_a_new_file_of_core_is_linked_and_a_removed_one_unlinked(self, small: Path) -> None:
        (small / "core" / "new.py").write_text("x = 1\n", encoding="utf-8")
        lay(small)
        assert (small / ".links" / "ssefold" / "new.py").read_text(encoding="utf-8") == "x = 1\n"
        (small / "core" / "new.py").unlink()
        lay(small)
        assert not (small / ".links" / "ssefold" / "new.py").is_symlink()

    def test_laying_twice_changes_nothing(self, small: Path) -> None:
        package = small / ".links" / "ssefold"
        before = {path.name: path.lstat().st_mtime_ns for path in package.iterdir()}
        lay(small)
        assert {path.name: path.lstat().st_mtime_ns for path in package.iterdir()} == before

    def test_bytecode_beside_the_links_is_no_hindrance(self, small: Path) -> None:
        cache = small / ".links" / "ssefold" / "__pycache__"
        cache.mkdir()
        (cache / "errors.cpython-311.pyc").touch()
        lay(small)
        assert cache.is_dir()

    def test_dotted_files_of_editors_are_not_linked(self, small: Path) -> None:
        (small / "core" / ".errors.py.swp").touch()
        lay(small)
        assert not (small / ".links" / "ssefold" / ".errors.py.swp").exists()
