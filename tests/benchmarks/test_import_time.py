"""The measurement works; what it measures is for people, as machines differ."""

from __future__ import annotations

import subprocess

import pytest

pytest.importorskip("resource", reason="CPU times of children are asked for as POSIX has them")
from tests.benchmarks.import_time import measure


def test_each_module_has_a_time_of_its_own() -> None:
    found = measure(["ssefold", "sys"], rounds=1)
    assert list(found) == ["ssefold", "sys"]


def test_a_module_that_can_not_be_imported_is_no_measurement() -> None:
    with pytest.raises(subprocess.CalledProcessError):
        measure(["ssefold.nothing_of_this_name"], rounds=1)
