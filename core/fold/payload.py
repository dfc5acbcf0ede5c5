"""JSON of one event: bytes in, a dict out, or a ``PayloadError``.

orjson if it is installed, else the standard library; both accept and refuse the same payloads, so that what a worker
reads does not depend on what happens to be installed.  Knows JSON and nothing of what the payload says.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from functools import cache
from typing import Any, NoReturn

from ..errors import PayloadError

#: Deeper nesting is refused, so that whatever was folded can be copied, compared and written again.
MAX_DEPTH = 100
_SURROGATE = re.compile(rb"\\u[dD][89a-fA-F]")


def loads_json(data: bytes) -> Any:
    """Parse with the standard library, as strictly as orjson does.

    :raises ValueError: not JSON, not UTF-8, a number that is not finite, a lone surrogate, or too deep.
    """
    try:
        value = json.loads(data.decode("utf-8"), parse_constant=_no_constant, parse_float=_finite, parse_int=_int)
    except RecursionError:
        raise ValueError("it is nested too deeply") from None
    if _SURROGATE.search(data):
        # Escaped surrogates must come in pairs; one alone cannot be written as UTF-8.  Nor may one stand in a value
        # that is lost to a key that comes again.
        everything = json.loads(data, object_pairs_hook=list, parse_int=str, parse_float=str)
        json.dumps(everything, ensure_ascii=False).encode("utf-8")
    return value


def _no_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is no JSON number")


def _finite(text: str) -> float:
    value = float(text)
    if value in (float("inf"), float("-inf")):
        raise ValueError(f"number {text[:40]} is out of range")
    return value


def _int(text: str) -> int | float:
    # orjson reads integers of more than 64 bits as floats.
    if len(text) < 19:
        return int(text)
    if len(text) > 4000:
        return _finite(text)
    value = int(text)
    return value if -(2**63) <= value < 2**64 else _finite(text)


@cache
def json_backend() -> Callable[[bytes], Any]:
    """The parser in use; what it raises is :func:`parse_payload`'s business."""
    # At first use and not at import: `import ssefold` loads no third-party package.
    try:
        import orjson
    except ImportError:
        return loads_json
    return orjson.loads


def parse_payload(data: bytes) -> dict[str, Any]:
    """The JSON object in an event's data.

    :raises PayloadError: it is not valid JSON in UTF-8 (the cause says where), or not an object.
    """
    try:
        value = parse_json(data, MAX_DEPTH)
    except (ValueError, RecursionError) as error:  # JSONDecodeError and UnicodeDecodeError are ValueErrors
        raise BadJSONError(f"the event's data is not JSON: {error}. It begins with {data[:80]!r}") from error
    if type(value) is not dict:
        raise PayloadError(
            f"the event's data must be a JSON object, found {type(value).__name__}. It begins with {data[:80]!r}"
        )
    return value


def parse_json(data: bytes, levels: int) -> Any:
    """Any JSON value of at most so many levels.

    :raises ValueError: it is not JSON in UTF-8, or deeper.
    :raises RecursionError: it is much deeper.
    """
    value = json_backend()(data)
    if data.count(b"[") + data.count(b"{") > levels and _is_deeper(value, levels):
        raise ValueError(f"it is nested more than {levels} deep")
    return value


def _is_deeper(value: Any, levels: int) -> bool:
    level = [value]
    for _ in range(levels):
        level = [
            child
            for parent in level
            for child in (parent.values() if type(parent) is dict else parent)
            if type(child) is list or type(child) is dict
        ]
        if not level:
            return False
    return True


class BadJSONError(PayloadError):
    """Not JSON at all: the one failure that ``on_bad_json="skip"`` passes over."""
