"""JSON as SGLang's servers print it.

SGLang serialises with orjson (``http_server.stream_results``, ``utils/json_response.py::dumps_json``): no spaces, raw
UTF-8 (U+2028, U+2029 and U+0085 included), NaN and both infinities as ``null``, and shortest floats in another notation
than Python's: ``1e-7`` where Python writes ``1e-07``, ``0.00001`` where Python writes ``1e-05``.  This module knows
nothing of what the values mean.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping
from typing import Any, cast

_EXPONENT = re.compile(r"\d[eE][-+]\d")


def dumps(value: object) -> bytes:
    """The bytes of one value, as orjson with ``OPT_NON_STR_KEYS`` prints it.

    :raises ValueError: for what JSON has no form for.
    """
    try:
        text = json.dumps(value, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
    except ValueError:
        return _print(value).encode()
    # Only exponents are printed differently; a text that merely looks like one costs the slow way, nothing else.
    return (_print(value) if _EXPONENT.search(text) else text).encode()


def event(value: object) -> bytes:
    """One server-sent event with this value as its data: ``data: {json}``, LF, LF."""
    return b"data: " + dumps(value) + b"\n\n"


DONE = b"data: [DONE]\n\n"
"""The last event of a stream (``http_server.stream_results``)."""


def _print(value: object) -> str:
    if isinstance(value, float):
        return _print_float(value)
    if isinstance(value, Mapping):
        items = cast("Mapping[Any, object]", value).items()
        return "{" + ",".join(f"{json.dumps(str(key), ensure_ascii=False)}:{_print(item)}" for key, item in items) + "}"
    if isinstance(value, list | tuple):
        return "[" + ",".join(map(_print, cast("list[object]", value))) + "]"
    return json.dumps(value, ensure_ascii=False)


def _print_float(value: float) -> str:
    if not math.isfinite(value):
        return "null"
    mantissa, e, exponent = repr(value).partition("e")
    if not e:
        return mantissa
    if exponent != "-05":
        return f"{mantissa}e{int(exponent):+d}"
    sign = "-" if mantissa.startswith("-") else ""
    return f"{sign}0.0000" + mantissa.lstrip("-").replace(".", "")
