"""Where the values of a payload stand: the map from which a template is made.

Walks the top-level object and ``meta_info`` with the standard library's own scanner, once per learned payload.  A
payload with anything unusual about its keys (twice the same, spelled with escapes) has no map.  Knows JSON's grammar
and the name ``meta_info``, and nothing of what the values mean.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from typing import Any, NamedTuple

_SPACE = re.compile(r"[ \t\n\r]*")
# raw_decode reads one value at an offset and says where it ends; strings (keys) are values like any other.
_scan: Callable[[str, int], tuple[Any, int]] = json.JSONDecoder().raw_decode


class Span(NamedTuple):
    """The content of one value, in bytes.

    :ivar path: ``("text",)``, ``("meta_info", "output_token_logprobs")``.
    :ivar kind: ``'"'`` for a string and ``"["`` for an array, whose content is what the quotes or brackets enclose;
        ``"0"`` for a number.  Other values have no span.
    """

    path: tuple[str, ...]
    kind: str
    start: int
    end: int


class _OddError(ValueError):
    """Something about the keys that is better not mapped."""


def find_spans(payload: bytes) -> list[Span]:
    """Spans in the order in which they stand; empty if anything is odd."""
    try:
        text = payload.decode("utf-8")
        found: list[Span] = []
        _walk(text, _skip(text, 0), (), found)
    except (ValueError, RecursionError, IndexError):
        return []
    if len(text) == len(payload):
        return found
    # Characters to bytes, each stretch once: spans are in order and do not overlap.
    spans: list[Span] = []
    at = size = 0
    for path, kind, start, end in found:
        first = size + len(text[at:start].encode())
        size = first + len(text[start:end].encode())
        at = end
        spans.append(Span(path, kind, first, size))
    return spans


def _walk(text: str, at: int, path: tuple[str, ...], found: list[Span]) -> int:
    """Walk the object that opens at ``at``; returns the offset after it."""
    if text[at] != "{":
        raise _OddError
    seen: set[str] = set()
    at = _skip(text, at + 1)
    while text[at] != "}":
        if text[at] != '"':
            raise _OddError
        key, colon = _scan(text, at)
        if key in seen or text[at + 1 : colon - 1] != key:
            raise _OddError
        seen.add(key)
        colon = _skip(text, colon)
        if text[colon] != ":":
            raise _OddError
        value = _skip(text, colon + 1)
        here = (*path, key)
        kind = text[value]
        if here == ("meta_info",) and kind == "{":
            end = _walk(text, value, here, found)
        else:
            _, end = _scan(text, value)
            if kind in '"[':
                found.append(Span(here, kind, value + 1, end - 1))
            elif kind in "-0123456789":
                found.append(Span(here, "0", value, end))
        at = _skip(text, end)
        if text[at] == ",":
            at = _skip(text, at + 1)
    return at + 1


def _skip(text: str, at: int) -> int:
    match = _SPACE.match(text, at)
    return at if match is None else match.end()
