"""Small pictures as SVG text: bars and marks over a count, and a heat map.

Drawn from numbers alone: no text of a model or a server gets into them but labels, which are escaped.  Colours are CSS
classes of the page around them.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from html import escape
from typing import NamedTuple

_WIDTH, _HEIGHT = 900, 180
_LEFT, _BOTTOM, _TOP = 64, 22, 8
_MOST_MARKS = 800
_TICKS = 4


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
    buckets = _buckets(values)
    if not buckets:
        return ""
    top = _round_up(max(bucket.high for bucket in buckets) or 1.0)
    place = _scale(0.0, top)
    step = (_WIDTH - _LEFT) / len(buckets)
    marks = [
        f'<rect class="bar" x="{_LEFT + at * step:.2f}" y="{place(bucket.high):.2f}" '
        f'width="{max(step - 0.4, 0.6):.2f}" '
        f'height="{place(0.0) - place(bucket.high):.2f}">'
        f"<title>{_where(bucket)}: {escape(text(bucket.high))}</title></rect>"
        for at, bucket in enumerate(buckets)
    ]
    return _frame(marks, 0.0, top, place, len(values), label, unit)


def marks(
    values: Sequence[float | None],
    *,
    label: str,
    unit: str,
    text: Callable[[float], str],
    style: Callable[[float], str],
) -> str:
    """A mark a value, hanging from 0 (logprobs); None leaves a gap."""
    buckets = _buckets(values)
    if not buckets:
        return ""
    low = -_round_up(max(1e-3, *(-bucket.low for bucket in buckets)))
    place = _scale(low, 0.0)
    step = (_WIDTH - _LEFT) / max(len(values), 1)
    drawn: list[str] = []
    for bucket in buckets:
        x = _LEFT + (bucket.first + bucket.size / 2) * step
        name = escape(style(bucket.low))
        drawn.append(
            f'<g class="{name}"><line x1="{x:.2f}" x2="{x:.2f}" y1="{place(bucket.high):.2f}" '
            f'y2="{place(bucket.low):.2f}"/><circle cx="{x:.2f}" cy="{place(bucket.low):.2f}" r="2"/>'
            f"<title>{_where(bucket)}: {escape(text(bucket.low))}</title></g>"
        )
    return _frame(drawn, low, 0.0, place, len(values), label, unit)


def heat_map(rows: Sequence[Mapping[int, int]], columns: int, *, label: str) -> str:
    """A cell for each row (a layer; one alone is all of them) and column, the darker the higher its count."""
    names = [f"layer {at}" for at in range(len(rows))] if len(rows) > 1 else ["all layers"]
    top = max((max(row.values(), default=0) for row in rows), default=0)
    if not columns or not top:
        return ""
    cell = min(max((_WIDTH - _LEFT) / columns, 2.0), 24.0)
    height = _TOP + len(rows) * cell + _BOTTOM
    cells = [
        f'<rect class="heat" x="{_LEFT + column * cell:.2f}" y="{_TOP + at * cell:.2f}" width="{cell * 0.94:.2f}" '
        f'height="{cell * 0.94:.2f}" fill-opacity="{row.get(column, 0) / top:.3f}">'
        f"<title>{name}, expert {column}: {row.get(column, 0):,}</title></rect>"
        for at, (name, row) in enumerate(zip(names, rows, strict=True))
        for column in range(columns)
    ]
    axis = (
        f'<text x="{_LEFT}" y="{height - 6:.0f}">expert 0</text>'
        f'<text x="{_LEFT + columns * cell:.0f}" y="{height - 6:.0f}" text-anchor="end">{columns - 1}</text>'
        f'<text x="{_LEFT - 6}" y="{_TOP + 10}" text-anchor="end">{names[0].removesuffix(" layers")}</text>'
    )
    width = max(_LEFT + columns * cell, 240)
    return _svg("".join(cells) + axis, width, height, label)


def _round_up(top: float) -> float:
    """The next number whose quarters are easy to read."""
    unit = 10.0 ** math.floor(math.log10(top / _TICKS))
    step = next(step for step in (1.0, 2.0, 2.5, 5.0, 10.0, 20.0) if step * unit * _TICKS >= top)
    return step * unit * _TICKS


def _buckets(values: Sequence[float | None]) -> list[_Bucket]:
    size = max(math.ceil(len(values) / _MOST_MARKS), 1)
    buckets: list[_Bucket] = []
    for first in range(0, len(values), size):
        known = [value for value in values[first : first + size] if value is not None]
        if known:
            count = min(size, len(values) - first)
            buckets.append(_Bucket(first, count, min(known), max(known)))
    return buckets


def _scale(low: float, high: float) -> Callable[[float], float]:
    span = (high - low) or 1.0
    inner = _HEIGHT - _TOP - _BOTTOM
    return lambda value: _TOP + (high - value) / span * inner


def _where(bucket: _Bucket) -> str:
    last = bucket.first + bucket.size - 1
    return f"#{bucket.first}" if last == bucket.first else f"#{bucket.first} to #{last}"


def _frame(
    drawn: Sequence[str], low: float, high: float, place: Callable[[float], float], count: int, label: str, unit: str
) -> str:
    parts: list[str] = []
    for tick in range(_TICKS + 1):
        value = low + (high - low) * tick / _TICKS
        y = place(value)
        parts.append(
            f'<line class="grid" x1="{_LEFT}" x2="{_WIDTH}" y1="{y:.1f}" y2="{y:.1f}"/>'
            f'<text x="{_LEFT - 6}" y="{y + 4:.1f}" text-anchor="end">{_tick(value)}</text>'
        )
    parts += drawn
    parts.append(f'<text x="{_LEFT}" y="{_HEIGHT - 4}">0</text>')
    parts.append(f'<text x="{_WIDTH}" y="{_HEIGHT - 4}" text-anchor="end">{count - 1:,}</text>')
    parts.append(f'<text x="{(_LEFT + _WIDTH) / 2:.0f}" y="{_HEIGHT - 4}" text-anchor="middle">{escape(unit)}</text>')
    return _svg("".join(parts), _WIDTH, _HEIGHT, label)


def _tick(value: float) -> str:
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"


def _svg(inside: str, width: float, height: float, label: str) -> str:
    size = f'viewBox="0 0 {width:.0f} {height:.0f}" width="{width:.0f}" height="{height:.0f}"'
    return f'<svg role="img" aria-label="{escape(label)}" {size} xmlns="http://www.w3.org/2000/svg">{inside}</svg>'
