"""``docs/security.md`` names tests that exist, and the limits that the code has."""

from __future__ import annotations

import inspect
import re
from pathlib import Path

import pytest

from ssefold import GenerateDecoder
from ssefold.fold.payload import MAX_DEPTH
from ssefold.transports._engine.answer import BODY_LIMIT

ROOT = Path(__file__).resolve().parent.parent
PAGE = (ROOT / "docs" / "security.md").read_text("utf-8")
PROMISES, HOSTILE, LIMITS = (
    PAGE.partition(f"## {title}")[2].partition("\n## ")[0] for title in ("Promises", "Hostile servers", "Limits")
)


def _rows(section: str) -> list[list[str]]:
    lines = [line for line in section.splitlines() if line.startswith("| ")]
    return [[cell.strip() for cell in line.removeprefix("|").removesuffix("|").split("|")] for line in lines[1:]]


def test_every_file_that_is_named_is_there() -> None:
    named = set(re.findall(r"`(tests/[\w/]+\.py)`", PAGE)) | {
        f"tests/transports/{name}" for name in re.findall(r"`(test_\w+\.py)`", HOSTILE)
    }
    assert len(named) > 25
    assert [name for name in sorted(named) if not (ROOT / name).is_file()] == []


@pytest.mark.parametrize("section", [PROMISES, LIMITS], ids=["promises", "limits"])
def test_every_promise_and_limit_names_its_test(section: str) -> None:
    rows = _rows(section)
    assert len(rows) > 10
    assert [row[0] for row in rows if "`tests/" not in row[-1]] == []


def test_every_case_says_what_comes_and_when() -> None:
    rows = _rows(HOSTILE)
    assert len(rows) > 30
    assert {len(row) for row in rows} == {4}
    for row in rows:
        assert row[1], row[0]
        assert row[2] or "Error" not in row[1], row[0]


def test_the_numbers_are_those_of_the_code() -> None:
    size = inspect.signature(GenerateDecoder).parameters["max_event_size"].default
    assert f"`max_event_size`, {size // 2**20} MiB unless given" in LIMITS
    assert f"| levels of JSON in an event | {MAX_DEPTH} |" in LIMITS
    assert f"| a refusal's body | {BODY_LIMIT // 1024} KiB |" in LIMITS


def test_there_is_one_page_of_the_name() -> None:
    """``docs/SECURITY.md`` beside it would be the same file on systems that do not tell upper from lower case."""
    assert [path.name for path in (ROOT / "docs").iterdir() if path.name.lower() == "security.md"] == ["security.md"]
