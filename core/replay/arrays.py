"""Replay arrays: what the sampler kept (top-p rows) and where the router sent each token (routed experts).

A trainer replays both, so a row that is off by one is a wrong gradient: everything is checked when it is made, and what
does not fit is a :class:`~ssefold.ReplayError` with the numbers.  This module knows the arrays and their rules, and
nothing of chunks, lanes or the fields around them; ``int32.py`` knows the encodings.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterator
from itertools import islice
from operator import gt, index
from typing import Any, NoReturn

from ..errors import ReplayError
from .int32 import INT32_MAX, decode_int32, has_negative, little_endian, shown

# Counts of tokens, rows and layers: what a 64-bit server can count.
_MAX_COUNT = 2**63 - 1
# Numbers a token; 256 layers of an indexer's 2,048 are half a million.
_MAX_ROW = 2**24


class _Frozen:
    """Its fields are set once, by ``object.__setattr__``."""

    __slots__ = ()

    def __setattr__(self, name: str, value: object) -> NoReturn:
        raise AttributeError(f"{type(self).__name__} is immutable: {name} cannot be set")

    def __delattr__(self, name: str) -> NoReturn:
        raise AttributeError(f"{type(self).__name__} is immutable: {name} cannot be deleted")


class TopPReplay(_Frozen):
    """The token ids that top-p sampling kept, per output token; immutable, hashable, picklable.

    Row ``i`` is ``token_ids[offsets[i]:offsets[i + 1]]``, ordered by falling probability.  The sampled id may be
    missing from its own row (flashinfer and torch draw the border differently, speculative decoding accepts across it),
    and a row may be empty (a token that was not sampled).  Source: slime's image,
    ``docker/patch/v0.5.15.post1/sglang-top_p.patch``, ``meta_info.top_p_token_ids`` and
    ``meta_info.top_p_token_offsets`` of the terminal chunk.

    :param token_ids: any form that :func:`decode_int32` takes.
    :param offsets: the same, flat; ``rows + 1`` numbers that start at 0, never fall and end at ``len(token_ids)``.
    :ivar token_ids: shape ``(n,)``, int32, read-only.
    :ivar offsets: shape ``(rows + 1,)``, int32, read-only.
    :raises ReplayError: the arrays are no int32 arrays or do not fit together.
    """

    __slots__ = ("offsets", "token_ids")

    token_ids: memoryview
    offsets: memoryview

    def __init__(self, token_ids: Any, offsets: Any) -> None:
        ids = decode_int32(token_ids, field="top_p_token_ids")
        bounds = decode_int32(offsets, field="top_p_token_offsets")
        if ids is None or bounds is None:
            missing = "top_p_token_ids" if ids is None else "top_p_token_offsets"
            raise ReplayError(f"{missing} is missing: top_p_token_ids and top_p_token_offsets only come together")
        _check_offsets(bounds, len(ids))
        if has_negative(ids):
            at = next(i for i, token in enumerate(ids) if token < 0)
            raise ReplayError(f"top_p_token_ids[{at}] is {ids[at]}: a token id is never negative; is the array int32?")
        object.__setattr__(self, "token_ids", ids)
        object.__setattr__(self, "offsets", bounds)

    @property
    def rows(self) -> int:
        """Number of output tokens described."""
        return len(self.offsets) - 1

    def __len__(self) -> int:
        return len(self.offsets) - 1

    def kept(self, i: int) -> memoryview:
        """Token ids that were kept for output token ``i``, most probable first.

        :returns: shape ``(k,)``, int32, read-only, a view of :attr:`token_ids`.
        :raises ReplayError: ``i`` is not in ``[0, rows)``.  Rows are not counted from the end: a negative row is an
            off-by-one of the caller, and another token's row would be the worst answer.
        """
        row = _count("i", i)
        if row >= self.rows:
            raise ReplayError(f"kept({row}) is outside this replay of {self.rows} rows: expected 0 <= i < {self.rows}")
        return self.token_ids[self.offsets[row] : self.offsets[row + 1]]

    def concat(self, other: TopPReplay) -> TopPReplay:
        """Rows of this call followed by the rows of a later one.

        :raises ReplayError: more token ids than an int32 offset can count.
        """
        if not isinstance(other, TopPReplay):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise ReplayError(f"concat expects a TopPReplay, got {type(other).__name__}")
        base = len(self.token_ids)
        if base + len(other.token_ids) > INT32_MAX:
            raise ReplayError(
                f"{base} + {len(other.token_ids)} kept token ids are more than int32 offsets can count ({INT32_MAX}):"
                " keep the calls apart"
            )
        shifted = array("i", [base + bound for bound in islice(other.offsets, 1, None)])
        return TopPReplay(_joined(self.token_ids, other.token_ids), _joined(self.offsets, shifted))

    def pad(self, n: int) -> TopPReplay:
        """These rows followed by ``n`` empty ones, for tokens that were not sampled (tool output, user turns).

        :raises ReplayError: ``n`` is negative, or makes more rows than int32 can count.
        """
        count = _count("n", n)
        if count > INT32_MAX - self.rows:
            raise ReplayError(f"pad({count}) to {self.rows} rows: expected at most {INT32_MAX} rows in all")
        return TopPReplay(self.token_ids, _joined(self.offsets, array("i", [len(self.token_ids)]) * count))

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, TopPReplay):
            return NotImplemented
        return self.offsets == other.offsets and self.token_ids == other.token_ids

    def __hash__(self) -> int:
        return hash((_hash(self.token_ids), _hash(self.offsets)))

    def __repr__(self) -> str:
        return f"TopPReplay({self.rows} rows, {len(self.token_ids)} token ids)"

    def __reduce__(self) -> tuple[Any, ...]:
        return TopPReplay, (little_endian(self.token_ids), little_endian(self.offsets))


class ReplayArray(_Frozen):
    """The router's choices (``routed_experts``) or the indexer's (``indexer_topk``); immutable, hashable, picklable.

    The wire carries the numbers without a shape; :meth:`reshape` finds it from the counts.  -1 marks a masked row in
    recent servers and is passed through.  Source in SGLang: ``state_capturer/routed_experts.py`` and
    ``_maybe_collect_routed_experts`` of the scheduler.

    :param values: any form that :func:`decode_int32` takes.
    :param field: the field's name for messages.
    :ivar values: shape ``(n,)``, int32, read-only: ``numpy.frombuffer(array.values, numpy.int32)`` copies nothing.
    :raises ReplayError: not an int32 array.
    """

    __slots__ = ("field", "values")

    values: memoryview
    field: str

    def __init__(self, values: Any, *, field: str = "routed_experts") -> None:
        decoded = decode_int32(values, field=field)
        if decoded is None:
            raise ReplayError(f"{field} is null: the server sent no array; was it asked for?")
        object.__setattr__(self, "values", decoded)
        object.__setattr__(self, "field", field)

    def reshape(self, num_layers: int, top_k: int, *, total_tokens: int, start_len: int = 0) -> ReplayRows:
        """Place the numbers: row ``r`` holds the choices made when token ``start + r`` was fed to the model.

        The last sampled token was never fed, so a full array has ``total_tokens - 1`` rows, and one that was asked for
        from ``start_len`` on has ``start_len`` fewer.  The response does not say which it is, and SGLang 0.5.8 to
        0.5.11 ignores ``routed_experts_start_len``: the number of elements decides.

        :param num_layers: all layers of the text model, dense ones included (their numbers are 0).
        :param top_k: experts per token (``num_experts_per_tok``, without shared ones), or the indexer's top-k.
        :param total_tokens: ``meta_info.prompt_tokens + meta_info.completion_tokens``; not the length of ``input_ids``,
            in which an image is one token.
        :param start_len: the request's ``routed_experts_start_len``; clamped to ``total_tokens - 1``, as in the server.
        :raises ReplayError: the count is neither that of a cropped nor that of a full array, or an argument is wrong.
        """
        layers, width = _count("num_layers", num_layers, least=1), _count("top_k", top_k, least=1)
        full = max(_count("total_tokens", total_tokens) - 1, 0)
        start = min(_count("start_len", start_len), full)
        found, row = len(self.values), layers * width
        if row > _MAX_ROW:
            raise ReplayError(
                f"num_layers={layers} x top_k={width} is more than {_MAX_ROW} numbers a token: no model's"
            )
        if found == (full - start) * row:
            return ReplayRows(self.values, start, (full - start, layers, width))
        if found == full * row:
            return ReplayRows(self.values, 0, (full, layers, width))
        expected = f"{full * row} ({full} rows x {layers} layers x {width})"
        if start:
            cropped = f"{(full - start) * row} ({full - start} rows x {layers} layers x {width}, cropped)"
            expected = f"{cropped} or {expected}"
        raise ReplayError(
            f"{self.field} has {found} elements, expected {expected} for total_tokens={total_tokens},"
            f" start_len={start_len}: check num_layers (dense layers count), top_k (shared experts do not),"
            " total_tokens (meta_info.prompt_tokens + completion_tokens) and the request's routed_experts_start_len"
        )

    def __len__(self) -> int:
        return len(self.values)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, ReplayArray):
            return NotImplemented
        return self.values == other.values

    def __hash__(self) -> int:
        return _hash(self.values)

    def __repr__(self) -> str:
        return f"ReplayArray({len(self.values)} numbers, field={self.field!r})"

    def __reduce__(self) -> tuple[Any, ...]:
        return _rebuild_array, (little_endian(self.values), self.field)


class ReplayRows:
    """A placed :class:`ReplayArray`; unpacks as ``rows, start, shape``.

    :ivar rows: number of rows.
    :ivar start: position of the first row's token in prompt + output; 0 for a full array.
    :ivar shape: ``(rows, num_layers, top_k)``.
    :ivar values: shape ``(rows * num_layers * top_k,)``, int32, read-only.
    """

    __slots__ = ("rows", "shape", "start", "values")

    def __init__(self, values: memoryview, start: int, shape: tuple[int, int, int]) -> None:
        self.values: memoryview = values
        self.start: int = start
        self.shape: tuple[int, int, int] = shape
        self.rows: int = shape[0]

    @property
    def array(self) -> memoryview:
        """The numbers as a view of :attr:`shape`, int32, read-only: ``numpy.asarray(placed.array)`` copies nothing."""
        if self.rows:
            return self.values.cast("B").cast("i", self.shape)
        # A cast cannot make an empty axis, a slice can.
        _, layers, width = self.shape
        return memoryview(bytes(4 * layers * width)).cast("i", (1, layers, width))[:0]

    def __iter__(self) -> Iterator[Any]:
        return iter((self.rows, self.start, self.shape))

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, ReplayRows):
            return NotImplemented
        return self.start == other.start and self.shape == other.shape and self.values == other.values

    def __hash__(self) -> int:
        return hash((self.start, self.shape, _hash(self.values)))

    def __reduce__(self) -> tuple[Any, ...]:
        return _rebuild_rows, (self.values.tobytes(), self.start, self.shape)

    def __repr__(self) -> str:
        return f"ReplayRows(rows={self.rows}, start={self.start}, shape={self.shape})"


def _check_offsets(offsets: memoryview, count: int) -> None:
    if len(offsets) == 0:
        raise ReplayError("top_p_token_offsets is empty: expected rows + 1 numbers, which is [0] for no rows")
    if offsets[0] != 0:
        raise ReplayError(f"top_p_token_offsets starts at {offsets[0]}, must start at 0: were rows cut off in front?")
    if any(map(gt, offsets, islice(offsets, 1, None))):
        at = next(i for i in range(1, len(offsets)) if offsets[i] < offsets[i - 1])
        raise ReplayError(
            f"top_p_token_offsets[{at}] falls from {offsets[at - 1]} to {offsets[at]}: offsets never fall"
        )
    if offsets[-1] != count:
        raise ReplayError(
            f"top_p_token_offsets ends at {offsets[-1]}, but top_p_token_ids has {count} elements: they must be equal;"
            " are both arrays of the same chunk?"
        )


def _count(name: str, value: Any, *, least: int = 0) -> int:
    """Take a caller's count: an integer of any kind, not below ``least``."""
    try:
        number = index(value)
    except TypeError:
        raise ReplayError(f"{name} must be an integer, got {type(value).__name__}") from None
    if not least <= number <= _MAX_COUNT:
        raise ReplayError(f"{name} must be an integer from {least} to {_MAX_COUNT}, got {shown(number)}")
    return number


def _joined(*parts: memoryview | array[int]) -> memoryview:
    return memoryview(b"".join(parts)).cast("i")


def _hash(values: memoryview) -> int:
    # Python hashes views of single bytes only; read-only ones without a copy.
    return hash(values.cast("B"))


def _rebuild_array(raw: bytes, field: str) -> ReplayArray:
    return ReplayArray(raw, field=field)


def _rebuild_rows(raw: bytes, start: int, shape: tuple[int, int, int]) -> ReplayRows:
    return ReplayRows(memoryview(raw).cast("i"), start, shape)
