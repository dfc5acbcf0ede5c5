"""How slime folds a stream since its pull request 2272, written from a description of the rule; no code of slime's.

The mode is configured, not found out.  Lines come from ``aiter_lines`` of httpx, which also cuts at U+2028 and its
like; so that this can be told from the rule itself, lines may be cut at LF alone.  Lines that are not ``data:`` are
passed over, ``[DONE]`` too, and JSON that does not parse is warned of and passed over.  Tokens are those of the logprob
rows, whose counter ``output_token_logprobs_length`` must be there; a list is as long as the counter (cumulative) or as
its growth (incremental), or the stream is refused.  A stream without a terminal ``finish_reason`` is refused at its
end.  The rule knows one output.  Nothing here may import the library.
"""

from __future__ import annotations

import json
from array import array
from base64 import b64decode
from collections.abc import Iterable, Iterator
from typing import Any, Literal

from tests.benchmarks.baselines import ByteLines, TextLines


class Rule2272:
    """One call: bytes in, tokens and logprobs out; ``ValueError`` and ``RuntimeError`` where slime raises them."""

    def __init__(self, mode: Literal["cumulative", "incremental"], *, at_lf: bool = False) -> None:
        self.mode = mode
        self.at_lf = at_lf
        self.tokens: list[int] = []
        self.logprobs: list[float | None] = []
        self.finish_reason: Any = None
        self.skipped = 0

    def fold(self, reads: Iterable[bytes]) -> None:
        """Take a whole body.

        :raises ValueError: a chunk does not fit the mode.
        :raises RuntimeError: there was no terminal chunk.
        """
        for line in self._lines(reads):
            self._line(line)
        if self.finish_reason is None:
            raise RuntimeError("SGLang streaming response ended without a terminal finish_reason.")

    def _lines(self, reads: Iterable[bytes]) -> Iterator[str]:
        if self.at_lf:
            raw = ByteLines()
            return (line.decode() for data in reads for line in raw.feed(data))
        text = TextLines()
        return (line for data in reads for line in text.feed(data))

    def _line(self, line: str) -> None:
        if not line.startswith("data:"):
            return
        payload = line[5:].strip()
        if payload in ("", "[DONE]"):
            return
        try:
            chunk = json.loads(payload)
        except ValueError:
            self.skipped += 1
            return
        self._chunk(chunk)

    def _chunk(self, chunk: dict[str, Any]) -> None:
        meta = chunk.get("meta_info") or {}
        if "output_token_logprobs_length" not in meta:
            raise ValueError("SGLang streaming responses must include output_token_logprobs_length.")
        rows = meta.get("output_token_logprobs") or []
        reported, known = meta["output_token_logprobs_length"], len(self.tokens)
        if self.mode == "cumulative":
            if reported < known:
                raise ValueError(f"SGLang cumulative streaming output length decreased: {known} to {reported}")
            consistent, new = len(rows) == reported, rows[known:]
        else:
            consistent, new = known + len(rows) == reported, rows
        if not consistent:
            raise ValueError(
                f"SGLang {self.mode} streaming output has inconsistent output_token_logprobs_length: "
                f"received={len(rows)}, previous={known}, reported={reported}"
            )
        self.tokens += [row[1] for row in new]
        self.logprobs += [row[0] for row in new]
        self._check_top_p(meta, len(new), reported)
        self.finish_reason = meta.get("finish_reason") or self.finish_reason

    def _check_top_p(self, meta: dict[str, Any], new: int, reported: int) -> None:
        if meta.get("top_p_token_ids") is None or meta.get("top_p_token_offsets") is None:
            return
        offsets = array("i", b64decode(meta["top_p_token_offsets"]))
        if len(offsets) not in (new + 1, reported + 1):
            raise ValueError(
                "Incremental SGLang top-p metadata must describe either the current chunk or the full response: "
                f"offsets={len(offsets)}, chunk_tokens={new}, reported_tokens={reported}"
            )
