"""Finds what :mod:`.rules` describes: in the bytes of a body, in its chunks one by one, and at its end.

A finding is made where it is first seen; the same about the same output is counted, not repeated.  Knows what the core
made of each chunk, and judges nothing that the core has not accepted.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ssefold import (
    Accumulator,
    IncompleteStreamError,
    ServerError,
    StreamError,
    Update,
)

from ..terminal import plural
from .errors import code_of, json_of, words
from .output import OutputCheck
from .rules import RULES, Rule

_NOT_SGLANG = (
    ("comments", re.compile(rb"^:", re.MULTILINE)),
    ("carriage returns", re.compile(rb"\r")),
    ("fields other than data", re.compile(rb"^(?:event|id|retry)[:\r\n]", re.MULTILINE)),
)
_SEPARATORS = (b"\xe2\x80\xa8", b"\xe2\x80\xa9", b"\xc2\x85")
_DONE_IN_TEXT = re.compile(rb"(?<=[^\r\n\xbf])data: \[DONE\]")


@dataclass
class Finding:
    """Something remarkable.

    :ivar offset: of the event where it was first seen, or of the line that is no event's; None if it is about the
        whole.
    :ivar index: the output; None for the stream.
    :ivar count: how often.
    """

    code: str
    offset: int | None
    index: int | None
    message: str
    count: int = 1

    @property
    def place(self) -> float:
        """For sorting: what is about the whole comes last."""
        return float("inf") if self.offset is None else self.offset

    @property
    def rule(self) -> Rule:
        """What it is a case of."""
        return RULES[self.code]

    def as_dict(self) -> dict[str, Any]:
        """For machines."""
        return {
            "code": self.code,
            "severity": self.rule.severity,
            "title": self.rule.title,
            "offset": self.offset,
            "index": self.index,
            "message": self.message,
            "count": self.count,
        }


class Checker:
    """Watches one body being folded; ``findings`` is in the order in which things were first seen."""

    def __init__(self) -> None:
        self._found: dict[tuple[str, int | None], Finding] = {}
        self._outputs: dict[int, OutputCheck] = {}
        self._done = False

    @property
    def findings(self) -> list[Finding]:
        """What was found, the worst first."""
        order = {"error": 0, "warning": 1, "note": 2}
        return sorted(self._found.values(), key=lambda one: (order[one.rule.severity], one.place, one.code))

    def look_at_bytes(self, offset: int, start: int, raw: bytes, *, plain: bool) -> None:
        """What can be seen in an event's bytes, which begin at ``start``, without reading any JSON.

        :param plain: it is one data line and a blank one, as SGLang writes it.
        """
        if not plain:
            if start == 0 and raw.startswith(b"\xef\xbb\xbf"):
                self.add("SG005", 0, None, "a byte order mark")
            for what, pattern in _NOT_SGLANG:
                places = [match.start() for match in pattern.finditer(raw)]
                if places:
                    self.add("SG005", start + places[0], None, what, len(places))
        if not raw.isascii():
            count = sum(map(raw.count, _SEPARATORS))
            if count:
                self.add("SG006", offset, None, "U+2028, U+2029 or U+0085 stands raw in the data", count)
        if raw.count(b"[DONE]") and (inside := _DONE_IN_TEXT.findall(raw)):
            self.add("SG007", offset, None, "the bytes `data: [DONE]` stand inside an event", len(inside))

    def done(self) -> None:
        """``[DONE]`` came."""
        self._done = True

    def chunk(
        self, offset: int | None, data: bytes, updates: Sequence[Update], outputs: Mapping[int, Accumulator]
    ) -> None:
        """An event with this data was folded, or ignored (then it has no update)."""
        if not updates:
            self._ignored(offset, data)
            return
        for update in updates:
            index = update.index
            if self._done:
                self.add("SG212", offset, index, "a chunk came after [DONE]")
            known = self._outputs.setdefault(index, OutputCheck())
            for code, message in known.chunk(data, update, outputs[index]):
                self.add(code, offset, index, message)

    def _ignored(self, offset: int | None, data: bytes) -> None:
        payload = json_of(data)
        if not isinstance(payload, dict) or payload.get("error") is not None or "meta_info" not in payload:
            return
        index = payload.get("index") or 0
        if self._done:
            self.add("SG212", offset, index, "a chunk came after [DONE]")
        if index in self._outputs and self._outputs[index].is_over:
            self.add("SG210", offset, index, "a chunk came after the output's finish_reason")

    def failure(
        self,
        offset: int | None,
        error: StreamError,
        outputs: Mapping[int, Accumulator],
        data: bytes | None,
        *,
        done: bool,
        native: bool = False,
    ) -> str:
        """The stream failed at this event (``data``), or at its end (None); returns the code that says it."""
        if isinstance(error, IncompleteStreamError):
            if not outputs:
                return self.add("SG001", None, None, words(error))
            code = "SG203" if done else "SG201"
            for index, output in outputs.items():
                if output.finish_reason is None and output.error is None:
                    self.add(code, None, index, f"{plural(len(output.token_ids), 'token')} came, and no finish_reason")
            return code
        if isinstance(error, ServerError) and error.index is not None:
            return "SG205"  # found at the output's end
        return self.add(code_of(error, data, native=native), offset, None, words(error))

    def end(self, outputs: Mapping[int, Accumulator], *, cut: bool, native: bool) -> None:
        """The body has ended."""
        if cut:
            self.add("SG004", None, None, "the bytes after the last event were dropped")
        over = [output for output in outputs.values() if output.finish_reason is not None]
        if over and len(over) == len(outputs) and not self._done and not native:
            self.add("SG202", None, None, "all outputs are complete, but [DONE] did not come")
        for index, output in outputs.items():
            if output.error is not None:
                self.add("SG205", None, index, words(output.error))
            for code, message in self._outputs.get(index, OutputCheck()).end(output):
                self.add(code, None, index, message)

    def add(self, code: str, offset: int | None, index: int | None, message: str, count: int = 1) -> str:
        """Make or count a finding; returns its code."""
        key = (code, index) if code != "SG005" else (message, index)
        known = self._found.get(key)
        if known is None:
            self._found[key] = Finding(code, offset, index, message, count)
        else:
            known.count += count
        return code
