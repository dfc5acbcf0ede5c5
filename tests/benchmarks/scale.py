"""How much is measured: all of it for the page, next to nothing for the test that runs this code."""

from __future__ import annotations

from dataclasses import dataclass

READ = 65_536
"""Bytes that httpx's and aiohttp's connections read at most at a time."""


@dataclass(frozen=True)
class Load:
    """Streams on one event loop.

    :ivar interval: tokens of an event.
    :ivar period: seconds between two events of one stream.
    """

    streams: int
    tokens: int
    interval: int
    period: float
    rounds: int


@dataclass(frozen=True)
class Scale:
    """Sizes and repeats.

    :ivar tokens: lengths of the answers, each twice the one before.
    :ivar intervals: values of ``stream_interval``.
    :ivar rounds: turns of everything that takes a fraction of a second.
    :ivar main_rounds: turns of the answer that bars are about, and of twice its length.
    :ivar few_rounds: turns of what else takes longer.
    :ivar main: tokens of the answer that bars are about; ``tokens`` has it and twice it.
    :ivar most_for_baselines: larger bodies (bytes), but for the main answer's, are folded by the library alone.
    :ivar most_for_rounds: larger bodies are folded once.
    :ivar event_sizes: corpora of server-sent events: bytes of an event, bytes in all.
    :ivar split_event: bytes of the smaller of two events that come in reads of 64 bytes.
    :ivar replay: bytes of the base64 text of a routed-experts terminal chunk.
    :ivar streams: streams at once, and the tokens that each has when it is looked at.
    :ivar load: streams at once that come over a client.
    """

    tokens: tuple[int, ...]
    intervals: tuple[int, ...]
    rounds: int
    main_rounds: int
    few_rounds: int
    main: int
    most_for_baselines: int
    most_for_rounds: int
    event_sizes: tuple[tuple[int, int], ...]
    split_event: int
    replay: int
    streams: tuple[int, int]
    load: Load


FULL = Scale(
    tokens=(512, 1024, 2048, 4096, 8192, 16_384),
    intervals=(1, 8, 20),
    rounds=9,
    main_rounds=5,
    few_rounds=3,
    main=4096,
    most_for_baselines=150 * 10**6,
    most_for_rounds=2 * 10**9,
    event_sizes=((200, 2 * 10**6), (20_000, 4 * 10**6), (500_000, 8 * 10**6)),
    split_event=500_000,
    replay=17 * 2**20,
    streams=(512, 2048),
    load=Load(streams=512, tokens=128, interval=8, period=0.2, rounds=5),
)
TINY = Scale(
    tokens=(32, 64),
    intervals=(1, 8),
    rounds=1,
    main_rounds=1,
    few_rounds=1,
    main=32,
    most_for_baselines=50_000,
    most_for_rounds=80_000,
    event_sizes=((200, 2000), (20_000, 40_000)),
    split_event=5000,
    replay=2**16,
    streams=(3, 64),
    load=Load(streams=3, tokens=9, interval=4, period=0.0, rounds=1),
)
