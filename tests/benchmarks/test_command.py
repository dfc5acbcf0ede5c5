"""The command's benchmark runs, and reports what it measured.  No time is asserted."""

from __future__ import annotations

import os
import sys

import pytest

pytest.importorskip("click", reason="click comes with the extra `cli`")
pytest.importorskip("rich", reason="rich comes with the extra `cli`")

if not hasattr(os, "wait4"):
    pytest.skip("the system does not tell what a process used", allow_module_level=True)

from tests.benchmarks.command import cost_of, measure
from tests.benchmarks.scale import TINY


@pytest.mark.slow
def test_each_command_is_measured() -> None:
    [section] = measure(TINY)
    assert [row[0] for row in section.rows] == [
        "ssefold check", "ssefold convert --to incremental", "ssefold convert --to cumulative", "ssefold anonymize",
    ]  # fmt: skip
    assert len(section.bars) == len(section.rows)
    assert all(len(row) == len(section.header) for row in section.rows)


def test_a_command_that_fails_is_no_measurement() -> None:
    with pytest.raises(RuntimeError, match="status 3"):
        cost_of([sys.executable, "-c", "raise SystemExit(3)"])
