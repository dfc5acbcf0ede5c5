"""Small charts as SVG text: bars and marks over a count, and a heat map.

Each is drawn twice, for a wide page and for a phone, so that its text is never shrunk; the page shows one of the two.
Drawn from numbers alone: no text of a model or a server gets into them but labels, which are escaped.  Colours are CSS
classes of the page around them.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from html import escape
from typing import NamedTuple

_BOTTOM, _TOP = 24, 10
_TICKS = 4
_ROW = 15
_SHADES = 5


class _Size(NamedTuple):
    """Of one drawing, in CSS pixels.

    :ivar left: for the labels; :ivar marks: as many as can be told apart.
    """

    name: str
    width: int
    height: int
    left: int
    marks: int


_SIZES = (_Size("wide", 900, 180, 64, 800), _Size("narrow", 350, 170, 52, 140))


class _Bucket(NamedTuple):
    """Neighbouring values that share a mark.

    :ivar first: position of the first of ``size``.
    """

    first: int
    size: int
    low: float
    high: float


def bars(values: Sequence[float], *, label: str, unit: str, text: Callable[[float], str]) -> str:
    """Bars from 0 upwards; where there are too many to draw, the highest of its neighbours stands for all."""
    if not values:
        return ""
    top = _round_up(max(values) or 1.0)

    def draw(size: _Size) -> str:
        place = _scale(0.0, top, size)
        buckets = _buckets(values, size)
        step = (size.width - size.left) / len(buckets)
        drawn = [
            f'<rect class="bar" x="{size.left + at * step:.2f}" y="{place(bucket.high):.2f}" '
            f'width="{max(step - 0.4, 0.6):.2f}" height="{place(0.0) - place(bucket.high):.2f}">'
            f"<title>{_where(bucket)}: {escape(text(bucket.high))}</title></rect>"
            for at, bucket in enumerate(buckets)
        ]
        return _frame(drawn, 0.0, top, place, len(values), label, unit, size)

    return _both(draw)


def marks(
    values: Sequence[float | None],
    *,
    label: str,
    unit: str,
    text: Callable[[float], str],
    style: Callable[[float], str],
) -> str:
    """A mark a value, hanging from 0 (logprobs); None leaves a gap."""
    known = [value for value in values if value is not None]
    if not known:
        return ""
    low = -_round_up(max(1e-3, -min(known)))

    def draw(size: _Size) -> str:
        place = _scale(low, 0.0, size)
        step = (size.width - size.left) / len(values)
        drawn: list[str] = []
        for bucket in _buckets(values, size):
            x = size.left + (bucket.first + bucket.size / 2) * step
            drawn.append(
                f'<g class="{escape(style(bucket.low))}"><line x1="{x:.2f}" x2="{x:.2f}" y1="{place(bucket.high):.2f}" '
                f'y2="{place(bucket.low):.2f}"/><circle cx="{x:.2f}" cy="{place(bucket.low):.2f}" r="2"/>'
                f"<title>{_where(bucket)}: {escape(text(bucket.low))}</title></g>"
            )
        return _frame(drawn, low, 0.0, place, len(values), label, unit, size)

    return _both(draw)


def heat_map(rows: Sequence[Mapping[int, int]], columns: int, *, label: str) -> str:
    """A cell for each row (a layer; one alone is all of them) and column, the darker the higher its count."""
    top = max((max(row.values(), default=0) for row in rows), default=0)
    if not columns or not top:
        return ""
    return _both(lambda size: _cells(rows, columns, top, label, size))


def _cells(rows: Sequence[Mapping[int, int]], columns: int, top: int, label: str, size: _Size) -> str:
    cell = min(max((size.width - size.left) / columns, 2.0), 24.0)
    names = [f"layer {at}" for at in range(len(rows))] if len(rows) > 1 else ["all layers"]
    drawn: list[str] = []
    for at, (name, row) in enumerate(zip(names, rows, strict=True)):
        y = _TOP + at * _ROW
        shown = name.removesuffix(" layers")
        drawn.append(f'<text x="{size.left - 6}" y="{y + _ROW - 4}" text-anchor="end">{shown}</text>')
        drawn += [
            f'<rect class="heat" x="{size.left + column * cell:.2f}" y="{y}" width="{cell * 0.94:.2f}" '
            f'height="{_ROW - 1}" fill-opacity="{row.get(column, 0) / top:.3f}">'
            f"<title>{name}, expert {column}: {row.get(column, 0):,}</title></rect>"
            for column in range(columns)
        ]
    width = max(size.left + columns * cell, size.width)
    below = _TOP + len(rows) * _ROW + 14
    drawn.append(f'<text x="{size.left}" y="{below}">expert 0</text>')
    if columns > 1 and columns * cell > 90:
        drawn.append(f'<text x="{size.left + columns * cell:.0f}" y="{below}" text-anchor="end">{columns - 1}</text>')
    # The scale: shades from never to most often.
    y = below + 10
    for shade in range(_SHADES):
        drawn.append(
            f'<rect class="heat frame" x="{size.left + shade * 24}" y="{y}" width="24" height="12" '
            f'fill-opacity="{shade / (_SHADES - 1):.2f}"/>'
        )
    drawn.append(f'<text x="{size.left - 6}" y="{y + 10}" text-anchor="end">0</text>')
    drawn.append(f'<text x="{size.left + _SHADES * 24 + 6}" y="{y + 10}">{top:,} times chosen</text>')
    return _svg("".join(drawn), width, y + 16, label)


def _both(draw: Callable[[_Size], str]) -> str:
    return "".join(f'<div class="{size.name}">{draw(size)}</div>' for size in _SIZES)


def _round_up(top: float) -> float:
    """The next number whose quarters are easy to read."""
    unit = 10.0 ** math.floor(math.log10(top / _TICKS))
    step = next(step for step in (1.0, 2.0, 2.5, 5.0, 10.0, 20.0) if step * unit * _TICKS >= top)
    return step * unit * _TICKS


def _buckets(values: Sequence[float | None], size: _Size) -> list[_Bucket]:
    each = max(math.ceil(len(values) / size.marks), 1)
    buckets: list[_Bucket] = []
    for first in range(0, len(values), each):
        known = [value for value in values[first : first + each] if value is not None]
        if known:
            count = min(each, len(values) - first)
            buckets.append(_Bucket(first, count, min(known), max(known)))
    return buckets


def _scale(low: float, high: float, size: _Size) -> Callable[[float], float]:
    span = (high - low) or 1.0
    inner = size.height - _TOP - _BOTTOM
    return lambda value: _TOP + (high - value) / span * inner


def _where(bucket: _Bucket) -> str:
    last = bucket.first + bucket.size - 1
    return f"#{bucket.first}" if last == bucket.first else f"#{bucket.first} to #{last}"


def _frame(
    drawn: Sequence[str],
    low: float,
    high: float,
    place: Callable[[float], float],
    count: int,
    label: str,
    unit: str,
    size: _Size,
) -> str:
    parts: list[str] = []
    for tick in range(_TICKS + 1):
        value = low + (high - low) * tick / _TICKS
        y = place(value)
        parts.append(
            f'<line class="grid" x1="{size.left}" x2="{size.width}" y1="{y:.1f}" y2="{y:.1f}"/>'
            f'<text x="{size.left - 6}" y="{y + 4:.1f}" text-anchor="end">{_tick(value)}</text>'
        )
    parts += drawn
    y = size.height - 5
    parts.append(f'<text x="{size.left}" y="{y}">0</text>')
    if count > 1:
        parts.append(f'<text x="{size.width}" y="{y}" text-anchor="end">{count - 1:,}</text>')
    middle = (size.left + size.width) / 2
    parts.append(f'<text x="{middle:.0f}" y="{y}" text-anchor="middle">{escape(unit)}</text>')
    return _svg("".join(parts), size.width, size.height, label)


def _tick(value: float) -> str:
    if abs(value) >= 1e5:
        return f"{value / 1000:,.0f}k"
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"


def _svg(inside: str, width: float, height: float, label: str) -> str:
    size = f'viewBox="0 0 {width:.0f} {height:.0f}" width="{width:.0f}" height="{height:.0f}"'
    return f'<svg role="img" aria-label="{escape(label)}" {size} xmlns="http://www.w3.org/2000/svg">{inside}</svg>'
