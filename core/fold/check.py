"""Is plain data the state of an output?  For bytes from an untrusted source.

A checksum says that bytes were not altered by accident; it does not say who wrote them.  So before a state is made of
them, each field must have its type and the lengths must fit.  Knows the fields and nothing of folding.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Mapping
from typing import Any, get_args

from .lanes import Lane, Mode

_LANES = (None, *get_args(Lane))


def check_plain(plain: Any) -> None:
    """Check every field.

    :raises TypeError: a field has the wrong type.
    :raises ValueError: fields do not fit together, are missing or too many.
    """
    _check(plain, "the state", _STATE)
    rows = len(plain["logprobs"])
    if rows > len(plain["token_ids"]):
        raise ValueError(f"logprobs has {rows} entries for {len(plain['token_ids'])} token_ids")
    if plain["row_texts"] is not None and len(plain["row_texts"]) != rows:
        raise ValueError(f"row_texts has {len(plain['row_texts'])} entries for {rows} logprobs")
    _check(plain["text"], "text", _TEXT)
    for name, extra in plain["extras"].items():
        _check(extra, f"extras.{name}", _EXTRA)
    if plain["error"] is not None:
        _check(plain["error"], "error", _ERROR)


def _check(value: Any, where: str, fields: Mapping[str, Callable[[Any], bool]]) -> None:
    if type(value) is not dict:
        raise TypeError(f"{where} must be an object, found {type(value).__name__}")
    if value.keys() != fields.keys():
        raise ValueError(f"{where} has other fields than it must: {sorted(value.keys() ^ fields.keys())}")
    for name, fits in fields.items():
        if not fits(value[name]):
            raise TypeError(f"{where}: field {name} cannot be a {type(value[name]).__name__} of that content")


def _is(*types: type) -> Callable[[Any], bool]:
    return lambda value: type(value) in types


def _one_of(*values: Any) -> Callable[[Any], bool]:
    return lambda value: (value is None or type(value) is str) and value in values


def _natural(value: Any) -> bool:
    return type(value) is int and value >= 0


def _array_of(typecode: str) -> Callable[[Any], bool]:
    return lambda value: type(value) is array and value.typecode == typecode


def _texts(value: Any) -> bool:
    return value is None or (type(value) is list and set(map(type, value)) <= {str, type(None)})


_NONE = type(None)
_STATE: dict[str, Callable[[Any], bool]] = {
    "mode": _one_of(*get_args(Mode)),
    "index": _natural,
    "token_ids": _array_of("q"),
    "logprobs": _array_of("d"),
    "row_texts": _texts,
    "row_width": lambda value: type(value) is int and value in (2, 3),
    "text": _is(dict),
    "ids_lane": _one_of(*_LANES),
    "rows_lane": _one_of(*_LANES),
    "ids_sent": _is(bool),
    "rows_sent": _is(bool),
    "extras": _is(dict),
    "meta": _is(dict),
    "other": _is(dict),
    "count": lambda value: value is None or _natural(value),
    "begun": _is(bool),
    "finish": _is(dict, str, _NONE),
    "error": _is(dict, _NONE),
    "top_p": lambda value: value is None or (type(value) is list and len(value) == 2),
    "routed_experts": _is(memoryview, _NONE),
    "indexer_topk": _is(memoryview, _NONE),
}
_TEXT: dict[str, Callable[[Any], bool]] = {
    "text": _is(str),
    "lane": _one_of(*_LANES),
    "sure": _is(bool),
    "seen": _is(bool),
    "missing": _is(bool),
    "marks": lambda value: type(value) is list and all(map(_natural, value)),
}
_EXTRA: dict[str, Callable[[Any], bool]] = {"lane": _one_of(*_LANES), "items": _is(list, _NONE)}
_ERROR: dict[str, Callable[[Any], bool]] = {
    "text": _is(str),
    "message": _is(str),
    "code": _is(int, str, _NONE),
    "type": _is(str, _NONE),
    "index": lambda value: value is None or _natural(value),
}
