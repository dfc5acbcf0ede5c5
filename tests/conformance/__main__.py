"""``python -m tests.conformance``, which ``make conformance`` calls: compare, print the totals, write the page."""

from __future__ import annotations

import logging
import platform
import sys
import warnings
from collections.abc import Sequence
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from ssefold.transports.testing import PROFILES
from tests.benchmarks.peers import PEERS
from tests.benchmarks.report import table
from tests.conformance import events, streams

PAGE = Path(__file__).resolve().parents[2] / "docs" / "conformance.md"
_INTRO = """\
# Conformance

`make conformance` writes this page. It compares how ssefold and other readers handle the same bytes. The code is in
`tests/conformance`; every row is also a test of ssefold.
"""
_EVENTS = """\
## Server-sent events

Each row is one recorded stream: from web-platform-tests (*wpt*), an edge case of the WHATWG standard (*edge*), or
from a bug report about some parser (*bug*). Each parser reads it whole, byte by byte, cut in two at every offset, and
in 20 random cuts. A stream of more than 4 KiB is cut into pieces of 64 bytes, and in two at a hundred offsets. *yes*:
right for every cut; *no*: for no cut. For ssefold everything is compared; for the others only the data of the events,
which all of them give. Several of them do not claim to follow the whole standard, but to read what their own servers
send.
"""
_STREAMS = """\
## SGLang streams

Each row is one server from [stream shapes](stream-shapes.md). Every server streams the same answers: with chunks of
one and of several tokens, a slow reader, stop tokens, aborts of running and of queued requests, and a truncated body;
with text of every kind, U+2028 included. The requests are those of slime: one output, with logprobs. *Right* means
every token and logprob that the server sent; for a truncated body, also an error that reports it.

*ssefold* gets no information about the server. The *rule of 2272* is what slime's pull request 2272 does, written
anew from its description (`tests/conformance/rule_2272.py`). It gets the server's streaming mode as a parameter. It
reads lines in two ways: as `aiter_lines` of httpx yields them, as slime does, and with LF as the only line end, to
test the rule alone. A refused stream puts nothing wrong into a training batch; a *wrong* one would.
"""
_READERS = (("ssefold", "ours"), ("rule of 2272", "rule"), ("rule of 2272, lines at LF", "rule_at_lf"))


def main(path: Path = PAGE, peers: Sequence[str] = PEERS, rows: int | None = None, profiles: int | None = None) -> int:
    """Write the page; 1 if something of ours is not right.

    :param rows: so many rows and no more; :param profiles: likewise.
    """
    with warnings.catch_warnings():
        # What the others complain of while they read is not the report's matter.
        warnings.simplefilter("ignore")
        logging.disable()
        try:
            found = events.table_of(events.rows()[:rows], peers)
        finally:
            logging.disable(logging.NOTSET)
    shapes = streams.rows(tuple(PROFILES)[:profiles])
    columns = [events.OURS, *peers]
    totals = [[name, _version(name), _total([line[2 + at] for line in found])] for at, name in enumerate(columns)]
    sums = table(
        ["over all servers", *streams.VERDICTS],
        [[name, *streams.totals([getattr(row, name_of) for row in shapes])] for name, name_of in _READERS],
    )
    parts = [
        _INTRO,
        f"Python {platform.python_version()}.\n",
        _EVENTS,
        table(["parser", "version", "right in every cut"], totals),
        table(["source", "row", *columns], [[*map(_plain, line)] for line in found]),
        _STREAMS,
        sums,
        table(
            ["server", *(name for name, _ in _READERS)],
            [[row.profile, *(streams.summary(getattr(row, name_of)) for _, name_of in _READERS)] for row in shapes],
        ),
        "Why the rule refuses streams (with LF as the only line end), by the start of its error message:\n",
        table(["error", "streams"], _reasons(shapes)),
    ]
    path.write_text("\n".join(parts), "utf-8")
    sys.stdout.write(table(["parser", "version", "right in every cut"], totals) + "\n" + sums)
    all_right = all(line[2] == "yes" for line in found) and not any(
        one.verdict == "wrong" for row in shapes for one in row.ours.values()
    )
    return 0 if all_right else 1


def _total(cells: Sequence[str]) -> str:
    return events.NOT_INSTALLED if events.NOT_INSTALLED in cells else f"{cells.count('yes')} of {len(cells)}"


def _reasons(shapes: Sequence[streams.Row]) -> list[list[str]]:
    counts: dict[str, int] = {}
    for row in shapes:
        for one in row.rule_at_lf.values():
            if one.verdict == "refused":
                words = one.why.partition(":")[0]
                counts[words] = counts.get(words, 0) + 1
    return [[words, str(count)] for words, count in sorted(counts.items(), key=lambda item: -item[1])]


def _plain(cell: str) -> str:
    return cell.replace("|", "\\|")


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return events.NOT_INSTALLED


if __name__ == "__main__":
    sys.exit(main())
