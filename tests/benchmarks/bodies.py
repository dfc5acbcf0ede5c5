"""Bodies to measure with: what SGLang 0.5.23 writes for one answer, in both modes and at any interval.

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
    incremental: bool,
    index: int | None = None,
    routed_experts: str | None = None,
) -> Iterator[bytes]:
    """The data events of one output, the terminal one last; ``index`` only for requests with several outputs."""
    text = [_inside(json.dumps(piece, ensure_ascii=False).encode()) for piece in answer.pieces]
    ids = [b"%d" % token_id for token_id in answer.ids]
    rows = [b"[%s,%s,null]" % (number(p), token_id) for p, token_id in zip(answer.logprobs, ids, strict=True)]
    known = [bytearray(), bytearray(), bytearray()]
    rid = b"%032x" % random.Random(len(ids) * 64 + (index or 0)).getrandbits(128)
    at = 0
    for place, count in enumerate(counts):
        new = b"".join(text[at:count]), b",".join(ids[at:count]), b",".join(rows[at:count])
        if incremental:
            parts: Sequence[bytes | bytearray] = new
        else:
            for part, more in zip(known, new, strict=True):
                if part and more and part is not known[0]:
                    part.extend(b",")
                part.extend(more)
            parts = known
        last = count == len(ids)
        tail = b""
        if last and routed_experts is not None:
            tail += b',"routed_experts":"%s"' % routed_experts.encode()
        tail += b',"dp_rank":null'
        if last:
            tail += b',"e2e_latency":%s' % number(0.03125 * count)
        if place == 0:
            tail += b',"response_sent_to_client_ts":1796022272.171598'
        yield b"".join(
            [
                b'data: {"text":"', parts[0], b'","output_ids":[', parts[1], b'],"meta_info":{"id":"', rid,
                b'","finish_reason":', b'{"type":"length","length":%d}' % count if last else b"null",
                b',"prompt_tokens":212,"weight_version":"default","num_retractions":0,"input_token_logprobs":[]',
                b',"output_token_logprobs":[', parts[2], b'],"output_token_logprobs_length":%d' % count,
                b',"reasoning_tokens":0,"completion_tokens":%d,"cached_tokens":0' % count,
                b',"weight_versions":[{"version":"default","start":0,"end":%d}]' % count if last else b"",
                b',"cached_tokens_details":null', tail,
                b"}}\n\n" if index is None else b'},"index":%d}\n\n' % index,
            ]
        )  # fmt: skip
        at = count


def body_of(
    answer: Answer, *, interval: int = 1, incremental: bool = False, routed_experts: str | None = None
) -> Iterator[bytes]:
    """The events of a whole response with one output, ``[DONE]`` included."""
    counts = counts_of(len(answer.ids), interval)
    yield from events(answer, counts, incremental=incremental, routed_experts=routed_experts)
    yield DONE


def interleaved(answers: Sequence[Answer], *, interval: int = 1, incremental: bool = False) -> Iterator[bytes]:
    """The events of a response with ``n`` outputs of equal length, which take turns."""
    counts = counts_of(len(answers[0].ids), interval)
    outputs = [events(one, counts, incremental=incremental, index=at) for at, one in enumerate(answers)]
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
        event = next(events(make_answer(tokens), [tokens], incremental=False))
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
