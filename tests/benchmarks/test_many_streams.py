"""The benchmark of many streams is run once, on next to nothing.  No time is asserted."""

from __future__ import annotations

import asyncio
from importlib.util import find_spec

import pytest

from tests.benchmarks.many_streams import CLIENTS, MODES, measure, percentile, served, side_by_side
from tests.benchmarks.scale import TINY

pytestmark = pytest.mark.skipif(
    not all(find_spec(package) for package in ("httpx", "aiohttp", "anyio", "h11")), reason="it measures all clients"
)


def test_every_client_has_a_row_for_each_mode_and_the_bar_is_the_worst() -> None:
    tokens, streams = measure(TINY)
    assert len(tokens.rows) == len(tokens.bars) == 9
    assert all(cell.endswith("x") for cell in [row[-1] for row in tokens.rows])
    assert [row[0] for row in streams.rows] == [f"{mode}, {client}" for mode in MODES for client in CLIENTS]
    for section in (tokens, streams):
        assert {len(row) for row in section.rows} == {len(section.header)}
    [bar] = streams.bars
    assert bar.measured == max((row[3] for row in streams.rows), key=lambda ratio: float(ratio.removesuffix("x")))


def test_every_way_of_folding_has_every_token() -> None:
    with served(TINY.load) as url:
        for mode in MODES:
            for client in CLIENTS:
                for contender in side_by_side(client).values():
                    assert asyncio.run(contender(f"{url}/{mode}", TINY.load.streams)) == (
                        TINY.load.streams * TINY.load.tokens
                    )


def test_the_library_gets_every_token_of_what_the_others_read() -> None:
    with served(TINY.load) as url:
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
