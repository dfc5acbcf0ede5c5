"""How much is measured: all of it for the page, next to nothing for the test that runs this code."""

from __future__ import annotations

from dataclasses import dataclass, replace

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

    :ivar main: tokens of the answer that bars are about.
    :ivar rounds: turns of everything that takes a fraction of a second.
    :ivar few_rounds: turns of what takes longer; who takes more than a second gets one.
    :ivar intervals: values of ``stream_interval``.
    :ivar barred_only: only the streams and contenders that a bar is about.
    :ivar event_sizes: corpora of server-sent events: bytes of an event, bytes in all.
    :ivar split_event: bytes of the smaller of two events that come in reads of 64 bytes.
    :ivar replay: bytes of the base64 text of a routed-experts terminal chunk.
    :ivar streams: streams at once, and the tokens that each has when it is looked at.
    :ivar load: streams at once that come over a client.
    """

    main: int
    rounds: int
    few_rounds: int
    intervals: tuple[int, ...]
    barred_only: bool
    event_sizes: tuple[tuple[int, int], ...]
    split_event: int
    replay: int
    streams: tuple[int, int]
    load: Load


FULL = Scale(
    main=4096,
    rounds=15,
    few_rounds=3,
    intervals=(1, 8, 20),
    barred_only=False,
    event_sizes=((200, 2 * 10**6), (20_000, 4 * 10**6), (500_000, 8 * 10**6)),
    split_event=500_000,
    replay=17 * 2**20,
    streams=(512, 2048),
    load=Load(streams=512, tokens=128, interval=8, period=0.2, rounds=2),
)
QUICK = replace(FULL, rounds=7, few_rounds=3, barred_only=True)
"""What bears on a bar, for somebody who changes the core and looks again."""
TINY = Scale(
    main=64,
    rounds=1,
    few_rounds=2,
    intervals=(1, 8),
    barred_only=False,
    event_sizes=((200, 2000), (20_000, 40_000)),
    split_event=5000,
    replay=2**16,
    streams=(3, 64),
    load=Load(streams=3, tokens=9, interval=4, period=0.0, rounds=1),
)
