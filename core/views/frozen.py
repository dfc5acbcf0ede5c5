"""JSON-like data that cannot be changed.

A frozen object or array is a shallow copy: it holds its own references to the values, and freezes them on access.  Who
gives one away promises not to change the values (:func:`freeze`).  The way back to plain data is :func:`copy_json`.
This module knows containers and nothing of what is in them.
"""

from __future__ import annotations

import reprlib
from array import array
from collections.abc import ItemsView, Iterator, Mapping, Sequence, ValuesView
from typing import TYPE_CHECKING, Any, ClassVar, NoReturn, SupportsIndex, overload

from ..errors import PayloadError

# No server nests deeper than ten; the Python stack, which equality and repr go down, ends at some hundreds.
MAX_DEPTH = 200

_SCALARS = frozenset({str, int, float, bool, type(None)})
_NO_SEQUENCE = (str, bytes, bytearray, memoryview, array)

_repr = reprlib.Repr()
_repr.maxlevel, _repr.maxdict, _repr.maxlist, _repr.maxtuple, _repr.maxstring = 4, 40, 8, 8, 200


class ReadOnlyError(TypeError, AttributeError):
    """Frozen data was to be changed: both what a tuple raises for an item and what it raises for ``append``."""


def _refuse(self: object, *_: object, **__: object) -> NoReturn:
    raise ReadOnlyError(f"a {type(self).__name__} is read-only: change a .copy() of it")


class FrozenDict(dict[str, Any]):
    """A JSON object that cannot be changed; its values are frozen on access.

    Equal to any mapping of equal contents.  A dict underneath, so that ``json.dumps`` takes it.
    """

    __slots__ = ()

    def __getitem__(self, key: str) -> Any:
        return freeze(super().__getitem__(key))

    def __iter__(self) -> Iterator[str]:  # for one that has its own, dict() asks for the values one by one
        return super().__iter__()

    def get(self, key: str, default: Any = None) -> Any:
        """As of a dict."""
        return self[key] if key in self else default  # noqa: SIM401  # this is get

    def values(self) -> ValuesView[Any]:  # type: ignore[override]
        """As of a dict."""
        return ValuesView(self)

    def items(self) -> ItemsView[str, Any]:  # type: ignore[override]
        """As of a dict."""
        return ItemsView(self)

    def __eq__(self, other: object) -> bool:
        if isinstance(other, Mapping) and not isinstance(other, dict):
            other = dict(other)  # pyright: ignore[reportUnknownArgumentType, reportUnknownVariableType]
        return super().__eq__(other)

    def __ne__(self, other: object) -> bool:
        return not self == other

    __hash__: ClassVar[None] = None  # pyright: ignore[reportIncompatibleVariableOverride]

    def __or__(self, other: Mapping[str, Any]) -> dict[str, Any]:  # type: ignore[override]
        return {**self, **other}

    def __ror__(self, other: Mapping[str, Any]) -> dict[str, Any]:  # type: ignore[override]
        return {**other, **self}

    def copy(self) -> dict[str, Any]:
        """Plain dicts and lists, the caller's own, all the way down."""
        plain: dict[str, Any] = copy_json(self)
        return plain

    def __repr__(self) -> str:
        return f"FrozenDict({_repr.repr(_raw(self))})"

    def __reduce__(self) -> tuple[Any, ...]:
        return FrozenDict, (_raw(self),)

    if not TYPE_CHECKING:  # pragma: no branch
        __setitem__ = __delitem__ = __ior__ = clear = pop = popitem = setdefault = update = _refuse


class FrozenList(list[Any]):
    """A JSON array that cannot be changed; its elements are frozen on access.

    Equal to any list or tuple of equal contents.  A slice is a ``FrozenList``; :meth:`copy` is a plain list.
    """

    __slots__ = ()

    @overload
    def __getitem__(self, index: SupportsIndex) -> Any: ...
    @overload
    def __getitem__(self, index: slice) -> FrozenList: ...
    def __getitem__(self, index: SupportsIndex | slice) -> Any:
        return freeze(super().__getitem__(index))

    def __iter__(self) -> Iterator[Any]:
        return map(freeze, super().__iter__())

    def __reversed__(self) -> Iterator[Any]:
        return map(freeze, super().__reversed__())

    def __eq__(self, other: object) -> bool:
        if isinstance(other, tuple):
            other = list(other)  # pyright: ignore[reportUnknownArgumentType, reportUnknownVariableType]
        return super().__eq__(other)

    def __ne__(self, other: object) -> bool:
        return not self == other

    __hash__: ClassVar[None] = None  # pyright: ignore[reportIncompatibleVariableOverride]

    def __add__(self, other: Sequence[Any]) -> list[Any]:
        return [*self, *other]

    def __radd__(self, other: Sequence[Any]) -> list[Any]:
        return [*other, *self]

    def __mul__(self, count: SupportsIndex) -> list[Any]:
        return [*self] * count

    def __rmul__(self, count: SupportsIndex) -> list[Any]:
        return self * count

    def copy(self) -> list[Any]:
        """Plain dicts and lists, the caller's own, all the way down."""
        plain: list[Any] = copy_json(self)
        return plain

    def __repr__(self) -> str:
        return f"FrozenList({_repr.repr(_raw(self))})"

    def __reduce__(self) -> tuple[Any, ...]:
        return FrozenList, (_raw(self),)

    if not TYPE_CHECKING:  # pragma: no branch
        __setitem__ = __delitem__ = __iadd__ = __imul__ = _refuse
        append = clear = extend = insert = pop = remove = reverse = sort = _refuse


def _raw(view: FrozenDict | FrozenList) -> Any:
    """Its contents as they are, in a dict or list of their own."""
    if isinstance(view, FrozenDict):
        return dict(dict.items(view))
    return list.__getitem__(view, slice(None))


def freeze(value: Any) -> Any:
    """View a dict as a :class:`FrozenDict` and a list or tuple as a :class:`FrozenList`; anything else is itself."""
    if type(value) in _FROZEN:
        return value
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
            source = _raw(source)
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
