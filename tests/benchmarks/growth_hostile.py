"""Hostile bodies, and how time grows when one is twice as long: ``python -m tests.benchmarks.growth_hostile``.

Each shape is what a server could send to make work out of few bytes.  A body of ``n`` parts and one of ``2n`` are
folded in turn; their ratio is 2 where the work is linear, and 4 where it is quadratic.  What a shape is refused with
does not matter here (``tests/core`` and ``tests/transports`` say it): refusing must be linear, too.
"""

from __future__ import annotations

import json
import sys
from array import array
from base64 import b64encode
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from ssefold import GenerateDecoder, StreamError
from tests.benchmarks.bodies import cut
from tests.benchmarks.report import Section, at_most, milliseconds, table
from tests.benchmarks.scale import FULL, READ, Scale
from tests.benchmarks.timing import median, race

_MOST = 2.5
"""Linear work, measured on a machine that has other things to do as well."""
_TEXT = """\
ms for a body of so many parts, for one of twice as many, and their ratio: 2 is linear, 4 quadratic. Reads of 64 KiB.
*per byte* is of the larger body, to be seen beside each other: what is dear there is dear, but no more than so much a
byte.
"""


@dataclass(frozen=True)
class Shape:
    """One way of wasting somebody's time.

    :ivar parts: how many, in terms of the scale's ``main``.
    :ivar body: the body of so many parts.
    """

    name: str
    parts: float
    body: Callable[[int], bytes]


def measure(scale: Scale) -> list[Section]:
    """Every shape at ``n`` and ``2n``."""
    rows: list[list[str]] = []
    ratios: dict[str, float] = {}
    for shape in SHAPES:
        count = max(int(shape.parts * scale.main), 4)
        bodies = [cut(shape.body(many), READ) for many in (count, 2 * count)]
        runs = race({"n": _folding(bodies[0]), "2n": _folding(bodies[1])}, scale.few_rounds)
        small, large = (median(runs[name]) for name in ("n", "2n"))
        size = sum(map(len, bodies[1]))
        ratios[shape.name] = large / small if small else 2.0
        rows.append(
            [
                shape.name,
                f"{count:,}",
                milliseconds(small),
                milliseconds(large),
                f"{ratios[shape.name]:.2f}",
                f"{size / 1e6:.2f} MB",
                f"{large / size * 1e9:.1f} ns",
            ]
        )
    header = ["body", "n", "n", "2n", "ratio", "size of 2n", "per byte"]
    worst = max(ratios, key=ratios.__getitem__)
    bar = at_most(f"hostile bodies, the worst of {len(ratios)} ({worst}): 2n over n", _MOST, ratios[worst])
    return [Section("Hostile bodies", _TEXT, header, rows, [bar])]


def _folding(reads: Sequence[bytes]) -> Callable[[], object]:
    def fold() -> GenerateDecoder:
        decoder = GenerateDecoder()
        try:
            for data in reads:
                decoder.feed(data)
            decoder.close()
        except StreamError:
            pass
        return decoder

    return fold


# ---- bodies ---------------------------------------------------------------------------------------------------------


def _event(
    count: int | None = None, ids: list[int] | None = None, *, text: str | None = '"x"', meta: str = "", top: str = ""
) -> bytes:
    """A chunk; ``text`` as JSON."""
    said = [] if text is None else [f'"text":{text}']
    said += [] if ids is None else [f'"output_ids":{json.dumps(ids, separators=(",", ":"))}']
    counter = "" if count is None else f',"completion_tokens":{count}'
    said.append(f'"meta_info":{{"id":"r","finish_reason":null,"prompt_tokens":1{counter}{meta}}}')
    return f"data: {{{','.join(said)}{top}}}\n\n".encode()


def _int32(values: list[int]) -> str:
    return b64encode(array("i", values).tobytes()).decode()


def _tokens(n: int) -> bytes:
    return b"".join(_event(i, [i]) for i in range(1, n + 1))


def _indexes(n: int) -> bytes:
    return b"".join(_event(1, [1], top=f',"index":{i}') for i in range(n))


def _failed_indexes(n: int) -> bytes:
    return b"".join(b'data: {"error":"x","index":%d}\n\n' % i for i in range(n))


def _deep(n: int) -> bytes:
    return _event(1, [1], meta=',"x":' + "[" * n + "]" * n)


def _deep_often(n: int) -> bytes:
    return b"".join(_event(i, [i], meta=',"x":' + "[" * 90 + "]" * 90) for i in range(1, n + 1))


def _digits(n: int) -> bytes:
    return _event(1, [1], meta=',"x":' + "7" * n)


def _fractions(n: int) -> bytes:
    return b"".join(_event(i, [i], meta=',"x":0.' + "7" * 1000) for i in range(1, n + 1))


def _escapes(n: int) -> bytes:
    return _event(1, [1], text='"' + "\\u00e9\\n\\\\" * n + '"')


def _escaped_deltas(n: int) -> bytes:
    return b"".join(_event(i, [i], text='"\\"\\\\\\u0041\\ud83d\\ude00"') for i in range(1, n + 1))


def _escaped_snapshots(n: int) -> bytes:
    """One chunk adds a hundred escapes to all before it: the size of a body is quadratic in ``n``, hence the root."""
    many = max(int((2 * n) ** 0.5), 2)
    return b"".join(_event(i, list(range(i)), text='"' + '\\"\\\\' * 100 * i + '"') for i in range(1, many + 1))


def _keys(n: int) -> bytes:
    return b"".join(_event(i, [i], meta=f',"k{i}":1') for i in range(1, n + 1))


def _lists(n: int) -> bytes:
    """Many lists in the first chunk, all of which could be one entry a token, and then many chunks."""
    first = _event(1, [1], meta="".join(f',"k{i}":[1]' for i in range(n)))
    return first + b"".join(_event(i, [i]) for i in range(2, n))


def _top_p(n: int) -> bytes:
    row = f',"top_p_token_ids":"{_int32([1] * 20)}","top_p_token_offsets":"{_int32([0, 20])}"'
    return b"".join(_event(i, [i], meta=row) for i in range(1, n + 1))


def _routed(n: int) -> bytes:
    return b"".join(_event(i, [i], meta=f',"routed_experts":"{_int32([1] * 100)}"') for i in range(1, n + 1))


def _late_rows(n: int) -> bytes:
    """All ids at once, and then a logprob row a chunk."""
    rows = (f',"output_token_logprobs":[[-0.5,5,null]],"output_token_logprobs_length":{i}' for i in range(1, n + 1))
    return _event(n, [5] * n) + b"".join(_event(n, text='""', meta=row) for row in rows)


def _text_alone(n: int) -> bytes:
    return b"".join(_event(text=f'"{i}{"y" * 1000}"') for i in range(n))


def _text_to_and_fro(n: int) -> bytes:
    return b"".join(_event(text='"z"' if i % 2 else f'"{"y" * 500}"') for i in range(n))


def _uncounted(n: int) -> bytes:
    return b"".join(_event(ids=[i]) for i in range(n))


def _nothing_new(n: int) -> bytes:
    return _event(n, [5] * n) + _event(n, [5], text='""') * n


SHAPES = (
    Shape("tiny events with a token", 5, _tokens),
    Shape("events without data", 25, lambda n: b"event: x\n\n" * n),
    Shape("comment lines", 25, lambda n: b": x\n" * n),
    Shape("empty lines", 100, lambda n: b"\n" * n),
    Shape("lines without a field", 25, lambda n: b"x\n" * n),
    Shape("data lines of one event", 25, lambda n: b"data: [\n" * n),
    Shape("one line that has no end", 2000, lambda n: b"data: " + b"x" * n),
    Shape("one field that is unknown", 2000, lambda n: b"x" * n),
    Shape("indexes", 12.5, _indexes),
    Shape("indexes of failures", 12.5, _failed_indexes),
    Shape("one JSON of great depth", 100, _deep),
    Shape("JSON of 90 levels a chunk", 1, _deep_often),
    Shape("one number of many digits", 500, _digits),
    Shape("numbers of 1,000 digits", 1, _fractions),
    Shape("one text of escapes", 50, _escapes),
    Shape("deltas of escapes", 5, _escaped_deltas),
    Shape("snapshots of escapes", 5, _escaped_snapshots),
    Shape("a new key a chunk", 2.5, _keys),
    Shape("many lists, then chunks", 1, _lists),
    Shape("top-p rows with every chunk", 1, _top_p),
    Shape("routed experts with every chunk", 1, _routed),
    Shape("logprob rows that come late", 0.5, _late_rows),
    Shape("text alone, in kilobytes", 0.25, _text_alone),
    Shape("text that is taken back", 0.5, _text_to_and_fro),
    Shape("ids without counters", 5, _uncounted),
    Shape("chunks that say nothing new", 1, _nothing_new),
)


def main(scale: Scale = FULL) -> None:
    """Print the table."""
    for section in measure(scale):
        sys.stdout.write(table(section.header, section.rows))


if __name__ == "__main__":
    main()
