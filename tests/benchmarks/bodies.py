"""Bodies to measure with: what SGLang writes for one answer, in the forms that workers see and at any interval.

Keys, their order and the form of numbers are those of the recorded bodies in ``tests/data/captures`` (orjson's output;
float32 logprobs printed as doubles); ids, texts and logprobs are drawn with a seed.  A body may be larger than memory,
so it is made and handed out block by block.  This module must not know who reads the bodies, nor any clock.
"""

from __future__ import annotations

import json
import random
import struct
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from decimal import Decimal
from math import exp, log
from typing import Literal

SEED = 20_000
DONE = b"data: [DONE]\n\n"
BLOCK = 2**20
"""Bytes that are made at a time: they are still in the cache when they are read."""

_VOCABULARY = 151_643
_WORDS = [
    "the", "of", "and", "to", "in", "is", "that", "we", "so", "if", "then", "let", "for", "x", "y", "can", "be", "have",
    "this", "value", "number", "equation", "sum", "first", "both", "sides", "substitute", "therefore", "check",
    "positive", "integer", "answer", "solve", "function", "return", "which", "gives", "simplify",
    "factor", "root", "case",
]  # fmt: skip
# What model output has beside words: code, math, lists, line ends, and characters beyond ASCII.
_MARKS = (
    ".",
    ",",
    " (",
    ")",
    " =",
    " +",
    "\n",
    "\n\n",
    ":",
    " 1",
    "2",
    "0",
    ' "',
    '"',
    "\\",
    " \u2013",
    " \u00e9t\u00e9",
    " \u2264",
    "s",
)


Lane = Literal["delta", "whole"] | None


@dataclass(frozen=True)
class Form:
    """What a chunk holds, and which parts of it are deltas.

    :ivar text, ids, rows: "delta", "whole" (everything so far), or None where the server sends none.
    :ivar top: alternatives of each token (``top_logprobs_num``), whose lane is that of the rows.
    :ivar version: 0.5.23, 0.5.10 or 0.5.5: which keys ``meta_info`` has.
    :ivar stamped: every chunk holds a time stamp, as a gateway adds it.
    """

    text: Lane
    ids: Lane
    rows: Lane
    top: int = 0
    version: str = "0.5.23"
    stamped: bool = False


CUMULATIVE = Form("whole", "whole", "whole")
INCREMENTAL = Form("delta", "delta", "delta")
MIXED_0_5_5 = Form("whole", "delta", "whole", version="0.5.5")
"""What 0.5.5 sends by default."""
MIXED_0_5_10 = Form("delta", "delta", "whole", version="0.5.10")
"""What 0.5.10 sends with ``--incremental-streaming-output``."""


@dataclass(frozen=True)
class Answer:
    """What a model generated: ``ids``, ``logprobs`` (float32 values) and ``pieces`` of text, one each per token."""

    ids: tuple[int, ...]
    logprobs: tuple[float, ...]
    pieces: tuple[str, ...]

    @property
    def text(self) -> str:
        return "".join(self.pieces)


def make_answer(tokens: int, *, seed: int = SEED) -> Answer:
    """An answer of ``tokens`` tokens, always the same for the same ``seed``.

    Half of the tokens are nearly sure, as in sampled text; ids are spread over a vocabulary as large as Qwen's.
    """
    draw = random.Random(seed)
    ids = tuple(draw.randrange(_VOCABULARY) for _ in range(tokens))
    logprobs = tuple(_float32(_logprob(draw)) for _ in range(tokens))
    pieces = tuple(draw.choice(_MARKS) if draw.random() < 0.25 else " " + draw.choice(_WORDS) for _ in range(tokens))
    return Answer(ids, logprobs, pieces)


def counts_of(tokens: int, interval: int) -> list[int]:
    """Tokens known at each event: the first token at once, then every ``interval`` tokens, then the end."""
    return [*range(1, tokens, interval), tokens]


def events(
    answer: Answer,
    counts: Sequence[int],
    *,
    incremental: bool = False,
    form: Form | None = None,
    index: int | None = None,
    routed_experts: str | None = None,
) -> Iterator[bytes]:
    """The data events of one output, the terminal one last; ``index`` only for requests with several outputs.

    ``incremental`` chooses between the two usual forms where no ``form`` is given.
    """
    form = form or (INCREMENTAL if incremental else CUMULATIVE)
    ids = [b"%d" % token_id for token_id in answer.ids]
    rows = [b"[%s,%s,null]" % (number(p), token_id) for p, token_id in zip(answer.logprobs, ids, strict=True)]
    lanes = [
        _Lane(form.text, b"", [_inside(json.dumps(piece, ensure_ascii=False).encode()) for piece in answer.pieces]),
        _Lane(form.ids, b",", ids),
        _Lane(form.rows, b",", rows),
        _Lane(form.rows if form.top else None, b",", _alternatives(rows, form.top)),
    ]
    rid = b"%032x" % random.Random(len(ids) * 64 + (index or 0)).getrandbits(128)
    newest = form.version == "0.5.23"
    recent = form.version != "0.5.5"
    retractions = b"num_retractions" if newest else b"total_retractions"
    at = 0
    for place, count in enumerate(counts):
        last = count == len(ids)
        text, known_ids, known_rows, alternatives = [lane.part(at, count) for lane in lanes]
        reason = b'{"type":"length","length":%d}' % count if last else b"null"
        event: list[bytes | bytearray] = [b"data: {"]
        if form.text is not None:
            event += [b'"text":"', text, b'",']
        event += [b'"output_ids":[', known_ids, b'],"meta_info":{"id":"', rid, b'","finish_reason":', reason]
        event += [b',"prompt_tokens":212,"weight_version":"default","', retractions, b'":0']
        if form.rows is not None:
            event += [b',"input_token_logprobs":[],"output_token_logprobs":[', known_rows, b"]"]
            if recent:
                event.append(b',"output_token_logprobs_length":%d' % count)
            if form.top:
                event += [b',"input_top_logprobs":[],"output_top_logprobs":[', alternatives, b"]"]
        if recent:
            event.append(b',"reasoning_tokens":0')
        event.append(b',"completion_tokens":%d,"cached_tokens":0' % count)
        if last and newest:
            event.append(b',"weight_versions":[{"version":"default","start":0,"end":%d}]' % count)
        if recent:
            event.append(b',"cached_tokens_details":null')
            if last and routed_experts is not None:
                event.append(b',"routed_experts":"%s"' % routed_experts.encode())
            event.append(b',"dp_rank":null')
        if last:
            event.append(b',"e2e_latency":%s' % number(0.03125 * count))
        if form.stamped or place == 0:
            stamp = b"response_sent_to_client_ts" if recent else b"response_sent_ts"
            event.append(b',"%s":%s' % (stamp, number(1796022272.171598 + 0.015625 * place)))
        event.append(b"}}\n\n" if index is None else b'},"index":%d}\n\n' % index)
        yield b"".join(event)
        at = count


class _Lane:
    """The entries of one lane as JSON, and what a chunk says of them."""

    def __init__(self, kind: Lane, comma: bytes, entries: Sequence[bytes]) -> None:
        self._kind = kind
        self._comma = comma
        self._entries = entries
        self._known = bytearray()

    def part(self, start: int, stop: int) -> bytes | bytearray:
        """What stands in the chunk that brings the entries from ``start`` to ``stop``."""
        if self._kind is None:
            return b""
        new = self._comma.join(self._entries[start:stop])
        if self._kind == "delta":
            return new
        if self._known and new:
            self._known += self._comma
        self._known += new
        return self._known


def _alternatives(rows: Sequence[bytes], top: int) -> list[bytes]:
    """For each token its own row, and then others, which are rows of other tokens."""
    return [b"[%s]" % b",".join(rows[(at + 7 * more) % len(rows)] for more in range(top)) for at in range(len(rows))]


def body_of(
    answer: Answer, *, interval: int = 1, form: Form = CUMULATIVE, routed_experts: str | None = None
) -> Iterator[bytes]:
    """The events of a whole response with one output, ``[DONE]`` included."""
    yield from events(answer, counts_of(len(answer.ids), interval), form=form, routed_experts=routed_experts)
    yield DONE


def interleaved(answers: Sequence[Answer], *, interval: int = 1, form: Form = CUMULATIVE) -> Iterator[bytes]:
    """The events of a response with ``n`` outputs of equal length, which take turns."""
    counts = counts_of(len(answers[0].ids), interval)
    outputs = [events(one, counts, form=form, index=at) for at, one in enumerate(answers)]
    for turn in zip(*outputs, strict=True):
        yield from turn
    yield DONE


def blocks(parts: Iterable[bytes], size: int | None, block: int = BLOCK) -> Iterator[list[bytes]]:
    """The same bytes as reads of ``size`` bytes each (None: one event a read), in lists of about ``block`` bytes."""
    pending: list[bytes] = []
    held = 0
    for part in parts:
        pending.append(part)
        held += len(part)
        if held >= block:
            if size is None:
                yield pending
                pending, held = [], 0
                continue
            joined = b"".join(pending)
            whole = len(joined) - len(joined) % size
            yield cut(joined[:whole], size)
            pending, held = [joined[whole:]], len(joined) - whole
    if size is None:
        yield pending
    else:
        yield cut(b"".join(pending), size)


def cut(body: bytes, size: int) -> list[bytes]:
    """``body`` as reads of ``size`` bytes, the last one shorter."""
    return [body[at : at + size] for at in range(0, len(body), size)]


def events_of_size(size: int, total: int) -> list[bytes]:
    """Events of exactly ``size`` bytes each, ``total`` bytes in all (at least one event).

    They are chunks of a rollout at that length; where the size is too small for logprobs, they do without.
    """
    tokens = (size - _FRAME) // _PER_TOKEN
    event = _SMALL_EVENT
    if tokens > 0:
        event = next(events(make_answer(tokens), [tokens]))
    # What is missing to the size is more text.
    return [_HEAD + b"." * (size - len(event)) + event[len(_HEAD) :]] * max(total // size, 1)


_FRAME = 600
_PER_TOKEN = 48
_SMALL_EVENT = (
    b'data: {"text":" therefore","output_ids":[55012],"meta_info":{"id":"0123456789abcdef0123456789abcdef",'
    b'"finish_reason":null,"prompt_tokens":212,"weight_version":"default","completion_tokens":812}}\n\n'
)
_HEAD = b'data: {"text":"'


def number(value: float) -> bytes:
    """A float as orjson writes it: as Python does, but with an exponent only below 1e-5, and no zero in front of it."""
    written = repr(value)
    if "e-05" in written:
        written = f"{Decimal(written):f}"
    return written.replace("e-0", "e-").encode()


def _float32(value: float) -> float:
    return float(struct.unpack("f", struct.pack("f", value))[0])


def _logprob(draw: random.Random) -> float:
    if draw.random() < 0.5:
        return -exp(draw.uniform(log(1e-6), log(0.1)))
    return log(1.0 - draw.random())


def _inside(quoted: bytes) -> bytes:
    return quoted[1:-1]
