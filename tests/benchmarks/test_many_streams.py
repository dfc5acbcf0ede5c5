"""The benchmark of many streams is run once, on next to nothing.  No time is asserted."""

from __future__ import annotations

import asyncio
from importlib.util import find_spec

import pytest

from tests.benchmarks.many_streams import CLIENTS, MODES, _served, measure, percentile
from tests.benchmarks.scale import TINY

pytestmark = pytest.mark.skipif(
    not all(find_spec(package) for package in ("httpx", "aiohttp", "anyio", "h11")), reason="it measures all clients"
)


def test_every_client_has_a_row_for_each_mode_and_the_bar_is_the_worst() -> None:
    [section] = measure(TINY)
    assert [row[0] for row in section.rows] == [f"{mode}, {client}" for mode in MODES for client in CLIENTS]
    assert {len(row) for row in section.rows} == {len(section.header)}
    [bar] = section.bars
    assert bar.measured == max((row[3] for row in section.rows), key=lambda ratio: float(ratio.removesuffix("x")))


def test_the_library_gets_every_token_of_what_the_others_read() -> None:
    with _served(TINY.load) as url:
        for mode in MODES:
            sizes: set[int] = set()
            for reading, ours in CLIENTS.values():
                sizes.add(asyncio.run(reading(f"{url}/{mode}", TINY.load.streams)))
                assert asyncio.run(ours(f"{url}/{mode}", TINY.load.streams)) == TINY.load.streams * TINY.load.tokens
            assert len(sizes) == 1


def test_percentiles() -> None:
    assert percentile([], 99) == 0.0
    assert percentile([3.0, 1.0, 2.0], 99) == 3.0
    assert percentile(list(range(1, 201)), 99) == 198
    assert percentile([5.0, 1.0], 50) == 1.0
