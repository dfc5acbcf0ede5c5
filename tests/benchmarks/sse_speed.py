"""Server-sent events alone: our parser and the published ones over the same reads."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from tests.benchmarks.bodies import cut, events_of_size
from tests.benchmarks.peers import OURS, OURS_AS_TEXT, PEERS, Parse, ours, ours_as_text, parser_of
from tests.benchmarks.report import Bar, Section, at_least, at_most, milliseconds
from tests.benchmarks.scale import READ, Scale
from tests.benchmarks.timing import median, race

_READS: dict[str, int | None] = {"1,460 B": 1460, "64 KiB": READ, "an event": None}
_SMALL_READ = 64
_BARS = {200: 1.2}
_HTTPX_SSE = "httpx-sse"
_TEXT = f"""\
ms for a whole corpus ({{totals}}), and in brackets the ratio to ssefold. *{OURS}* hands out bytes, which JSON parsers
take as they are; *{OURS_AS_TEXT}* decodes them, as the others do. Reads: about a TCP segment, what HTTP clients read at
most, and what the server writes at a time. A name instead of a time is the error that the parser ended with.
"""


def measure(scale: Scale) -> list[Section]:
    """Three corpora, three sizes of reads; then one event in many small reads."""
    return [_corpora(scale), _small_reads(scale)]


def parsers(events: Sequence[bytes], reads: Sequence[bytes]) -> tuple[dict[str, Parse], dict[str, str]]:
    """Who gets the events out of the reads, checked; and of the others, why not."""
    wanted = [event[6:-2].decode() for event in events]
    able: dict[str, Parse] = {OURS: ours, OURS_AS_TEXT: ours_as_text}
    unable: dict[str, str] = {}
    for peer in PEERS:
        parse = parser_of(peer)
        if parse is None:
            unable[peer] = "not installed"
            continue
        try:
            found = parse(reads)
        except ValueError as error:
            unable[peer] = type(error).__name__
            continue
        if found == wanted:
            able[peer] = parse
        else:
            unable[peer] = "wrong events"
    if ours(reads) != [event[6:-2] for event in events] or ours_as_text(reads) != wanted:
        raise ValueError("our parser does not give the events that the reads were made of")
    return able, unable


def _corpora(scale: Scale) -> Section:
    rows: list[list[str]] = []
    bars: list[Bar] = []
    columns = [OURS, OURS_AS_TEXT, *PEERS]
    for size, total in scale.event_sizes:
        events = events_of_size(size, total)
        fastest: dict[str, float] = {}
        httpx: dict[str, float] = {}
        for label, read in _READS.items():
            reads = events if read is None else cut(b"".join(events), read)
            able, unable = parsers(events, reads)
            runs = race({name: _call(parse, reads) for name, parse in able.items()}, scale.rounds)
            times = {name: median(seconds) for name, seconds in runs.items()}
            peers = {name: time / times[OURS] for name, time in times.items() if name in PEERS}
            rows.append([f"{_size(size)} events", label, *(_cell(name, times, unable) for name in columns)])
            if peers:
                fastest[label] = min(peers.values())
            if _HTTPX_SSE in peers:
                httpx[label] = peers[_HTTPX_SSE]
        if fastest:
            limit = _BARS.get(size, 1.0)
            bars.append(_worst(f"SSE {_size(size)} events: fastest peer / ours", limit, fastest))
        if size in _BARS and httpx:
            bars.append(_worst(f"SSE {_size(size)} events: httpx-sse / ours", 3, httpx))
    totals = ", ".join(f"{total / 1e6:g} MB of {_size(size)} events" for size, total in scale.event_sizes)
    return Section("Server-sent events alone", _TEXT.format(totals=totals), ["corpus", "read", *columns], rows, bars)


def _small_reads(scale: Scale) -> Section:
    sizes = (scale.split_event, 2 * scale.split_event)
    times: dict[str, list[float]] = {}
    for size in sizes:
        events = events_of_size(size, size)
        reads = cut(events[0], _SMALL_READ)
        able, _ = parsers(events, reads)
        for name, seconds in race(
            {name: _call(parse, reads) for name, parse in able.items()}, scale.few_rounds
        ).items():
            times.setdefault(name, []).append(median(seconds))
    rows = [
        [name, *map(milliseconds, found), f"{found[1] / found[0]:.2f}" if len(found) == len(sizes) else "-"]
        for name, found in times.items()
    ]
    small, large = times[OURS]
    return Section(
        "One event in reads of 64 bytes",
        "ms for an event of half the size, of the whole size, and their ratio: 2 is linear, 4 quadratic.",
        ["parser", *(f"{_size(size)} event" for size in sizes), "ratio"],
        [row for row in rows if len(row) == 4],
        [at_most(f"one {_size(sizes[1])} event in 64 B reads over {_size(sizes[0])}", 2.3, large / small)],
    )


def _worst(what: str, limit: float, ratios: dict[str, float]) -> Bar:
    listed = ", ".join(f"{ratio:.2f} with reads of {label}" for label, ratio in ratios.items())
    return at_least(what, limit, min(ratios.values()), f" ({listed})")


def _cell(name: str, times: dict[str, float], unable: dict[str, str]) -> str:
    if name not in times:
        return unable[name]
    ratio = "" if name == OURS else f" ({times[name] / times[OURS]:.1f})"
    return milliseconds(times[name]) + ratio


def _call(parse: Parse, reads: Sequence[bytes]) -> Callable[[], object]:
    return lambda: parse(reads)


def _size(size: int) -> str:
    for unit, name in ((10**6, "MB"), (1000, "kB")):
        if size >= unit:
            return f"{size / unit:g} {name}"
    return f"{size} B"
