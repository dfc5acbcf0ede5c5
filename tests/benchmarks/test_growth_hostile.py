"""The measurement of hostile bodies is run once, on next to nothing; what is in a body is looked at."""

from __future__ import annotations

import dataclasses
import gc
from collections.abc import Iterator

import pytest

from tests.benchmarks.growth_hostile import SHAPES, Shape, main, measure
from tests.benchmarks.scale import TINY

SMALL = dataclasses.replace(TINY, main=8)


@pytest.fixture(autouse=True)
def _light_collections() -> Iterator[None]:
    """The code collects garbage before it times; what the other tests left need not be walked each time."""
    gc.freeze()
    yield
    gc.unfreeze()


def test_every_shape_is_measured(capsys: pytest.CaptureFixture[str]) -> None:
    (section,) = measure(SMALL)
    assert [row[0] for row in section.rows] == [shape.name for shape in SHAPES]
    [bar] = section.bars
    assert bar.measured == max((row[4] for row in section.rows), key=float) + "x"
    assert {len(row) for row in section.rows} == {len(section.header)}
    main(SMALL)
    assert capsys.readouterr().out.count("\n") == len(SHAPES) + 2


@pytest.mark.parametrize("shape", SHAPES, ids=lambda shape: shape.name)
def test_twice_as_many_parts_are_twice_as_many_bytes(shape: Shape) -> None:
    fixed, small, large = (len(shape.body(count)) for count in (500, 1000, 2000))
    assert 1.8 < (large - small) / (small - fixed) < 2.3
