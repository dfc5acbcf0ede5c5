"""The fuzz targets on seeds, on what Hypothesis draws, and on every finding there ever was."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.fuzz.seeds import seeds
from tests.fuzz.targets import TARGETS

_REGRESSIONS = sorted((Path(__file__).parents[1] / "data" / "regressions").glob("*-*"))
_EVENTS = st.lists(
    st.sampled_from(
        [
            b"data: ",
            b"data:",
            b"\n",
            b"\n\n",
            b"\r",
            b"\r\n",
            b":",
            b"event: error\n",
            b"id: 1\n",
            b'{"text":"a",',
            b"[DONE]",
        ]
    )
    | st.binary(max_size=8)
).map(b"".join)


@pytest.mark.parametrize("name", TARGETS)
def test_seeds(name: str) -> None:
    count = 0
    for seed in seeds(name):
        TARGETS[name](seed)
        count += 1
    assert count > 5


@pytest.mark.parametrize("name", TARGETS)
def test_drawn(name: str) -> None:
    target = TARGETS[name]

    @given(st.binary(max_size=64) | _EVENTS)
    def drawn(data: bytes) -> None:
        target(data)

    drawn()


@pytest.mark.parametrize("path", _REGRESSIONS, ids=lambda path: path.name)
def test_findings(path: Path) -> None:
    TARGETS[path.name.rpartition("-")[0]](path.read_bytes())
