"""Integer arrays as servers and frameworks hand them over -> one flat, read-only int32 ``memoryview``.

SGLang sends replay arrays as standard padded base64 of little-endian int32 without shape or dtype
(``managers/detokenizer_manager.py::_b64_encode_per_request``; slime's image: ``_b64_encode_int32``); slime's own
decoder (``slime/utils/misc.py::decode_int32_meta_array``) also takes lists and bytes.  All of these come in here, and
one thing comes out.  This module knows no field and no shape: what the numbers mean is the business of ``arrays.py``.
"""

from __future__ import annotations

import binascii
import re
import sys
from array import array
from collections.abc import Sequence
from contextlib import suppress
from itertools import chain
from numbers import Integral
from operator import index
from typing import Any

from ..errors import ReplayError

INT32_MIN = -(2**31)
INT32_MAX = 2**31 - 1

# (rows, layers, top_k) is the deepest array there is.
_MAX_NESTING = 3
_LITTLE_ENDIAN = sys.byteorder == "little"
_EMPTY = memoryview(b"").cast("i")
_INTEGER_FORMATS = frozenset("bBhHiIlLqQnN")
_NATIVE_INT32 = ("i", "=i", "<i" if _LITTLE_ENDIAN else ">i")
_NOT_BASE64 = re.compile(r"[^A-Za-z0-9+/]")


def decode_int32(value: Any, *, field: str) -> memoryview | None:
    """Decode one array of the wire.

    :param value: standard padded base64 (``str``) or raw bytes (``bytes``, ``bytearray``, ``memoryview`` of bytes),
        both of little-endian int32; an integer buffer (``array``, NumPy) in native order; a list of ints, flat or of
        two or three regular levels; None.
    :param field: name of the field for messages.
    :returns: shape ``(n,)``, format ``"i"`` (int32, native order), read-only.  Backed by the bytes that base64 decoding
        made, or by the caller's ``bytes``, without a copy; whatever the caller could still change is copied.  None for
        None; ``""`` is zero elements, which is how SGLang writes an array without rows.
    :raises ReplayError: anything else.
    """
    if value is None:
        return None
    if isinstance(value, str):
        return _from_bytes(_from_base64(value, field), field)
    if isinstance(value, (bytes, bytearray)):
        return _from_bytes(bytes(value), field)
    try:
        buffer = memoryview(value)
    except (ValueError, BufferError) as error:
        raise ReplayError(f"{field} is a buffer that cannot be read: {error}") from None
    except TypeError:
        if issubclass(type(value), Sequence):
            return _from_list(value, field)
        raise ReplayError(
            f"{field} is {_kind(value)}: expected base64 text, bytes, a list of integers or an int32 buffer"
            " (of a torch tensor: tensor.cpu().numpy())"
        ) from None
    return _from_buffer(buffer, field, raw=isinstance(value, memoryview))


def little_endian(values: memoryview) -> bytes:
    """Undo :func:`decode_int32`: the little-endian bytes of an int32 view, for pickles, snapshots and base64."""
    return values.tobytes() if _LITTLE_ENDIAN else _swapped(values.tobytes())


def has_negative(values: memoryview) -> bool:
    """Whether any element of a decoded array is below zero.

    Looks at the bytes that hold the signs: 30 times faster than ``min`` on the million ids of a long rollout.
    """
    raw = values.obj if isinstance(values.obj, bytes) and len(values.obj) == values.nbytes else values.tobytes()
    return not raw[3 if _LITTLE_ENDIAN else 0 :: 4].isascii()


def from_ints(values: Sequence[int], field: str) -> memoryview:
    """Lay out plain ints as an int32 view.

    :raises ReplayError: one does not fit into 32 bits.
    """
    try:
        packed = array("i", values)
    except OverflowError:
        at = next(i for i, number in enumerate(values) if not INT32_MIN <= number <= INT32_MAX)
        raise ReplayError(
            f"{field}[{at}] is {shown(values[at])}, outside int32 [{INT32_MIN}, {INT32_MAX}]:"
            " neither token, expert nor offset"
        ) from None
    return memoryview(packed.tobytes()).cast("i")


def shown(number: int) -> str:
    """Print an integer of anybody's: Python itself refuses those of more than some thousand digits."""
    return str(number) if number.bit_length() <= 128 else f"an integer of {number.bit_length()} bits"


def _from_base64(text: str, field: str) -> bytes:
    """Strict decoding without a second copy of the text, which may be tens of MB.

    ``binascii`` only has ``strict_mode`` since 3.11; before that it skips foreign characters.  Every skipped character
    makes the result shorter than the length of the text says, so counting finds them all.
    """
    padding = len(text[-2:]) - len(text[-2:].rstrip("="))
    expected = len(text) // 4 * 3 - padding
    decoded: bytes | None = None
    if len(text) % 4 == 0 and text.isascii():
        with suppress(binascii.Error):
            decoded = binascii.a2b_base64(text)
    if decoded is None or len(decoded) != expected:
        raise ReplayError(f"{field} is not standard padded base64: {_base64_fault(text)}; was it cut or re-encoded?")
    # Bits that the padding leaves over must be zero: an encoder writes no others, so others are damage.
    if padding and binascii.b2a_base64(decoded[-(3 - padding) :], newline=False) != text[-4:].encode("ascii"):
        raise ReplayError(f"{field} is not standard padded base64: its last group {text[-4:]!r} has stray bits set")
    return decoded


def _base64_fault(text: str) -> str:
    found = _NOT_BASE64.search(text.removesuffix("=").removesuffix("="))
    if found:
        return f"character {found.group()!a} at {found.start()} of {len(text)}"
    return f"{len(text)} characters do not make whole groups of four"


def _from_bytes(raw: bytes, field: str) -> memoryview:
    if len(raw) % 4:
        raise ReplayError(f"{field} has {len(raw)} bytes, not a multiple of 4: int32 expected, was it cut?")
    return memoryview(raw if _LITTLE_ENDIAN else _swapped(raw)).cast("i")


def _from_buffer(buffer: memoryview, field: str, *, raw: bool) -> memoryview:
    code = buffer.format.removeprefix("@")
    if buffer.ndim == 0:
        raise ReplayError(f"{field} is a single number: expected an array of int32")
    if buffer.nbytes == 0 and code in _INTEGER_FORMATS:
        return _EMPTY
    # Without a copy only if the owner is immutable too: a read-only view may have a writable owner.
    owned = isinstance(buffer.obj, bytes) and buffer.c_contiguous
    if raw and code in ("B", "b", "c"):
        if owned and _LITTLE_ENDIAN and buffer.nbytes % 4 == 0:
            return buffer.cast("B").cast("i")
        return _from_bytes(buffer.tobytes(), field)
    if code in _NATIVE_INT32:
        return buffer.cast("B").cast("i") if owned else memoryview(buffer.tobytes()).cast("i")
    if code not in _INTEGER_FORMATS:
        raise ReplayError(
            f"{field} is a buffer of format {buffer.format!r}: expected native int32 (NumPy: array.astype('int32'))"
        )
    return _from_list(buffer.tolist(), field)


def _from_list(value: Sequence[Any], field: str) -> memoryview:
    depth, first = 1, _first(value)
    while _is_list(type(first)):
        depth += 1
        if depth > _MAX_NESTING:
            raise ReplayError(
                f"{field} is nested more than {_MAX_NESTING} deep: at most (rows, layers, top_k) is expected"
            )
        first = _first(first)
    level: Sequence[Any] = value if isinstance(value, (list, tuple)) else list(value)
    for _ in range(depth - 1):
        if not all(map(_is_list, set(map(type, level)))):
            break
        lengths = set(map(len, level))
        if len(lengths) > 1:
            raise ReplayError(
                f"{field} is ragged: its rows have {min(lengths)} to {max(lengths)} elements, all must be alike"
            )
        level = list(chain.from_iterable(level))
    return from_ints(level if set(map(type, level)) <= {int} else _integers(level, field), field)


def _first(value: Sequence[Any]) -> Any:
    return value[0] if len(value) else None


def _is_list(kind: type) -> bool:
    return issubclass(kind, Sequence) and not issubclass(kind, (str, bytes, bytearray))


def _integers(level: Sequence[Any], field: str) -> list[int]:
    """Take a level that is not all plain ints: NumPy's are welcome, flags, floats, text and mixed nesting are not."""
    for at, element in enumerate(level):
        # A flag is an int in Python, and no token anywhere; NumPy's is none.
        if isinstance(element, bool) or not isinstance(element, Integral):
            raise ReplayError(f"{field}: element {at} is {_kind(element)}, not an integer")
    return list(map(index, level))


def _swapped(raw: bytes) -> bytes:
    numbers = array("i", raw)
    numbers.byteswap()
    return numbers.tobytes()


def _kind(value: object) -> str:
    if isinstance(value, (bool, float)) or value is None:
        return repr(value)
    return f"of type {type(value).__name__}"
