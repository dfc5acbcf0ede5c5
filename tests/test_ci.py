"""The workflow of the public CI: valid, on the Pythons that are supported, and running only what the repository has."""

from __future__ import annotations

import ast
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

yaml = pytest.importorskip("yaml", reason="PyYAML is in the dependency group `test`")

ROOT = Path(__file__).resolve().parent.parent
WORKFLOWS = sorted((ROOT / ".github" / "workflows").glob("*.yml"))
if not WORKFLOWS and not (ROOT / ".git").exists():
    pytest.skip("an unpacked sdist has no workflows", allow_module_level=True)
PROJECT = (ROOT / "pyproject.toml").read_text(encoding="utf-8")


def steps() -> list[tuple[str, dict[str, Any]]]:
    return [
        (f"{path.name}: {name}", step)
        for path in WORKFLOWS
        for name, job in yaml.safe_load(path.read_bytes())["jobs"].items()
        for step in job["steps"]
    ]


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.name)
def test_a_workflow_is_one(path: Path) -> None:
    workflow = yaml.safe_load(path.read_bytes())
    assert set(workflow) <= {"name", "on", "permissions", "concurrency", "jobs", "env"}
    assert workflow["permissions"] == {"contents": "read"}
    assert workflow["on"]["schedule"]
    for job in workflow["jobs"].values():
        assert job["runs-on"]
        assert job["timeout-minutes"]
        assert all(("run" in step) != ("uses" in step) for step in job["steps"])


def test_what_it_runs_exists() -> None:
    commands = [step["run"] for _, step in steps() if "run" in step]
    assert ".ci/run" in commands
    for command in commands:
        words = command.split()
        if words[0] == "make":
            dry = subprocess.run(["make", "-n", *words[1:]], cwd=ROOT, capture_output=True, text=True)
            assert dry.returncode == 0, dry.stderr
        else:
            assert os.access(ROOT / words[0], os.X_OK), command


@pytest.mark.skipif(sys.platform == "win32", reason="there is no sh there")
def test_the_gates_are_a_valid_script() -> None:
    assert subprocess.run(["sh", "-n", str(ROOT / ".ci" / "run")]).returncode == 0


def test_actions_have_versions() -> None:
    for where, step in steps():
        assert re.fullmatch(r"[\w-]+/[\w-]+@v\d+", step.get("uses", "a/b@v1")), where


def test_all_name_the_same_pythons() -> None:
    """The CI, the classifiers, the list of `make test-all`, its help, and the documentation."""
    classifiers = re.findall(r'"Programming Language :: Python :: (3\.\d+)"', PROJECT)
    [workflow] = [yaml.safe_load(path.read_bytes()) for path in WORKFLOWS]
    assert workflow["jobs"]["gates"]["strategy"]["matrix"]["python"] == classifiers
    tree = ast.parse((ROOT / ".ci" / "pythons.py").read_text(encoding="utf-8"))
    [supported] = [
        ast.literal_eval(node.value)
        for node in tree.body
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "SUPPORTED"
    ]
    assert list(supported) == classifiers
    assert f'requires-python = ">={classifiers[0]}"' in PROJECT
    span = f"{classifiers[0]} to {classifiers[-1]}"
    for page in ("Makefile", "docs/CONTRIBUTING.md", "CHANGELOG.md"):
        assert span in (ROOT / page).read_text(encoding="utf-8"), page
