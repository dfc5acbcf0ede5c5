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
    PayloadError,
    ProtocolError,
    ReplayError,
    ServerError,
    StreamError,
    Update,
)
from ssefold.fold.payload import BadJSONError

from ..terminal import plural
from .output import OutputCheck
from .rules import RULES, Rule

_NOT_SGLANG = (
    ("a byte order mark", re.compile(rb"\A\xef\xbb\xbf")),
    ("comments", re.compile(rb"^:", re.MULTILINE)),
    ("carriage returns", re.compile(rb"\r")),
    ("fields other than data", re.compile(rb"^(?:event|id|retry)[:\r\n]", re.MULTILINE)),
)
_SEPARATORS = re.compile(rb"\xe2\x80[\xa8\xa9]|\xc2\x85")
_DONE_IN_TEXT = re.compile(rb"(?<=[^\r\n\xbf])data: \[DONE\]")


@dataclass
class Finding:
    """Something remarkable.

    :ivar offset: of the event, or of the bytes, where it was first seen.
    :ivar index: the output; None for the stream.
    :ivar count: how often.
    """

    code: str
    offset: int
    index: int | None
    message: str
    count: int = 1

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
        return sorted(self._found.values(), key=lambda one: (order[one.rule.severity], one.offset, one.code))

    def look_at_bytes(self, body: bytes) -> None:
        """What can be seen without reading any JSON."""
        for what, pattern in _NOT_SGLANG:
            matches = [match.start() for match in pattern.finditer(body)]
            if matches:
                self.add("SG005", matches[0], None, what, len(matches))
        separators = [match.start() for match in _SEPARATORS.finditer(body)]
        if separators:
            self.add("SG006", separators[0], None, "U+2028, U+2029 or U+0085 stands raw in the data", len(separators))
        inside = [match.start() for match in _DONE_IN_TEXT.finditer(body)]
        if inside:
            self.add("SG007", inside[0], None, "the bytes `data: [DONE]` stand inside an event", len(inside))

    def done(self) -> None:
        """``[DONE]`` came."""
        self._done = True

    def chunk(
        self, offset: int, payload: Mapping[str, Any], updates: Sequence[Update], outputs: Mapping[int, Accumulator]
    ) -> None:
        """A chunk was folded, or ignored (then it has no update)."""
        index = payload.get("index") or 0
        if self._done:
            self.add("SG212", offset, index, "a chunk came after [DONE]")
        if payload.get("error") is not None:
            return
        known = self._outputs.get(index)
        if not updates:
            if known is not None and known.is_over:
                self.add("SG210", offset, index, "a chunk came after the output's finish_reason")
            return
        if known is None:
            known = self._outputs[index] = OutputCheck()
        for code, message in known.chunk(payload, updates[-1], outputs[index]):
            self.add(code, offset, index, message)

    def failure(self, offset: int, error: StreamError, outputs: Mapping[int, Accumulator], *, done: bool) -> None:
        """The stream failed here, or at its end."""
        if isinstance(error, IncompleteStreamError):
            for index, output in outputs.items():
                if output.finish_reason is None and output.error is None:
                    message = f"{plural(len(output.token_ids), 'token')} came, and no finish_reason"
                    self.add("SG203" if done else "SG201", offset, index, message)
            if not outputs:
                self.add("SG001", offset, None, str(error))
        elif not isinstance(error, ServerError) or error.index is None:
            self.add(_code_of(error), offset, None, str(error))

    def end(self, size: int, outputs: Mapping[int, Accumulator], *, cut: bool, native: bool) -> None:
        """The body is over; ``size`` is its length."""
        if cut:
            self.add("SG004", size, None, "the bytes behind the last event were dropped")
        over = [output for output in outputs.values() if output.finish_reason is not None]
        if over and len(over) == len(outputs) and not self._done and not native:
            self.add("SG202", size, None, "all outputs are complete, but [DONE] did not come")
        for index, output in outputs.items():
            if output.error is not None:
                self.add("SG205", size, index, str(output.error))
            for code, message in self._outputs.get(index, OutputCheck()).end(output):
                self.add(code, size, index, message)

    def add(self, code: str, offset: int, index: int | None, message: str, count: int = 1) -> None:
        """Make or count a finding."""
        key = (code, index) if code != "SG005" else (message, index)
        known = self._found.get(key)
        if known is None:
            self._found[key] = Finding(code, offset, index, message, count)
        else:
            known.count += count


def _code_of(error: StreamError) -> str:
    if isinstance(error, BadJSONError):
        return "SG002"
    if isinstance(error, PayloadError):
        return "SG003"
    if isinstance(error, ReplayError):
        return "SG401"
    if isinstance(error, ServerError):
        return "SG204"
    return "SG105" if isinstance(error, ProtocolError) else "SG201"
