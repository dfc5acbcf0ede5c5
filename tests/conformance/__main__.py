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

`make conformance` wrote this page. It compares what this library and others make of the same bytes; the code is in
`tests/conformance`, and every row of ours is also a test.
"""
_EVENTS = """\
## Server-sent events

Every recorded stream: those of web-platform-tests (*wpt*), edge cases of the WHATWG text (*edge*), and streams from bug
reports of parsers and their users (*bug*). Each is fed whole, byte by byte, in two parts at every offset, and in 20
random ways; a stream of more than 4 KiB in pieces of 64 bytes and at a hundred offsets. *yes*: right in every one of
them; *no*: in none. Of ours everything is compared; of the others the data of the events, which is what all of them
hand out. Several of them do not claim to follow the norm to the letter, but to read what their own servers send.
"""
_STREAMS = """\
## SGLang streams

Every server that is known ([stream shapes](stream-shapes.md)), and the same generations from each: with chunks of one
and of several tokens, a slow reader, stop tokens, aborts while running and out of the queue, and a body that breaks
off; with text of every kind, U+2028 included. Asked for is what slime asks for: one output, with logprobs. *Right* is
every token and logprob that the server generated and sent; of a body that breaks off, all that came, and an error that
says so.

*ssefold* is told nothing about the server. The *rule of 2272* is what slime's pull request 2272 does, rewritten from
its description (`tests/conformance/rule_2272.py`), and told the mode that the server was started with: once on lines as
`aiter_lines` of httpx gives them, which is what slime reads, and once on lines that end at LF alone, where the rule
itself decides. A refused stream trains nothing wrong; a *wrong* one would.
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
        "Why the rule refuses, on lines that end at LF, by the first words of its error:\n",
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
