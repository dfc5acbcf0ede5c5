"""Takes out of a chunk's JSON the lists that it repeats, so that only what is new is parsed and masked.

A cumulative stream of 4,096 tokens has each of them two thousand times.  A list whose bytes begin as they did in the
chunk before is cut to a mark and what is new; in the rewritten chunk the mark becomes what the beginning was rewritten
to.  Knows JSON's brackets and strings; knows no keys but by name.
"""

from __future__ import annotations

import re
import uuid
from collections.abc import Iterable

_TOKENS = re.compile(rb'"(?:[^"\\]|\\.)*"|[\[\]]', re.DOTALL)


class Repeats:
    """The lists of one output."""

    def __init__(self, keys: Iterable[str]) -> None:
        # Inside a string quotes are escaped: there is no such key in one.
        self._keys = [b'"%b":[' % key.encode("ascii") for key in keys]
        #: Key -> the elements as they were sent and as they were rewritten, without brackets.
        self._known: dict[bytes, tuple[bytes, bytes]] = {}
        self._marks = {key: b'"%b"' % uuid.uuid4().hex.encode("ascii") for key in self._keys}
        self._sent: dict[bytes, bytes] = {}

    def cut(self, data: bytes) -> bytes:
        """The chunk with marks instead of what repeats."""
        self._sent = {}
        parts: list[bytes] = []
        done = 0
        for begin, key in sorted((data.find(key), key) for key in self._keys):
            first = begin + len(key)
            if begin < 0 or first < done:
                continue
            old = self._known.get(key, (b"", b""))[0]
            old = old if data.startswith(old, first) and data[first + len(old) : first + len(old) + 1] in b",]" else b""
            end = _list_end(data, first + len(old))
            if end < 0:
                continue
            self._sent[key] = data[first:end]
            if old:
                parts += [data[done:first], self._marks[key]]
                done = first + len(old)
            else:
                self._known.pop(key, None)
        return b"".join([*parts, data[done:]])

    def filled(self, rewritten: bytes) -> bytes:
        """The rewritten chunk with the whole lists, which are remembered."""
        parts: list[bytes] = []
        done = 0
        for begin, key in sorted((rewritten.find(key), key) for key in self._sent):
            first = begin + len(key)
            mark = self._marks[key]
            old = b""
            start = first
            if rewritten.startswith(mark, first):
                old = self._known[key][1]
                start = first + len(mark)
            end = _list_end(rewritten, start)
            whole = old + rewritten[start:end]
            self._known[key] = (self._sent[key], whole)
            parts += [rewritten[done:first], whole]
            done = end
        return b"".join([*parts, rewritten[done:]])


def _list_end(data: bytes, start: int) -> int:
    """Where the list ends in which ``start`` is; -1 if it does not."""
    depth = 1
    for token in _TOKENS.finditer(data, start):
        mark = token[0]
        if mark == b"[":
            depth += 1
        elif mark == b"]":
            depth -= 1
            if not depth:
                return token.start()
    return -1
