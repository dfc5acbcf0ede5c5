"""The rules of slime's accumulator (pull request 2272), restated: what ours must agree with wherever this accepts."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from ..utils.misc import decode_int32_meta_array


class Added(NamedTuple):
    replace_call_state: bool
    tokens: list[int]
    log_probs: list[Any]
    meta_info: dict[str, Any]


class ReferenceAccumulator:
    def __init__(self, output_mode: str, output_length: int = 0, tokens: list[int] | None = None) -> None:
        self.cumulative = output_mode == "cumulative"
        self.mode = output_mode
        self.length = output_length
        self.tokens = list(tokens or [])
        self.log_probs: list[Any] = []
        self.snapshot: str | None = None
        self.pieces: list[str] = []
        self.must_decode = False

    def add(self, chunk: dict[str, Any]) -> Added:
        meta = chunk.get("meta_info") or {}
        if "output_token_logprobs_length" not in meta:
            raise ValueError("SGLang streaming responses must include output_token_logprobs_length.")
        pairs = meta.get("output_token_logprobs") or []
        reported, previous = int(meta["output_token_logprobs_length"]), self.length
        expected = len(pairs) + (0 if self.cumulative else previous)
        if expected != reported:
            raise ValueError(f"SGLang {self.mode} streaming output has inconsistent output_token_logprobs_length")
        if reported < previous:
            raise ValueError("SGLang cumulative streaming output length decreased")
        new = pairs[previous:] if self.cumulative else pairs
        tokens, log_probs = [pair[1] for pair in new], [pair[0] for pair in new]
        self.tokens += tokens
        self.log_probs += log_probs
        ids = decode_int32_meta_array(meta, ("top_p_token_ids", "top_p_kept_token_ids"))
        offsets = decode_int32_meta_array(meta, ("top_p_token_offsets", "top_p_kept_token_offsets"))
        rows = None if ids is None or offsets is None else offsets.size - 1
        whole = rows not in (None, len(tokens))
        if whole and rows != reported:
            raise ValueError("top-p metadata must describe either the current chunk or the full response")
        text = chunk.get("text")
        if self.cumulative:
            self.snapshot = self.snapshot if text is None else text
            self.must_decode = self.must_decode or (text is None and bool(tokens))
        else:
            self.pieces.append(text or "")
            self.must_decode = self.must_decode or text is None
        self.length = reported
        if whole:
            tokens, log_probs = list(self.tokens), list(self.log_probs)
        return Added(whole, tokens, log_probs, meta)

    def response_text(self, decode: Callable[[list[int]], str]) -> str:
        if self.must_decode or (self.cumulative and self.snapshot is None):
            return decode(self.tokens)
        return (self.snapshot or "") if self.cumulative else "".join(self.pieces)
