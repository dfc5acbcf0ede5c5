"""What a user without this library writes by hand: split lines, parse each payload whole, append what is new.

It is as plain and as cheap as it goes: lines are split as bytes, and old rows are not touched.  Nothing is checked: not
what a chunk repeats, no counter, no end.  Nothing here may import the library.
"""

from __future__ import annotations

import codecs
import importlib
import json
from collections.abc import Callable
from typing import Any

from tests.benchmarks.bodies import CUMULATIVE, Form


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


class PlainLoop:
    """The loop over the lines of a body, and the answer so far.

    :param loads: the JSON parser.
    :param form: which parts of a chunk are deltas, which the user of such a loop must know.
    """

    def __init__(self, loads: Callable[[bytes], Any], form: Form = CUMULATIVE) -> None:
        self._feed_lines = ByteLines().feed
        self._loads = loads
        self._form = form
        self._pieces: list[str] = []
        self.ids: list[int] = []
        self.logprobs: list[float] = []
        self.finish_reason: dict[str, Any] | None = None

    def feed(self, data: bytes) -> int:
        """How many chunks ended in this read."""
        chunks = 0
        for line in self._feed_lines(data):
            if line.startswith(b"data:") and line != b"data: [DONE]":
                self._add(self._loads(line[5:]))
                chunks += 1
        return chunks

    def close(self) -> None:
        """The body has ended."""

    @property
    def text(self) -> str:
        return "".join(self._pieces)

    def _add(self, chunk: Any) -> None:
        meta = chunk["meta_info"]
        self._keep(chunk.get("text", ""), chunk["output_ids"], meta.get("output_token_logprobs", []))
        self.finish_reason = meta["finish_reason"]

    def _keep(self, text: str, ids: list[int], rows: list[Any]) -> None:
        form = self._form
        if form.text == "delta":
            self._pieces.append(text)
        else:
            self._pieces = [text]
        self.ids += ids if form.ids == "delta" else ids[len(self.ids) :]
        new = rows if form.rows == "delta" else rows[len(self.logprobs) :]
        self.logprobs += [row[0] for row in new]


def json_loop(form: Form = CUMULATIVE) -> PlainLoop:
    """With the standard library's ``json.loads``."""
    return PlainLoop(json.loads, form)


def orjson_loop(form: Form = CUMULATIVE) -> PlainLoop:
    """With ``orjson.loads``."""
    return PlainLoop(importlib.import_module("orjson").loads, form)


class MsgspecLoop(PlainLoop):
    """With msgspec, which makes typed structs of the fields that are needed and passes over the others."""

    def __init__(self, form: Form = CUMULATIVE) -> None:
        super().__init__(_struct_decoder(), form)

    def _add(self, chunk: Any) -> None:
        meta = chunk.meta_info
        self._keep(chunk.text, chunk.output_ids, meta.output_token_logprobs)
        self.finish_reason = meta.finish_reason


def _struct_decoder() -> Callable[[bytes], Any]:
    msgspec = importlib.import_module("msgspec")
    meta = msgspec.defstruct(
        "Meta",
        [
            ("finish_reason", dict[str, Any] | None),
            ("output_token_logprobs", list[tuple[float, int, str | None]], msgspec.field(default_factory=list)),
        ],
    )
    chunk = msgspec.defstruct("Chunk", [("meta_info", meta), ("output_ids", list[int]), ("text", str, "")])
    decode: Callable[[bytes], Any] = msgspec.json.Decoder(chunk).decode
    return decode
