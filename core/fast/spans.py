"""Where the values of a payload stand, in bytes: the map from which repeating regions are cut.

Walks the top-level object and ``meta_info`` with the standard library's own C scanner, once per learned payload.  A
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
    """One value that is a string or an array, without its quotes or brackets; or a number.

    :ivar opener: the bytes from the separator before the key to the quote or bracket that opens the value.
    :ivar start: offset of the first byte of the content.
    :ivar end: offset of the quote or bracket that closes the value; of the byte behind a number.
    :ivar closer: the bytes from there to the colon of the key that follows; None at the end of the object.
    """

    opener: bytes
    start: int
    end: int
    closer: bytes | None


class _OddError(ValueError):
    """Something about the keys that is better not mapped."""


def find_spans(payload: bytes) -> dict[tuple[str, ...], Span]:
    """Spans by path: ``("text",)``, ``("meta_info", "output_token_logprobs")``.  Empty if anything is odd."""
    try:
        text = payload.decode("utf-8")
        found: list[tuple[tuple[str, ...], int, int, int, int | None]] = []
        _walk(text, _skip(text, 0), (), found)
    except (ValueError, RecursionError, IndexError):
        return {}
    if len(text) == len(payload):

        def offset(at: int) -> int:
            return at
    else:

        def offset(at: int) -> int:
            return len(text[:at].encode())

    spans: dict[tuple[str, ...], Span] = {}
    for path, before, start, end, after in found:
        spans[path] = Span(
            text[before:start].encode(), offset(start), offset(end), None if after is None else text[end:after].encode()
        )
    return spans


def _walk(
    text: str, at: int, path: tuple[str, ...], found: list[tuple[tuple[str, ...], int, int, int, int | None]]
) -> int:
    """Walk the object that opens at ``at``; returns the offset behind it."""
    if text[at] != "{":
        raise _OddError
    seen: set[str] = set()
    before = at
    at = _skip(text, at + 1)
    unclosed: tuple[tuple[str, ...], int, int, int] | None = None
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
        if unclosed is not None:
            found.append((*unclosed, colon + 1))
            unclosed = None
        value = _skip(text, colon + 1)
        here = (*path, key)
        if here == ("meta_info",) and text[value] == "{":
            end = _walk(text, value, here, found)
        else:
            _, end = _scan(text, value)
            if text[value] in '"[':
                unclosed = (here, before, value + 1, end - 1)
            elif text[value] in "-0123456789":
                unclosed = (here, before, value, end)
        before = at = _skip(text, end)
        if text[at] == ",":
            at = _skip(text, at + 1)
    if unclosed is not None:
        found.append((*unclosed, None))
    return at + 1


def _skip(text: str, at: int) -> int:
    match = _SPACE.match(text, at)
    return at if match is None else match.end()
