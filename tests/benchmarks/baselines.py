"""What a client without this library does: split lines, parse each payload whole, take what is new.

Written here from the described algorithm, as fast as it goes in plain Python, so that the comparison is fair: lines as
``aiter_lines`` of common HTTP clients gives them (text, split by ``str.splitlines``) or, faster, as bytes; the payload
parsed by json, orjson, or msgspec into typed structs that leave out what is not needed; only the new rows are copied
into growing lists.  None of the checks that the library makes is made here: no prefix is compared, no counter held
against another.  Nothing here may import the library.
"""

from __future__ import annotations

import codecs
import importlib
import json
from collections.abc import Callable
from typing import Any

Delta = tuple[list[int], list[float], str]


class TextLines:
    """Lines of text, as ``aiter_lines`` gives them: decoded read by read, split by ``str.splitlines``."""

    def __init__(self) -> None:
        self._decode = codecs.getincrementaldecoder("utf-8")().decode
        self._pending: list[str] = []

    def feed(self, data: bytes) -> list[str]:
        text = self._decode(data)
        lines = text.splitlines()
        if not lines:
            return lines
        ended = text[-1] == "\n"
        if self._pending:
            if len(lines) == 1 and not ended:
                self._pending.append(lines[0])
                return []
            lines[0] = "".join(self._pending) + lines[0]
            self._pending = []
        if not ended:
            self._pending = [lines.pop()]
        return lines


class ByteLines:
    """Lines of bytes, split at LF only: less work than text, and right where text has other line ends in it."""

    def __init__(self) -> None:
        self._pending: list[bytes] = []

    def feed(self, data: bytes) -> list[bytes]:
        lines = data.split(b"\n")
        rest = lines.pop()
        if not lines:
            self._pending.append(rest)
            return lines
        if self._pending:
            self._pending.append(lines[0])
            lines[0] = b"".join(self._pending)
        self._pending = [rest] if rest else []
        return lines


class DictFold:
    """Folds payloads that are parsed into dicts.

    :param lines: makes the line splitter.
    :param loads: the JSON parser.
    """

    def __init__(self, lines: Callable[[], Any], loads: Callable[[Any], Any]) -> None:
        self._lines = lines().feed
        self._loads = loads
        self.ids: list[int] = []
        self.logprobs: list[float] = []
        self.text = ""
        self._pieces: list[str] = []
        self.finish_reason: dict[str, Any] | None = None

    def feed(self, data: bytes) -> list[Delta]:
        deltas: list[Delta] = []
        for line in self._lines(data):
            if not line or line[:1] not in (b"d", "d"):
                continue
            payload = line[5:].strip()
            if payload in (b"[DONE]", "[DONE]"):
                continue
            deltas.append(self._add(self._loads(payload)))
        return deltas

    def close(self) -> None:
        self.text = self.text or "".join(self._pieces)

    def _add(self, chunk: Any) -> Delta:
        meta = chunk["meta_info"]
        rows = meta["output_token_logprobs"]
        known = len(self.ids)
        if len(rows) == meta["output_token_logprobs_length"] and known:
            rows = rows[known:]
            text = chunk["text"][len(self.text) :]
            self.text = chunk["text"]
        elif not known:
            text = self.text = chunk["text"]
            self._pieces.append(text)
        else:
            text = chunk["text"]
            self.text = ""
            self._pieces.append(text)
        ids = [row[1] for row in rows]
        logprobs = [row[0] for row in rows]
        self.ids += ids
        self.logprobs += logprobs
        self.finish_reason = meta["finish_reason"]
        return ids, logprobs, text


class StructFold(DictFold):
    """Folds payloads that are parsed into typed structs (msgspec), whose fields are read as attributes."""

    def _add(self, chunk: Any) -> Delta:
        meta = chunk.meta_info
        rows = meta.output_token_logprobs
        known = len(self.ids)
        if len(rows) == meta.output_token_logprobs_length and known:
            rows = rows[known:]
            text = chunk.text[len(self.text) :]
            self.text = chunk.text
        elif not known:
            text = self.text = chunk.text
            self._pieces.append(text)
        else:
            text = chunk.text
            self.text = ""
            self._pieces.append(text)
        ids = [row[1] for row in rows]
        logprobs = [row[0] for row in rows]
        self.ids += ids
        self.logprobs += logprobs
        self.finish_reason = meta.finish_reason
        return ids, logprobs, text


def json_text() -> DictFold:
    """The plain baseline: ``aiter_lines`` semantics and ``json.loads``."""
    return DictFold(TextLines, json.loads)


def json_bytes() -> DictFold:
    return DictFold(ByteLines, json.loads)


def orjson_text() -> DictFold:
    """As the plain baseline, with ``orjson.loads``."""
    return DictFold(TextLines, importlib.import_module("orjson").loads)


def orjson_bytes() -> DictFold:
    """orjson on lines that stay bytes."""
    return DictFold(ByteLines, importlib.import_module("orjson").loads)


def msgspec_bytes() -> StructFold:
    """Typed structs on lines that stay bytes."""
    return StructFold(ByteLines, _struct_decoder())


def _struct_decoder() -> Callable[[Any], Any]:
    msgspec = importlib.import_module("msgspec")
    row = tuple[float, int, str | None]
    meta = msgspec.defstruct(
        "Meta",
        [
            ("finish_reason", dict[str, Any] | None),
            ("output_token_logprobs", list[row]),  # type: ignore[valid-type]
            ("output_token_logprobs_length", int),
        ],
        gc=False,
    )
    chunk = msgspec.defstruct("Chunk", [("text", str), ("meta_info", meta)], gc=False)
    decode: Callable[[Any], Any] = msgspec.json.Decoder(chunk).decode
    return decode
