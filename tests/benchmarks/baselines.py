"""What a client without this library does: split lines, parse each payload whole, take what is new.

Written here from the described algorithm, as plain and as fast as it goes: lines as ``aiter_lines`` of common HTTP
clients gives them (text, split by ``str.splitlines``); the payload parsed by json, by orjson, or by msgspec into typed
structs that leave out what is not needed; ids and logprobs taken out of all rows that came, their number held against
the counter, the new ones appended to lists.  The tuned one spares itself whatever can be spared.  None compares what a
chunk repeats with what came before, as the library does.  Nothing here may import the library.
"""

from __future__ import annotations

import codecs
import importlib
import json
from collections.abc import Callable
from operator import itemgetter
from typing import Any

Delta = tuple[list[int], list[float], str]
"""New ids, their logprobs, new text."""
Chunk = tuple[str, "list[Any]", int, "dict[str, Any] | None"]
"""Text, logprob rows, their total number, finish_reason."""


class TextLines:
    """Lines of text, as ``aiter_lines`` gives them: decoded read by read, split by ``str.splitlines``.

    CR, which no server sends, is not looked after where a read ends.
    """

    def __init__(self) -> None:
        self._decode = codecs.getincrementaldecoder("utf-8")().decode
        self._pending: list[str] = []

    def feed(self, data: bytes) -> list[str]:
        text = self._decode(data)
        lines = text.splitlines()
        if not lines:
            return lines
        ended = text[-1] in _LINE_ENDS
        if self._pending:
            if len(lines) == 1 and not ended:
                self._pending.append(lines[0])
                return []
            lines[0] = "".join(self._pending) + lines[0]
            self._pending = []
        if not ended:
            self._pending = [lines.pop()]
        return lines


_LINE_ENDS = "\n\v\f\x1c\x1d\x1e\x85\u2028\u2029"


class ByteLines:
    """Lines of bytes, split at LF only: less work than text, and right where text has other line ends in it."""

    def __init__(self) -> None:
        self._pending: list[bytes] = []

    def feed(self, data: bytes) -> list[bytes]:
        lines = data.split(b"\n")
        rest = lines.pop()
        if not lines:
            self._pending.append(rest)
            return []
        if self._pending:
            self._pending.append(lines[0])
            lines[0] = b"".join(self._pending)
        self._pending = [rest] if rest else []
        return lines


class Fold:
    """The accumulator, and the loop over lines around it.

    :param feed_lines: the line splitter.
    :param loads: the parser: text of a payload in, the three parts that count out.
    """

    def __init__(self, feed_lines: Callable[[bytes], list[str]], loads: Callable[[str], Chunk]) -> None:
        self._feed_lines = feed_lines
        self._loads = loads
        self.ids: list[int] = []
        self.logprobs: list[float] = []
        self.finish_reason: dict[str, Any] | None = None
        self._text = ""
        self._pieces: list[str] = []

    def feed(self, data: bytes) -> list[Delta]:
        deltas: list[Delta] = []
        for line in self._feed_lines(data):
            if not line.startswith("data:"):
                continue
            payload = line[5:].strip()
            if payload != "[DONE]":
                deltas.append(self._add(*self._loads(payload)))
        return deltas

    def close(self) -> None:
        """The body has ended."""

    @property
    def text(self) -> str:
        return self._text or "".join(self._pieces)

    def _add(self, text: str, rows: list[Any], total: int, finish_reason: dict[str, Any] | None) -> Delta:
        ids = [row[1] for row in rows]
        logprobs = [row[0] for row in rows]
        known = len(self.ids)
        if len(rows) == total and known:
            ids, logprobs = ids[known:], logprobs[known:]
            new_text = text[len(self.text) :]
            self._text = text
        elif known + len(rows) == total:
            new_text = text
            self._pieces.append(text)
        else:
            raise ValueError(f"{len(rows)} rows, {known} known, {total} in all")
        self.ids += ids
        self.logprobs += logprobs
        self.finish_reason = finish_reason
        return ids, logprobs, new_text


def json_baseline() -> Fold:
    """The plain baseline: ``aiter_lines`` semantics, ``json.loads``, lists."""
    return _dict_fold(json.loads)


def orjson_baseline() -> Fold:
    """The same with ``orjson.loads``."""
    return _dict_fold(importlib.import_module("orjson").loads)


def msgspec_baseline() -> Fold:
    """The same with msgspec, which makes typed structs of the fields that are needed and passes over the others."""
    decode = _struct_decoder()

    def loads(payload: str) -> Chunk:
        chunk = decode(payload)
        meta = chunk.meta_info
        return chunk.text, meta.output_token_logprobs, meta.output_token_logprobs_length, meta.finish_reason

    return Fold(TextLines().feed, loads)


class TunedFold:
    """The least work that parses every payload: lines stay bytes, orjson, and of the rows only new ones are touched."""

    def __init__(self) -> None:
        self._feed_lines = ByteLines().feed
        self._loads = importlib.import_module("orjson").loads
        self.ids: list[int] = []
        self.logprobs: list[float] = []
        self.finish_reason: dict[str, Any] | None = None
        self._texts: list[str] = []

    def feed(self, data: bytes) -> list[Delta]:
        lines = self._feed_lines(data)
        return [self._add(self._loads(line[6:])) for line in lines if line and line != b"data: [DONE]"]

    def close(self) -> None:
        """The body has ended."""

    @property
    def text(self) -> str:
        return "".join(self._texts)

    def _add(self, chunk: dict[str, Any]) -> Delta:
        meta = chunk["meta_info"]
        rows, text = meta["output_token_logprobs"], chunk["text"]
        known = len(self.ids)
        if len(rows) == meta["output_token_logprobs_length"]:
            rows = rows[known:]
            self._texts = [text]
        else:
            self._texts.append(text)
        ids, logprobs = list(map(_id_of, rows)), list(map(_logprob_of, rows))
        self.ids += ids
        self.logprobs += logprobs
        self.finish_reason = meta["finish_reason"]
        return ids, logprobs, text


class BareBytes:
    """The floor, in plain Python, of anything that compares instead of parsing.

    Events are framed with ``find`` of one byte, each is copied once (the join of its pieces) and each of its bytes is
    compared once.  No JSON, no tokens, nothing comes out.
    """

    def __init__(self) -> None:
        self.events = 0
        self._pieces: list[memoryview] = []

    def feed(self, data: bytes) -> None:
        at = 0
        view = memoryview(data)
        while (end := data.find(10, at)) >= 0:
            if end > at:
                self._pieces.append(view[at:end])
            if self._pieces:
                event = b"".join(self._pieces)
                place = 0
                for piece in self._pieces:
                    if not event.startswith(piece, place):
                        raise ValueError("a copy differs from what was copied")
                    place += len(piece)
                self._pieces = []
                self.events += 1
            at = end + 1
        if at < len(data):
            self._pieces.append(view[at:])

    def close(self) -> None:
        """The body has ended."""


_logprob_of = itemgetter(0)
_id_of = itemgetter(1)


def _dict_fold(parse: Callable[[str], Any]) -> Fold:
    def loads(payload: str) -> Chunk:
        chunk = parse(payload)
        meta = chunk["meta_info"]
        return chunk["text"], meta["output_token_logprobs"], meta["output_token_logprobs_length"], meta["finish_reason"]

    return Fold(TextLines().feed, loads)


def _struct_decoder() -> Callable[[str], Any]:
    msgspec = importlib.import_module("msgspec")
    meta = msgspec.defstruct(
        "Meta",
        [
            ("finish_reason", dict[str, Any] | None),
            ("output_token_logprobs", list[tuple[float, int, str | None]]),
            ("output_token_logprobs_length", int),
        ],
    )
    chunk = msgspec.defstruct("Chunk", [("text", str), ("meta_info", meta)])
    decode: Callable[[str], Any] = msgspec.json.Decoder(chunk).decode
    return decode
