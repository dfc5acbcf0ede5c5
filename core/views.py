"""Read-only views: of JSON-like data, and of the arrays that grow while an output streams.

Making a view costs the same whatever its size, since nothing is copied: it holds a reference, and who gives it away
promises not to change what was given (:func:`freeze`), or that it only grows (:class:`Ints`, :class:`Floats`).  The way
back to plain data is :func:`copy_json`.  This module knows containers and nothing of what is in them.
"""

from __future__ import annotations

import reprlib
from array import array
from collections.abc import Iterator, Mapping, Sequence
from math import isnan
from typing import Any, ClassVar, overload

from .errors import PayloadError

# No server nests deeper than ten; the Python stack, which equality and repr go down, ends at some hundreds.
MAX_DEPTH = 200

_SCALARS = frozenset({str, int, float, bool, type(None)})
_NO_SEQUENCE = (str, bytes, bytearray, memoryview, array)

_repr = reprlib.Repr()
_repr.maxlevel, _repr.maxdict, _repr.maxlist, _repr.maxtuple, _repr.maxstring = 4, 40, 8, 8, 200


class FrozenDict(Mapping[str, Any]):
    """A JSON object that cannot be changed; its values are wrapped on access.

    Equal to any mapping of equal contents, plain dicts included.  ``json.dumps`` takes only dicts: give it
    :meth:`copy`.
    """

    __slots__ = ("_data",)

    def __init__(self, data: dict[str, Any]) -> None:
        self._data = data

    def __getitem__(self, key: str) -> Any:
        return freeze(self._data[key])

    def __iter__(self) -> Iterator[str]:
        return iter(self._data)

    def __len__(self) -> int:
        return len(self._data)

    def __contains__(self, key: object) -> bool:
        return key in self._data

    def __eq__(self, other: object) -> bool:
        if isinstance(other, FrozenDict):
            return self._data == other._data
        if isinstance(other, Mapping):
            return self._data == dict(other)  # pyright: ignore[reportUnknownArgumentType]
        return NotImplemented

    __hash__: ClassVar[None] = None  # type: ignore[assignment]  # pyright: ignore[reportIncompatibleVariableOverride]

    def copy(self) -> dict[str, Any]:
        """Plain dicts and lists, the caller's own, all the way down."""
        plain: dict[str, Any] = copy_json(self._data)
        return plain

    def __repr__(self) -> str:
        return f"FrozenDict({_repr.repr(self._data)})"

    def __reduce__(self) -> tuple[Any, ...]:
        return FrozenDict, (self._data,)


class FrozenList(Sequence[Any]):
    """A JSON array that cannot be changed; its elements are wrapped on access.

    Equal to any list or tuple of equal contents.  A slice is a ``FrozenList``; :meth:`copy` is a plain list.
    """

    __slots__ = ("_data",)

    def __init__(self, data: list[Any] | tuple[Any, ...]) -> None:
        self._data = data

    @overload
    def __getitem__(self, index: int) -> Any: ...
    @overload
    def __getitem__(self, index: slice) -> FrozenList: ...
    def __getitem__(self, index: int | slice) -> Any:
        return freeze(self._data[index])

    def __iter__(self) -> Iterator[Any]:
        return map(freeze, self._data)

    def __len__(self) -> int:
        return len(self._data)

    def __contains__(self, value: object) -> bool:
        return value in self._data

    def __eq__(self, other: object) -> bool:
        if isinstance(other, FrozenList):
            other = other._data
        if isinstance(other, (list, tuple)):
            return list(self._data) == list(other)  # pyright: ignore[reportUnknownArgumentType]
        return NotImplemented

    __hash__: ClassVar[None] = None  # type: ignore[assignment]  # pyright: ignore[reportIncompatibleVariableOverride]

    def copy(self) -> list[Any]:
        """Plain dicts and lists, the caller's own, all the way down."""
        plain: list[Any] = copy_json(self._data)
        return plain

    def __repr__(self) -> str:
        return f"FrozenList({_repr.repr(self._data)})"

    def __reduce__(self) -> tuple[Any, ...]:
        return FrozenList, (self._data,)


class Ints(Sequence[int]):
    """A live, read-only view of an ``array`` of integers: token ids while they come.

    Equal to any sequence of equal numbers.  A slice is a tuple and stays as it is when more comes.
    """

    __slots__ = ("_data",)

    def __init__(self, data: array[int]) -> None:
        self._data = data

    @overload
    def __getitem__(self, index: int) -> int: ...
    @overload
    def __getitem__(self, index: slice) -> tuple[int, ...]: ...
    def __getitem__(self, index: int | slice) -> int | tuple[int, ...]:
        if isinstance(index, slice):
            return tuple(self._data[index])
        return self._data[index]

    def __iter__(self) -> Iterator[int]:
        return iter(self._data)

    def __len__(self) -> int:
        return len(self._data)

    def __contains__(self, value: object) -> bool:
        return value in self._data

    def __eq__(self, other: object) -> bool:
        if isinstance(other, Ints):
            return bool(self._data == other._data)
        listed = _listed(other)
        return NotImplemented if listed is None else self.tolist() == listed

    __hash__: ClassVar[None] = None  # type: ignore[assignment]  # pyright: ignore[reportIncompatibleVariableOverride]

    def tolist(self) -> list[int]:
        """A plain list, the caller's own."""
        return self._data.tolist()

    def __repr__(self) -> str:
        return _shown(self)

    def __reduce__(self) -> tuple[Any, ...]:
        return Ints, (self._data,)


class Floats(Sequence["float | None"]):
    """A live, read-only view of an ``array("d")`` in which NaN stands for None: logprobs while they come.

    SGLang writes NaN and the infinities as null, so no number is lost to the stand-in.  Equal to any sequence of equal
    values.  A slice is a tuple and stays as it is when more comes.
    """

    __slots__ = ("_data",)

    def __init__(self, data: array[float]) -> None:
        self._data = data

    @overload
    def __getitem__(self, index: int) -> float | None: ...
    @overload
    def __getitem__(self, index: slice) -> tuple[float | None, ...]: ...
    def __getitem__(self, index: int | slice) -> float | tuple[float | None, ...] | None:
        if isinstance(index, slice):
            return tuple(none_for_nan(self._data[index]))
        value = self._data[index]
        return None if isnan(value) else value

    def __iter__(self) -> Iterator[float | None]:
        for value in self._data:
            yield None if isnan(value) else value

    def __len__(self) -> int:
        return len(self._data)

    def __contains__(self, value: object) -> bool:
        return any(map(isnan, self._data)) if value is None else value in self._data

    def __eq__(self, other: object) -> bool:
        if isinstance(other, Floats):
            return self.tolist() == other.tolist()
        listed = _listed(other)
        return NotImplemented if listed is None else self.tolist() == listed

    __hash__: ClassVar[None] = None  # type: ignore[assignment]  # pyright: ignore[reportIncompatibleVariableOverride]

    def tolist(self) -> list[float | None]:
        """A plain list, the caller's own, None where there is no number."""
        return none_for_nan(self._data)

    def __repr__(self) -> str:
        return _shown(self)

    def __reduce__(self) -> tuple[Any, ...]:
        return Floats, (self._data,)


def freeze(value: Any) -> Any:
    """View a dict as a :class:`FrozenDict` and a list or tuple as a :class:`FrozenList`; anything else is itself."""
    if isinstance(value, dict):
        return FrozenDict(value)  # pyright: ignore[reportUnknownArgumentType]
    if isinstance(value, (list, tuple)):
        return FrozenList(value)  # pyright: ignore[reportUnknownArgumentType]
    return value


def copy_json(value: Any, *, field: str = "chunk") -> Any:
    """Copy JSON-like data into plain dicts and lists that share no container with it.

    Mappings become dicts, sequences (tuples, views) lists; whatever is no container goes along by reference.  It walks
    with its own list instead of the Python stack, depth first, so that a cycle soon reaches the bound.

    :param field: name of the whole for messages.
    :raises PayloadError: nested deeper than 200 levels (or in itself), or the key of an object is not a string.
    """
    root: list[Any] = []
    # Containers that are made but not filled: source, copy, whether it is a list, levels above.
    todo: list[tuple[Any, Any, bool, int]] = [([value], root, True, 0)]
    element: object
    while todo:
        source, target, is_list, depth = todo.pop()
        if type(source) in _FROZEN:
            source = source._data
        if depth > MAX_DEPTH:
            raise PayloadError(f"{field} is nested more than {MAX_DEPTH} levels deep, or contains itself")
        if is_list:
            if set(map(type, source)) <= _SCALARS:
                target.extend(source)
                continue
            target.extend([None] * len(source))
            elements: Any = enumerate(source)
        else:
            wrong = next((key for key in source if not isinstance(key, str)), "")
            if not isinstance(wrong, str):
                raise PayloadError(f"{field} has an object with a key of type {type(wrong).__name__}, not a string")
            elements = source.items()
        for key, element in elements:
            kind = type(element)
            if kind in _SCALARS:
                target[key] = element
            elif kind is dict or issubclass(kind, Mapping):
                target[key] = {}
                todo.append((element, target[key], False, depth + 1))
            elif kind is list or (issubclass(kind, Sequence) and not issubclass(kind, _NO_SEQUENCE)):
                target[key] = []
                todo.append((element, target[key], True, depth + 1))
            else:
                target[key] = element
    return root[0]


_FROZEN = frozenset({FrozenDict, FrozenList})

# What a reader of frozen data calls it.
thaw = copy_json


def none_for_nan(values: array[float]) -> list[float | None]:
    """The numbers as a list, None where there is none."""
    listed: list[float | None] = values.tolist()  # type: ignore[assignment]
    # A sum is NaN when any term is, and takes 0.4 of the time of asking each: almost no logprob is null.
    if isnan(sum(values)):
        return [None if isnan(value) else value for value in values]
    return listed


def _listed(other: object) -> list[Any] | None:
    if isinstance(other, (Sequence, array)) and not isinstance(other, (str, bytes, bytearray)):
        return list(other)  # pyright: ignore[reportUnknownArgumentType]
    return None


def _shown(view: Ints | Floats) -> str:
    count = len(view)
    shown = ", ".join(map(repr, view[:8]))
    return f"{type(view).__name__}([{shown}{f', ... {count} in all' if count > 8 else ''}])"
