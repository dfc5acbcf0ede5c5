"""The measurement of hostile bodies is run once, on next to nothing; what is in a body is looked at."""

from __future__ import annotations

import dataclasses
import gc
from collections.abc import Iterator

import pytest

from ssefold import GenerateDecoder, IncompleteStreamError
from tests.benchmarks.growth_hostile import SHAPES, Shape, main, measure
from tests.benchmarks.scale import TINY

ACCEPTED = [shape.name for shape in SHAPES[SHAPES.index(next(s for s in SHAPES if "\u00e9" in s.name)) :]]
"""What is against the fast path."""
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
    growth, cost = section.bars
    assert growth.measured == max((row[4] for row in section.rows), key=float) + "x"
    assert float(cost.measured.split()[0]) == pytest.approx(max(float(row[6]) for row in section.rows), abs=0.006)
    assert {len(row) for row in section.rows} == {len(section.header)}


def test_shapes_are_found_by_their_names(capsys: pytest.CaptureFixture[str]) -> None:
    main(SMALL, "indexes of")
    assert capsys.readouterr().out.count("\n") == 3


@pytest.mark.parametrize("shape", SHAPES, ids=lambda shape: shape.name)
def test_twice_as_many_parts_are_twice_as_many_bytes(shape: Shape) -> None:
    fixed, small, large = (len(shape.body(count)) for count in (50, 100, 200))
    assert 1.6 < (large - small) / (small - fixed) < 2.5


@pytest.mark.parametrize("shape", [shape for shape in SHAPES if shape.name in ACCEPTED], ids=lambda shape: shape.name)
def test_a_shape_that_should_be_folded_is_folded(shape: Shape) -> None:
    """A body that is refused at its second event measures nothing."""
    decoder = GenerateDecoder()
    decoder.feed(shape.body(60))
    with pytest.raises(IncompleteStreamError):
        decoder.close()
