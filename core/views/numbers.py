"""Read-only views of the arrays that grow while an output streams.

Making one costs the same whatever its size: it holds a reference, and who gives it away promises that the array only
grows.  This module knows nothing of what the numbers are.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterator, Sequence
from math import isnan
from typing import Any, ClassVar, overload


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
