"""What users see does not change unnoticed: public names and signatures are those written down in `public_api.txt`.

A difference is no fault by itself: look whether `docs/versioning.md` lets this version make it, say it in the
changelog, and run `python .ci/public_api.py`.
"""

from __future__ import annotations

import importlib
import inspect
import runpy
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parent.parent
SCRIPT = runpy.run_path(str(ROOT / ".ci" / "public_api.py"))
WRITTEN = ROOT / "tests" / "data" / "public_api.txt"
public_api: Callable[[Path], str] = SCRIPT["public_api"]


def test_the_public_names_and_signatures_are_those_written_down() -> None:
    written, found = WRITTEN.read_text(encoding="utf-8").splitlines(), public_api(ROOT).splitlines()
    gone, new = sorted(set(written) - set(found)), sorted(set(found) - set(written))
    assert (gone, new) == ([], []), "see docs/versioning.md, then run: python .ci/public_api.py"
    assert written == found


def import_or_skip(module: str) -> Any:
    client = module.rpartition(".")[2]
    if client in ("httpx", "aiohttp", "anyio"):
        pytest.importorskip(client, reason=f"{client} is an extra")
    return importlib.import_module(module)


@pytest.mark.parametrize("module", SCRIPT["MODULES"])
def test_every_public_name_is_there_at_run_time(module: str) -> None:
    loaded = import_or_skip(module)
    assert sorted(loaded.__all__) == sorted(set(loaded.__all__))
    assert [name for name in loaded.__all__ if not hasattr(loaded, name)] == []


@pytest.mark.parametrize("module", SCRIPT["MODULES"])
def test_signatures_are_those_at_run_time(module: str) -> None:
    """The file is made from source text; what a decorator or a metaclass would change must be seen."""
    lines = WRITTEN.read_text(encoding="utf-8").splitlines()
    loaded = import_or_skip(module)
    looked_at = 0
    for name in loaded.__all__:
        thing = getattr(loaded, name)
        if inspect.isfunction(thing):
            told = [line for line in lines if f"{module}.{name}(" in line][-1]
        elif inspect.isclass(thing) and inspect.isfunction(vars(thing).get("__init__")) and not _is_made(thing):
            told = next(line for line in lines if f"{module}.{name}.__init__(" in line)
        else:
            continue
        parameters = [parameter for parameter in inspect.signature(thing).parameters if parameter != "self"]
        assert [word for word in parameters if f"{word}:" not in told and f"{word}=" not in told] == [], told
        looked_at += 1
    assert looked_at


def _is_made(cls: Any) -> bool:
    """Its ``__init__`` is written by the standard library."""
    return hasattr(cls, "__dataclass_fields__") or getattr(cls, "_is_protocol", False)


CHANGES = [
    ("core/decoder.py", 'on_bad_json: Literal["raise", "skip"] = "raise"', 'on_bad_json: Literal["raise"] = "raise"'),
    ("core/decoder.py", "_MAX_EVENT_SIZE = 256", "_MAX_EVENT_SIZE = 128"),
    ("core/decoder.py", "def snapshots(self)", "def snapshot(self)"),
    ("core/update.py", "def logprobs(self) -> tuple[float | None, ...]", "def logprobs(self) -> tuple[float, ...]"),
    ("core/errors.py", "class PayloadError(StreamError, ValueError)", "class PayloadError(StreamError)"),
    ("transports/_engine/options.py", "retries: int\n", "retries: float\n"),
    ("transports/_engine/options.py", '"direct", "router"]', '"direct"]'),
    ("transports/httpx/__init__.py", "async def collect(\n    client", "async def collect(\n    http_client"),
    ("transports/testing/wire/held.py", "    tokens: int", "    count: int"),
    (
        "adapters/rollout/call.py",
        "    start: int\n    end: int\n    finish",
        "    end: int\n    start: int\n    finish",
    ),
]


@pytest.fixture(scope="module")
def copy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("tree")
    for folder in ("core", "transports", "adapters"):
        shutil.copytree(ROOT / folder, root / folder, ignore=shutil.ignore_patterns("__pycache__"))
    return root


@pytest.mark.parametrize(("file", "before", "after"), CHANGES, ids=lambda text: str(text)[:40])
def test_a_change_of_the_source_is_seen(file: str, before: str, after: str, copy: Path) -> None:
    path = copy / file
    source = path.read_text(encoding="utf-8")
    assert before in source
    path.write_text(source.replace(before, after), encoding="utf-8")
    try:
        assert public_api(copy) != WRITTEN.read_text(encoding="utf-8")
    finally:
        path.write_text(source, encoding="utf-8")
