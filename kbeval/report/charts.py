"""Drawings as inline SVG, without text: it is next to them, in tables, so that screen readers can read everything.

Positions along the width are percentages, so that drawings fill any width without being distorted.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from markupsafe import Markup

_ROW = 22
# The meaning of a mark (better, worse, undecided) is shown by its shape as well as its colour.
_SHAPES = {
    "better": "M0,-6 L5.5,4 L-5.5,4 Z",
    "worse": "M0,6 L5.5,-4 L-5.5,-4 Z",
    "undecided": "M0,-5 L5,0 L0,5 L-5,0 Z",
    "neutral": "M-4,-4 L4,-4 L4,4 L-4,4 Z",
}


@dataclass(frozen=True)
class Axis:
    """The range of values of a drawing."""

    low: float
    high: float
    ticks: Sequence[float]

    def place(self, value: float) -> str:
        """The position of a value, as a percentage of the width."""
        inside = min(max(value, self.low), self.high)
        return f"{_number(100 * (inside - self.low) / (self.high - self.low))}%"


def difference_axis(limits: Sequence[float]) -> Axis:
    """An axis around 0 that includes all of these values, and ends at a round number."""
    largest = max((abs(limit) for limit in limits), default=0.0)
    end = next((step for step in (0.05, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.8, 1.0) if largest <= step), None)
    if end is None:
        power = 10.0 ** math.floor(math.log10(largest))
        end = next(step * power for step in (1, 2, 5, 10) if largest <= step * power)
    return Axis(-end, end, (-end, -end / 2, 0.0, end / 2, end))


SHARES = Axis(0.0, 1.0, (0.0, 0.25, 0.5, 0.75, 1.0))


def ruler(axis: Axis) -> Markup:
    """The ticks of an axis; their numbers are text in the page."""
    lines = "".join(
        f'<line class="{"zero" if tick == 0 and axis.low < 0 else "tick"}" x1="{axis.place(tick)}"'
        f' x2="{axis.place(tick)}" y1="0" y2="{_ROW}"/>'
        for tick in axis.ticks
    )
    return _svg("ruler", _ROW, lines)


def interval(axis: Axis, value: float | None, low: float | None, high: float | None, kind: str) -> Markup:
    """One value with its interval; `kind` is a shape."""
    parts = [
        f'<line class="{"zero" if tick == 0 and axis.low < 0 else "tick"}" x1="{axis.place(tick)}"'
        f' x2="{axis.place(tick)}" y1="0" y2="{_ROW}"/>'
        for tick in axis.ticks
    ]
    middle = _ROW / 2
    if low is not None and high is not None:
        start, end = axis.place(low), axis.place(high)
        parts.append(f'<line class="range {kind}" x1="{start}" x2="{end}" y1="{middle:g}" y2="{middle:g}"/>')
        parts += [
            f'<line class="range {kind}" x1="{x}" x2="{x}" y1="{middle - 4:g}" y2="{middle + 4:g}"/>'
            for x in (start, end)
        ]
    if value is not None:
        # A nested drawing, because only its position can be a percentage.
        parts.append(
            f'<svg x="{axis.place(value)}" y="{middle:g}" overflow="visible"><path class="mark {kind}"'
            f' d="{_SHAPES[kind]}"/></svg>'
        )
    return _svg("interval", _ROW, "".join(parts))


def bar(count: float, most: float, kind: str = "count") -> Markup:
    """A bar whose length is its share of the longest one."""
    width = _number(100 * count / most) if most else "0"
    return _svg("bar", 14, f'<rect class="bar {kind}" x="0" y="2" width="{width}%" height="10"/>')


# --- hits and misses ---------------------------------------------------------------------------------

FLOWS = ("hh", "hm", "mh", "mm")
_GAP = 6.0


def flow(counts: Mapping[str, int]) -> Markup:
    """Ribbons from what A found and missed on the left to what B found and missed on the right."""
    total = sum(counts[name] for name in FLOWS)
    if not total:
        return Markup()
    scale = (100 - _GAP) / total
    size = {name: counts[name] * scale for name in FLOWS}
    hits_a = size["hh"] + size["hm"]
    hits_b = size["hh"] + size["mh"]
    left = {"hh": 0.0, "hm": size["hh"], "mh": hits_a + _GAP, "mm": hits_a + _GAP + size["mh"]}
    right = {"hh": 0.0, "mh": size["hh"], "hm": hits_b + _GAP, "mm": hits_b + _GAP + size["hm"]}
    ribbons = "".join(_ribbon(name, left[name], right[name], size[name]) for name in FLOWS if counts[name])
    ends = "".join(
        f'<rect class="end {kind}" x="{x}" y="{_number(y)}" width="1.2" height="{_number(height)}"/>'
        for kind, x, y, height in (
            ("hit", 0, 0.0, hits_a),
            ("miss", 0, hits_a + _GAP, 100 - _GAP - hits_a),
            ("hit", 98.8, 0.0, hits_b),
            ("miss", 98.8, hits_b + _GAP, 100 - _GAP - hits_b),
        )
        if height > 0
    )
    return _svg("flow", 150, f"{ribbons}{ends}", ' viewBox="0 0 100 100" preserveAspectRatio="none"')


def _ribbon(name: str, left: float, right: float, size: float) -> str:
    # A minimum size, so that one query in ten thousand is visible.
    size = max(size, 0.4)
    points = [_number(y) for y in (left, right, right + size, left + size)]
    return (
        f'<path class="ribbon {name}" data-flow="{name}"'
        f' d="M1.2,{points[0]} C45,{points[0]} 55,{points[1]} 98.8,{points[1]}'
        f' L98.8,{points[2]} C55,{points[2]} 45,{points[3]} 1.2,{points[3]} Z"/>'
    )


# --- over time ---------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Spot:
    """A value of a series; `joined`: a line connects it with the previous one."""

    place: int
    value: float
    joined: bool


def time_line(places: int, axis: Axis, series: Sequence[Sequence[Spot]], marks: Mapping[int, str]) -> Markup:
    """Values over runs. `marks`: where something changed, `break` or `config`."""
    height = 160.0

    def x(place: int) -> str:
        return f"{_number(100 * (place + 0.5) / places)}%"

    def y(value: float) -> str:
        share = (min(max(value, axis.low), axis.high) - axis.low) / (axis.high - axis.low)
        return _number(8 + (height - 16) * (1 - share))

    parts = [f'<line class="tick" x1="0" x2="100%" y1="{y(tick)}" y2="{y(tick)}"/>' for tick in axis.ticks]
    parts += [
        f'<line class="change {kind}" x1="{x(place)}" x2="{x(place)}" y1="0" y2="{_number(height)}"/>'
        for place, kind in sorted(marks.items())
    ]
    for number, spots in enumerate(series):
        kind = f"series s{number % 6}"
        for before, spot in itertools.pairwise(spots):
            if spot.joined:
                parts.append(
                    f'<line class="{kind}" x1="{x(before.place)}" y1="{y(before.value)}" x2="{x(spot.place)}"'
                    f' y2="{y(spot.value)}"/>'
                )
        parts += [
            f'<circle class="{kind}" cx="{x(spot.place)}" cy="{y(spot.value)}" r="{3 if places <= 120 else 1.5}"/>'
            for spot in spots
        ]
    return _svg("time", height, "".join(parts))


def value_axis(values: Sequence[float]) -> Axis:
    """An axis for values over time: from 0 to 1 for shares that vary a lot, otherwise close to the values."""
    low, high = min(values, default=0.0), max(values, default=1.0)
    if low >= 0 and high <= 1:
        if high - low > 0.4:
            return SHARES
        low, high = max(0.0, low - 0.05), min(1.0, high + 0.05)
    step = _step((high - low) or abs(high) or 1.0)
    first, last = math.floor(low / step), math.ceil(high / step)
    last = max(last, first + 1)
    return Axis(first * step, last * step, tuple(round(tick * step, 10) for tick in range(first, last + 1)))


def _step(span: float) -> float:
    """A round number that divides the span into three to six steps."""
    rough = span / 4
    power = 10.0 ** math.floor(math.log10(rough))
    return next(step * power for step in (1, 2, 2.5, 5, 10) if rough <= step * power * 1.0001)


def _svg(kind: str, height: float, content: str, more: str = "") -> Markup:
    """A drawing as wide as its container. It contains numbers and fixed words, never text from data."""
    own = f'class="{kind}" aria-hidden="true" focusable="false" width="100%" height="{height:g}"{more}'
    return Markup(f"<svg {own}>{content}</svg>")  # noqa: S704


def _number(value: float) -> str:
    """At most two decimals, in the shortest form: the same drawing gives the same bytes."""
    return f"{round(value, 2) + 0.0:g}" if abs(value) < 1e6 else f"{value:.0f}"
