"""Server-sent events alone: our parser and the published ones over the same reads."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from tests.benchmarks.bodies import cut, events_of_size
from tests.benchmarks.peers import OURS, OURS_AS_TEXT, PEERS, Parse, ours, ours_as_text, parser_of
from tests.benchmarks.report import Bar, Section, at_least, at_most, milliseconds
from tests.benchmarks.scale import READ, Scale
from tests.benchmarks.timing import race

_READS: dict[str, int | None] = {"1,460 B": 1460, "64 KiB": READ, "an event": None}
_SMALL_READ = 64
_LEAST = 1.7
"""In terms of the fastest peer, in every size of reads."""
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
        except Exception as error:  # noqa: BLE001  # whatever ends a peer is its result
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
        for label, read in _READS.items():
            reads = events if read is None else cut(b"".join(events), read)
            able, unable = parsers(events, reads)
            runs = race({name: _call(parse, reads) for name, parse in able.items()}, scale.rounds)
            times = {name: min(seconds) for name, seconds in runs.items()}
            peers = {name: time / times[OURS] for name, time in times.items() if name in PEERS}
            rows.append([f"{_size(size)} events", label, *(_cell(name, times, unable) for name in columns)])
            if peers:
                fastest[label] = min(peers.values())
        if fastest:
            bars.append(_worst(f"SSE {_size(size)} events: fastest peer / ours", _LEAST, fastest))
    totals = ", ".join(f"{total / 1e6:g} MB of {_size(size)} events" for size, total in scale.event_sizes)
    return Section("Server-sent events alone", _TEXT.format(totals=totals), ["corpus", "read", *columns], rows, bars)


def _small_reads(scale: Scale) -> Section:
    half, whole = (_one_event(size, scale.few_rounds) for size in (scale.split_event, 2 * scale.split_event))
    rows: list[list[str]] = []
    for name in [OURS, OURS_AS_TEXT, *PEERS]:
        small, large = half[name], whole[name]
        ratio = f"{large / small:.2f}" if isinstance(large, float) and isinstance(small, float) else "-"
        shown = [milliseconds(one) if isinstance(one, float) else str(one) for one in (small, large)]
        rows.append([name, *shown, ratio])
    sizes = _size(scale.split_event), _size(2 * scale.split_event)
    growth = float(rows[0][-1])
    return Section(
        f"One event in reads of {_SMALL_READ} bytes",
        "ms for an event, for one of twice the size, and their ratio: 2 is linear, 4 quadratic.",
        ["parser", *(f"{size} event" for size in sizes), "ratio"],
        rows,
        [at_most(f"one {sizes[1]} event in {_SMALL_READ} B reads over {sizes[0]}", 2.3, growth)],
    )


def _one_event(size: int, rounds: int) -> dict[str, float | str]:
    """Seconds for one event in small reads, or the reason why there are none, by parser."""
    events = events_of_size(size, size)
    reads = cut(events[0], _SMALL_READ)
    able, unable = parsers(events, reads)
    runs = race({name: _call(parse, reads) for name, parse in able.items()}, rounds)
    return {**{name: min(seconds) for name, seconds in runs.items()}, **unable}


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
