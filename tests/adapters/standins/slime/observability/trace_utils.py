"""Spans: what was opened on which sample, and with which attributes."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any


class Span:
    def __init__(self, attrs: dict[str, Any]) -> None:
        self.attrs = attrs

    def update(self, attrs: dict[str, Any]) -> None:
        self.attrs.update(attrs)


@contextmanager
def trace_span(target: Any, name: str, *, attrs: dict[str, Any] | None = None) -> Iterator[Span]:
    if target.trace is None:
        target.trace = {"events": []}
    span = Span(dict(attrs or {}))
    target.trace["events"].append((name, span.attrs))
    yield span


def build_sglang_meta_trace_attrs(meta: dict[str, Any]) -> dict[str, Any]:
    kept: dict[str, Any] = {
        key: meta[key] for key in ("prompt_tokens", "completion_tokens", "cached_tokens") if key in meta
    }
    return {**kept, "finish_reason": meta["finish_reason"]["type"], "sglang_request_id": meta.get("id")}
