"""A container for a state made of plain data: versioned, checksummed, and safe to read from an untrusted source.

``pickle`` would execute code from the file; this reads only data.  It holds what JSON holds, exactly (every int,
NaN, -0.0, lone surrogates), and ``bytes``, arrays and int32 views, which follow the JSON as they are in memory.
The same state always gives the same bytes.  This module does not know what a state means.

===================  ===================================================================================================
``magic``            8 bytes ``89 73 73 65 66 6f 6c 64``: no text starts like this, so a copy in text mode is noticed
``version``          uint16, as all numbers little-endian
``kind length``      uint16
``tree length``      uint64
``sections length``  uint64
``kind``             ASCII: what the state is of
``tree``             JSON in UTF-8, lone surrogates included; ``{"$": [...]}`` stands for what JSON has not, and
                     keys that start with ``$`` have one more of it
``sections``         contents of bytes and arrays in the order of the tree, little-endian, without gaps
``digest``           SHA-256 of all bytes before it
===================  ===================================================================================================

SHA-256 rather than a CRC: undetected damage in a training state would never show, and a large fleet does hit a chance
of 2**-32.  It detects accidents only: an attacker who can write the file can write the digest.
"""

from __future__ import annotations

import json
import struct
import sys
from array import array
from typing import Any, cast

from ..errors import SnapshotError
from ..views import MAX_DEPTH

VERSION = 1

_MAGIC = b"\x89ssefold"
_HEAD = struct.Struct("<8sHHQQ")
_DIGEST_SIZE = 32
# What a caller may nest (see `views.copy_json`), and some levels of state around it.
_DEPTH = MAX_DEPTH + 16
# Decimal digits are limited in Python, and the limit can be set, but not below 640 digits.
_INT_BOUND = 2**1024
_NOT_JSON = "$"
_LITTLE_ENDIAN = sys.byteorder == "little"
_ITEM_SIZES = {"q": 8, "d": 8, "i": 4, "view": 4}


def pack(kind: str, state: dict[str, Any]) -> bytes:
    """Encode a state.

    :param kind: what the state is of, in ASCII; :func:`unpack` must name the same.
    :param state: None, bool, int, float, str, list, tuple (comes back as list), dict with str keys, ``bytes``,
        ``array`` of typecode ``q``, ``d`` or ``i``, and one-dimensional ``memoryview`` of format ``i``.
    :raises SnapshotError: anything else in it, or it is nested too deeply or in itself.
    """
    sections: list[memoryview] = []
    try:
        tree = json.dumps(_lower(state, sections, _DEPTH), ensure_ascii=False, separators=(",", ":"))
    except RecursionError:
        raise SnapshotError("the state is nested too deeply for what is left of the stack") from None
    name, text = kind.encode("ascii"), tree.encode("utf-8", "surrogatepass")
    size = sum(section.nbytes for section in sections)
    parts: list[bytes | memoryview] = [_HEAD.pack(_MAGIC, VERSION, len(name), len(text), size), name, text, *sections]
    return b"".join([*parts, _digest(*parts)])


def unpack(kind: str, data: bytes | bytearray | memoryview) -> dict[str, Any]:
    """Decode what :func:`pack` made of a state of this kind.

    Memory is bounded by a multiple of the size of ``data``, whatever the lengths in it claim.

    :raises SnapshotError: the bytes are truncated, altered, of another kind, of a version that this release does not
        know, or not of ours at all.
    """
    try:
        whole = memoryview(data).cast("B")
    except (TypeError, ValueError):
        raise SnapshotError(f"expected the bytes of a snapshot, got {type(data).__name__}") from None
    tree, sections = _open(kind, whole)
    reader = _Sections(sections)
    try:
        state = _lift(json.loads(str(tree, "utf-8", "surrogatepass")), reader, _DEPTH)
    except (ValueError, RecursionError) as error:
        raise SnapshotError(f"the snapshot's digest holds, but its tree is not readable: {error}") from None
    if not isinstance(state, dict):
        raise SnapshotError("the snapshot's digest holds, but its tree is not an object")
    if reader.left:
        raise SnapshotError(f"the snapshot's digest holds, but {reader.left} bytes belong to nothing in its tree")
    return cast("dict[str, Any]", state)


def _digest(*parts: bytes | memoryview) -> bytes:
    # Not at the top: it takes longer to import than the rest of this module, and few programs keep snapshots.
    from hashlib import sha256

    digest = sha256(usedforsecurity=False)
    for part in parts:
        digest.update(part)
    return digest.digest()


def _open(kind: str, whole: memoryview) -> tuple[memoryview, memoryview]:
    """Check everything around the content; return tree and sections."""
    if len(whole) < _HEAD.size or bytes(whole[:8]) != _MAGIC:
        raise SnapshotError(f"not a snapshot: {len(whole)} bytes that do not start with {_MAGIC!r} and a header")
    _, version, name_size, tree_size, sections_size = _HEAD.unpack_from(whole)
    # First of all, since everything after it depends on the version.
    if version != VERSION:
        raise SnapshotError(
            f"the snapshot is of format version {version}, this release reads version {VERSION}:"
            " read it with the release that wrote it, or look for damage in its bytes 8 and 9"
        )
    expected = _HEAD.size + name_size + tree_size + sections_size + _DIGEST_SIZE
    if len(whole) != expected:
        fault = "truncated" if len(whole) < expected else "longer than it says"
        raise SnapshotError(f"the snapshot is {fault}: {len(whole)} bytes where its header says {expected}")
    if _digest(whole[:-_DIGEST_SIZE]) != bytes(whole[-_DIGEST_SIZE:]):
        raise SnapshotError(f"the snapshot was altered: its {len(whole)} bytes do not match their SHA-256 digest")
    name = bytes(whole[_HEAD.size : _HEAD.size + name_size])
    if name != kind.encode("ascii"):
        raise SnapshotError(f"the snapshot is of kind {name!r}, expected {kind!r}")
    tree_end = _HEAD.size + name_size + tree_size
    return whole[_HEAD.size + name_size : tree_end], whole[tree_end:-_DIGEST_SIZE]


class _Sections:
    """Hands out the contents of bytes and arrays one after the other."""

    def __init__(self, data: memoryview) -> None:
        self._data = data
        self._at = 0

    @property
    def left(self) -> int:
        return len(self._data) - self._at

    def take(self, count: int, item_size: int) -> bytes:
        if not 0 <= count <= self.left // item_size:
            raise ValueError(f"a section of {count} x {item_size} bytes where {self.left} are left")
        start, self._at = self._at, self._at + count * item_size
        return bytes(self._data[start : self._at])


def _lower(value: object, sections: list[memoryview], depth: int) -> Any:
    """Turn a value into what JSON can express, and put aside what it cannot."""
    if value is None or isinstance(value, (str, float)):
        return value
    if isinstance(value, int):
        return value if -_INT_BOUND < value < _INT_BOUND else {_NOT_JSON: ["int", format(value, "x")]}
    if not depth:
        raise SnapshotError(f"the state is nested more than {_DEPTH} levels deep, or contains itself")
    if isinstance(value, (list, tuple)):
        items = cast("list[Any]", value)
        return [
            item if item is None or type(item) in (str, float) else _lower(item, sections, depth - 1) for item in items
        ]
    if isinstance(value, dict):
        lowered: dict[str, Any] = {}
        for key, item in cast("dict[object, object]", value).items():
            if not isinstance(key, str):
                raise SnapshotError(f"the state has an object with a key of type {type(key).__name__}, not str")
            # Keys of the state's own that look like ours get one more of it.
            name = _NOT_JSON + key if key.startswith(_NOT_JSON) else key
            lowered[name] = _lower(item, sections, depth - 1)
        return lowered
    code, count, content = _content(value)
    sections.append(content)
    return {_NOT_JSON: [code, count]}


def _content(value: object) -> tuple[str, int, memoryview]:
    """Code, number of elements and little-endian bytes of a value that is no JSON."""
    if isinstance(value, bytes):
        return "bytes", len(value), memoryview(value)
    name = type(value).__name__
    code = "view" if isinstance(value, memoryview) else getattr(value, "typecode", None)
    if not isinstance(value, (array, memoryview)) or code not in _ITEM_SIZES:
        raise SnapshotError(f"the state holds a value of type {name}, which has no place in a snapshot")
    raw = memoryview(cast("array[int] | memoryview", value))
    if code == "view" and (raw.format != "i" or raw.ndim != 1):
        raise SnapshotError(
            f"the state holds a view of format {raw.format!r} and {raw.ndim} dimensions, not flat int32"
        )
    count = len(raw)
    if not _LITTLE_ENDIAN or not raw.contiguous:
        raw = memoryview(_little_endian(raw.tobytes(), _ITEM_SIZES[code]))
    return code, count, raw


def _lift(value: Any, sections: _Sections, depth: int) -> Any:
    """Undo :func:`_lower`."""
    if not depth:
        raise ValueError(f"it is nested more than {_DEPTH} levels deep")
    if isinstance(value, list):
        items = cast("list[object]", value)
        for at, item in enumerate(items):
            if isinstance(item, (list, dict)):
                items[at] = _lift(item, sections, depth - 1)
        return items
    if not isinstance(value, dict):
        return value
    mapping = cast("dict[str, Any]", value)
    if len(mapping) == 1 and _NOT_JSON in mapping:
        return _special(mapping[_NOT_JSON], sections)
    lifted: dict[str, Any] = {}
    for key, item in mapping.items():
        name = key.removeprefix(_NOT_JSON)
        if name != key and not name.startswith(_NOT_JSON):
            raise ValueError(f"an object has a key that starts with a single {_NOT_JSON!r}")
        lifted[name] = _lift(item, sections, depth - 1) if isinstance(item, (list, dict)) else item
    return lifted


def _special(content: Any, sections: _Sections) -> Any:
    match content:
        case ["int", str(digits)]:
            return int(digits, 16)
        case ["bytes", int(count)]:
            return sections.take(count, 1)
        case [("q" | "d" | "i" | "view") as code, int(count)]:
            size = _ITEM_SIZES[code]
            raw = _little_endian(sections.take(count, size), size)
            return memoryview(raw).cast("i") if code == "view" else array(code, raw)
        case _:
            raise ValueError(f"{_NOT_JSON!r} stands before something unknown")


def _little_endian(raw: bytes, item_size: int) -> bytes:
    """Swap between native and little-endian order, which is nothing to do on nearly every host."""
    if _LITTLE_ENDIAN:
        return raw
    numbers: array[int] = array("i" if item_size == 4 else "q", raw)
    numbers.byteswap()
    return numbers.tobytes()
