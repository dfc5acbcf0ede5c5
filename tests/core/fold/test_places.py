"""Where a list belongs, as a table: lengths in, a verdict out, and everything between the known oddities is refused."""

from __future__ import annotations

import pytest

from ssefold import ProtocolError
from ssefold.fold.lanes import CUMULATIVE, INCREMENTAL, Lane, Place, place_counted, place_uncounted


@pytest.mark.parametrize(
    ("length", "have", "total", "terminal", "place"),
    [
        # the first of all fit both
        (0, 0, 0, False, Place(None, 0)),
        (3, 0, 3, False, Place(None, 0)),
        # as long as the counter, as long as its growth
        (3, 2, 3, False, Place(CUMULATIVE, 2)),
        (2, 2, 2, False, Place(CUMULATIVE, 2)),
        (1, 2, 3, False, Place(INCREMENTAL, 0)),
        (0, 2, 2, False, Place(None, 0)),  # nothing is learned from an empty list
        # ahead of the counter: live lists, until the copy that ends the output
        (4, 2, 3, False, Place(CUMULATIVE, 2)),
        (2, 2, 1, False, Place(CUMULATIVE, 2)),
        # deltas in front of an abort's snapshot: as many as are new
        (5, 1, 3, True, Place(None, 3, 2)),
        (4, 0, 2, True, Place(None, 2, 2)),
    ],
)
def test_places_by_a_counter(length: int, have: int, total: int, terminal: bool, place: Place) -> None:
    assert place_counted("x", length, have, total, terminal=terminal, queue_abort=terminal, hint="h") == place


@pytest.mark.parametrize(
    ("length", "have", "total", "terminal"),
    [
        (1, 2, 1, False),  # the counter fell below what is known
        (1, 2, 4, False),  # neither all nor what is new
        (2, 3, 1, False),  # ahead of the counter, and not all
        (6, 1, 3, True),  # more in front of a snapshot than can be new
        (4, 1, 3, True),  # fewer than are new: one was lost
        (4, 3, 2, True),  # more known than the counter says
        (4, 3, 3, True),  # nothing is new, so nothing can be in front
    ],
)
def test_what_has_no_place_by_its_counter(length: int, have: int, total: int, terminal: bool) -> None:
    with pytest.raises(ProtocolError) as caught:
        place_counted("some.list", length, have, total, terminal=terminal, queue_abort=terminal, hint="Look there")
    said = str(caught.value)
    assert said.startswith(f"some.list has {length} entries, {have} were known and the counter says {total} in all")
    assert f"cumulative (it would have {total}) nor incremental (it would have {total - have})" in said
    assert said.endswith("Look there")


@pytest.mark.parametrize(
    ("length", "have", "lane", "prefix", "place"),
    [
        (2, 0, None, None, Place(None, 0)),
        (2, 0, CUMULATIVE, None, Place(None, 0)),
        # by the lane known so far, whatever the prefix says
        (2, 2, INCREMENTAL, True, Place(INCREMENTAL, 0)),
        (3, 2, CUMULATIVE, False, Place(CUMULATIVE, 2)),
        (2, 2, CUMULATIVE, True, Place(CUMULATIVE, 2)),
        # nothing is known, and nothing has come
        (0, 2, None, None, Place(None, 0)),
        (0, 2, CUMULATIVE, None, None),
        # by the prefix
        (1, 2, None, None, Place(INCREMENTAL, 0)),
        (2, 2, None, False, Place(INCREMENTAL, 0)),
        (3, 2, None, True, Place(CUMULATIVE, 2)),
        (2, 2, None, True, None),
        (1, 2, CUMULATIVE, None, None),
    ],
)
def test_places_without_a_counter(
    length: int, have: int, lane: Lane | None, prefix: bool | None, place: Place | None
) -> None:
    if place is not None:
        assert place_uncounted("x", length, have, lane, prefix, "h") == place
        return
    says = f"has shrunk from {have} to {length} entries. Look there" if lane else f"repeats the {have} entries known"
    with pytest.raises(ProtocolError, match=says):
        place_uncounted("x", length, have, lane, prefix, "Look there")
