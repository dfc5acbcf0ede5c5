"""Damage is refused or gives an exact prefix; what cannot be detected in principle is listed, with the reason."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.core.corruption.damage import KINDS
from tests.core.corruption.matrix import LIMITS, every_stream, matrix, table
from tests.core.corruption.outcome import EXACT, LATER, SILENT, outcome

_PAGE = Path(__file__).parents[3] / "docs" / "security.md"


def test_right_streams_stay_right() -> None:
    for stream in every_stream():
        assert outcome(stream, stream.body.data) == (EXACT, frozenset()), (stream.profile, stream.name)


@pytest.mark.parametrize("name", KINDS)
def test_nothing_is_wrong_and_silent(name: str) -> None:
    may_be_wrong = LIMITS[name][0] if name in LIMITS else frozenset[str]()
    for (verdict, wrong), count in matrix()[name].items():
        assert verdict != SILENT or wrong <= may_be_wrong, (name, wrong, count)
        assert verdict != LATER or name in LIMITS, (name, count)


def test_the_page_has_the_table() -> None:
    assert "\n".join(table()) in _PAGE.read_text(), "run python -m tests.core.corruption, and put it into the page"
