"""Hostile bodies, and how time grows when one is twice as long.

``python -m tests.benchmarks.growth_hostile WORDS`` measures those that have these words in their names.

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
from functools import partial

from ssefold import GenerateDecoder, StreamError
from tests.benchmarks.bodies import cut
from tests.benchmarks.report import Bar, Section, at_most, milliseconds, table
from tests.benchmarks.scale import FULL, READ, Scale
from tests.benchmarks.timing import Runs, race

_MOST = 2.3
"""Linear work, measured on a machine that has other things to do as well."""
_SECONDS_A_MB = 1.0
_LONG_ENOUGH = 0.25
"""Seconds that a body is folded in all, so that short ones get more rounds."""
_TEXT = """\
CPU ms for a body of so many parts, for one of twice as many, and their ratio: 2 is linear, 4 quadratic. Reads of 64
KiB. *s a MB* is of the larger body: what a server can cost its reader with one MB.
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


def measure(scale: Scale, asked: str = "") -> list[Section]:
    """Every shape at ``n`` and ``2n``; or those alone that have ``asked`` in their names."""
    rows: list[list[str]] = []
    ratios: dict[str, float] = {}
    costs: dict[str, float] = {}
    for shape in SHAPES:
        if asked not in shape.name:
            continue
        count = max(int(shape.parts * scale.main), 4)
        small, large = (cut(shape.body(many), READ) for many in (count, 2 * count))
        less, more = _seconds(small, large, scale)
        size = sum(map(len, large))
        ratios[shape.name] = more / less * 2 * sum(map(len, small)) / size
        costs[shape.name] = more / size * 1e6
        rows.append(
            [
                shape.name,
                f"{count:,}",
                milliseconds(less),
                milliseconds(more),
                f"{ratios[shape.name]:.2f}",
                f"{size / 1e6:.2f} MB",
                f"{costs[shape.name]:.3f}",
            ]
        )
    header = ["body", "n", "n", "2n", "ratio", "size of 2n", "s a MB"]
    worst, dearest = max(ratios, key=ratios.__getitem__), max(costs, key=costs.__getitem__)
    bars = [
        at_most(
            f"hostile bodies, the worst of {len(ratios)} ({worst}): time for twice the bytes", _MOST, ratios[worst]
        ),
        Bar(
            f"hostile bodies, the dearest of {len(costs)} ({dearest}): seconds a MB",
            f"at most {_SECONDS_A_MB:g} s",
            f"{costs[dearest]:.2f} s",
            costs[dearest] <= _SECONDS_A_MB,
        ),
    ]
    return [Section("Hostile bodies", _TEXT, header, rows, bars)]


def _seconds(small: Sequence[bytes], large: Sequence[bytes], scale: Scale) -> tuple[float, float]:
    """The smallest times of both; what takes little is measured more often."""
    runs: Runs = {"n": [], "2n": []}
    for _ in range(scale.rounds):
        for name, seconds in race({"n": _folding(small), "2n": _folding(large)}, scale.few_rounds).items():
            runs[name] += seconds
        if sum(runs["2n"]) > _LONG_ENOUGH:
            break
    return min(runs["n"]), min(runs["2n"])


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


# ---- bodies against a fast path that knows the last payload


def _many_keys(n: int) -> bytes:
    """One event; offsets in characters are none in bytes."""
    return _event(1, [1], text='"\u00e9"', meta="".join(f',"k{i}":1' for i in range(n)))


def _keys_in_every_chunk(n: int) -> bytes:
    keys = "".join(f',"k{i}":1' for i in range(n))
    return b"".join(_event(i, [i], text='"\u00e9"', meta=keys) for i in range(1, 13))


def _growing_lists(n: int) -> bytes:
    """``n`` lists of one entry a token, in few chunks."""
    return b"".join(
        _event(i, list(range(i)), meta="".join(f',"k{at}":[{",".join("1" * i)}]' for at in range(n)))
        for i in range(1, 13)
    )


def _lists_of_deltas(n: int) -> bytes:
    return b"".join(_event(i, [i], meta="".join(f',"k{at}":[1]' for at in range(n))) for i in range(1, 13))


def _rows_stop(n: int, *, counted: bool) -> bytes:
    """One row, very many ids without, and then chunks with an empty list of rows."""
    known = 125 * n + 1
    first = _event(1, [5], meta=',"output_token_logprobs":[[-0.5,5,null]]')
    length = ',"output_token_logprobs_length":1' if counted else ""
    rest = _event(known if counted else None, [], text='""', meta=f',"output_token_logprobs":[]{length}')
    return first + _event(known, [5] * (known - 1)) + rest * n


def _names_then_snapshots(n: int) -> bytes:
    """Many lists once, and then cumulative chunks, each of which could still have them."""
    first = _event(2000, [5] * 2000, meta="".join(f',"k{i}":[1]' for i in range(80 * n)))
    return first + b"".join(_event(2000 + i, [5] * (2000 + i)) for i in range(1, n + 1))


def _two_forms(n: int) -> bytes:
    return b"".join(_event(i, [i], meta=',"a":1' if i % 2 else ',"b":"x","c":null') for i in range(1, n + 1))


def _two_long_forms(n: int) -> bytes:
    """A chunk says 10 kB that are known, in one of two forms."""
    known = [5] * 5000
    return b"".join(_event(5000 + i, known + [5] * i, meta=',"a":1' if i % 2 else "") for i in range(1, n + 1))


def _reordered(n: int) -> bytes:
    keys = [f',"k{i}":{i}' for i in range(9)]
    return b"".join(_event(i, [i], meta="".join(keys[i % 9 :] + keys[: i % 9])) for i in range(1, n + 1))


_PIECE = '\\",\\"output_ids\\":['


def _pieces_in_text(n: int) -> bytes:
    return b"".join(_event(i, [i], text=f'"{_PIECE * (i % 40)}"') for i in range(1, n + 1))


def _pieces_in_long_text(n: int) -> bytes:
    """Cumulative text of what stands behind it, escaped; and a piece that is nearly there, again and again."""
    base = _PIECE * 500 + '],\\"meta_info\\":{' * 500
    return b"".join(_event(i, list(range(i)), text=f'"{base}{_PIECE * i}"') for i in range(1, n + 1))


def _long_text(n: int) -> bytes:
    return b"".join(_event(i, list(range(i)), text=f'"{"y" * 50_000}{"z" * i}"') for i in range(1, n + 1))


def _long_constant(n: int) -> bytes:
    return b"".join(_event(i, [i], meta=f',"x":"{"y" * 50_000}"') for i in range(1, n + 1))


def _late_difference(n: int) -> bytes:
    """A long constant that differs at its end in every chunk."""
    return b"".join(_event(i, [i], meta=f',"x":"{"y" * 20_000}{i % 7}"') for i in range(1, n + 1))


def _tail_changes(n: int) -> bytes:
    """A cumulative text that ends in half a character, which the next chunk makes whole."""
    return b"".join(_event(i, list(range(i)), text=f'"{"y" * 20_000}{"z" * i}\ufffd"') for i in range(1, n + 1))


def _empty_lists(n: int) -> bytes:
    return b"".join(_event(i, [i], meta=',"k":[[]],"l":[[],[]],"m":[]') for i in range(1, n + 1))


def _growing_empty_lists(n: int) -> bytes:
    base = ",".join(["[]"] * 3000)
    return b"".join(_event(3000 + i, [5] * (3000 + i), meta=f',"k":[{base}{",[]" * i}]') for i in range(1, n + 1))


def _changing_scalars(n: int) -> bytes:
    """``n`` numbers, all of which change in every chunk."""
    return b"".join(_event(i, [i], meta="".join(f',"k{at}":{i * at}' for at in range(n))) for i in range(1, 17))


def _scalars_often(n: int) -> bytes:
    return b"".join(_event(i, [i], meta="".join(f',"k{at}":{i * at}' for at in range(60))) for i in range(1, n + 1))


def _scalar_of_any_length(n: int) -> bytes:
    return b"".join(
        _event(i, [i], meta=f',"x":1{"7" * (i * 7 % 60)},"y":0.{"3" * (i * 11 % 60)}1') for i in range(1, n + 1)
    )


def _scalar_of_any_type(n: int) -> bytes:
    values = ("1", "null", '"x"', "true", "[1]", "{}", "1.5e3")
    return b"".join(_event(i, [i], meta=f',"x":{values[i % 7]}') for i in range(1, n + 1))


def _outputs_in_turn(n: int) -> bytes:
    return b"".join(_event(turn, [turn], top=f',"index":{at}') for turn in range(1, 5) for at in range(n))


def _spaced(n: int) -> bytes:
    """JSON that is no template: spaces that come and go."""
    return b"".join(_event(i, [i], meta=f',"x":{" " * (i % 5)}1') for i in range(1, n + 1))


def _lists_without_their_end(n: int) -> bytes:
    """Lists full of brackets, each of which could be the end of one; and then a chunk without what comes after them."""
    lists = "".join(f',"k{at}":[[{",".join(["[0]"] * n)}]]' for at in range(4))
    known = (_event(i, [i], meta=f'{lists},"z":"{"y" * 900}"') for i in range(1, 6))
    return b"".join(known) + _event(6, [6], text=f'"{"x" * 1000}"', meta=lists)


def _two_lines(n: int) -> bytes:
    return b"".join(_event(i, [i]).replace(b',"meta_info"', b',\ndata: "meta_info"') for i in range(1, n + 1))


def _doubled_keys(n: int) -> bytes:
    return b"".join(_event(i, [i], meta=f',"x":1,"x":{i}') for i in range(1, n + 1))


SHAPES = (
    Shape("tiny events with a token", 5, _tokens),
    Shape("events without data", 25, lambda n: b"event: x\n\n" * n),
    Shape("comment lines", 25, lambda n: b": x\n" * n),
    Shape("empty lines", 100, lambda n: b"\n" * n),
    Shape("lines without a field", 25, lambda n: b"x\n" * n),
    Shape("data lines of one event", 25, lambda n: b"data: [\n" * n),
    Shape("one line that has no end", 500, lambda n: b"data: " + b"x" * n),
    Shape("one field that is unknown", 500, lambda n: b"x" * n),
    Shape("indexes", 3, _indexes),
    Shape("indexes of failures", 6, _failed_indexes),
    Shape("one JSON of great depth", 25, _deep),
    Shape("JSON of 90 levels a chunk", 1, _deep_often),
    Shape("one number of many digits", 100, _digits),
    Shape("numbers of 1,000 digits", 1, _fractions),
    Shape("one text of escapes", 12.5, _escapes),
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
    Shape("one event of many keys and an \u00e9", 4, _many_keys),
    Shape("many keys in every chunk", 1, _keys_in_every_chunk),
    Shape("many lists that grow", 0.25, _growing_lists),
    Shape("many lists of deltas", 0.5, _lists_of_deltas),
    Shape("rows that stop", 1, partial(_rows_stop, counted=False)),
    Shape("rows that stop, counters that go on", 1, partial(_rows_stop, counted=True)),
    Shape("many list names, then snapshots", 1 / 16, _names_then_snapshots),
    Shape("two forms in turn", 2, _two_forms),
    Shape("two long forms in turn", 0.05, _two_long_forms),
    Shape("keys in another order each time", 2, _reordered),
    Shape("text of escaped keys", 1, _pieces_in_text),
    Shape("long text of escaped keys", 0.02, _pieces_in_long_text),
    Shape("long text, one token a chunk", 0.02, _long_text),
    Shape("a long constant", 0.02, _long_constant),
    Shape("a long constant that differs at its end", 0.05, _late_difference),
    Shape("a long text that differs at its end", 0.05, _tail_changes),
    Shape("lists of empty lists", 2, _empty_lists),
    Shape("lists of empty lists that grow", 0.05, _growing_empty_lists),
    Shape("many numbers that change", 1, _changing_scalars),
    Shape("60 numbers that change, often", 0.25, _scalars_often),
    Shape("a number of another length each time", 2, _scalar_of_any_length),
    Shape("a value of another type each time", 2, _scalar_of_any_type),
    Shape("outputs in turn", 1.25, _outputs_in_turn),
    Shape("lists of brackets without their end", 0.25, _lists_without_their_end),
    Shape("spaces that come and go", 2, _spaced),
    Shape("events of two data lines", 2, _two_lines),
    Shape("keys that are there twice", 2, _doubled_keys),
)


def main(scale: Scale = FULL, asked: str = "") -> None:
    """Print the table."""
    for section in measure(scale, asked):
        sys.stdout.write(table(section.header, section.rows))


if __name__ == "__main__":
    main(asked=" ".join(sys.argv[1:]))
