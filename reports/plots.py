"""Plots as SVG text: lines, points and bars, with axes that a person would choose. Pure, standard library.

Colours are CSS variables of the page (`--c0` to `--c7`, `--ink`, `--grid`), so they follow its light or
dark form; series differ in dash as well as in colour. Sizes are in SVG units and scale with the page.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape

Point = tuple[float, float]

WIDTH, HEIGHT = 440, 280
LEFT, RIGHT, TOP, BOTTOM = 54, 22, 12, 40
COLOURS = 8
DASHES = ("", "7 3", "2 3", "9 3 2 3")


@dataclass(frozen=True, slots=True)
class Axis:
    """One axis: its range, its scale."""

    low: float
    high: float
    log: bool = False

    def place(self, value: float) -> float:
        """0 to 1 along the axis; values outside lie at its ends."""
        if self.log:
            low, high, value = math.log10(self.low), math.log10(self.high), math.log10(max(value, self.low))
        else:
            low, high = self.low, self.high
        return min(1.0, max(0.0, (value - low) / (high - low)))

    def ticks(self) -> list[float]:
        """Round values along it."""
        if self.log:
            first, last = math.floor(math.log10(self.low)), math.ceil(math.log10(self.high))
            found = [10.0**power for power in range(first, last + 1)]
            return [value for value in found if self.low <= value <= self.high]
        step = _round_step((self.high - self.low) / 5)
        count = math.floor((self.high - self.low) / step + 1e-9)
        return [self.low + index * step for index in range(count + 1)]


def axis(values: Sequence[float], *, log: bool, from_zero: bool) -> Axis:
    """The axis for these values; a logarithmic one leaves out what is not above 0."""
    known = [value for value in values if math.isfinite(value) and (value > 0 or not log)]
    if not known:
        return Axis(1.0, 10.0, log) if log else Axis(0.0, 1.0)
    low, high = min(known), max(known)
    if log:
        low, high = 10.0 ** math.floor(math.log10(low)), 10.0 ** math.ceil(math.log10(high))
        return Axis(low, high if high > low else low * 10, True)
    low = min(0.0, low) if from_zero else low
    if high == low:
        high = low + 1
    step = _round_step((high - low) / 5)
    return Axis(math.floor(low / step) * step, math.ceil(high / step - 1e-9) * step)


def _round_step(rough: float) -> float:
    power = 10.0 ** math.floor(math.log10(rough))
    return next(power * factor for factor in (1, 2, 2.5, 5, 10) if power * factor >= rough - 1e-12)


def number(value: float) -> str:
    """A number as a label: at most four digits that say something."""
    if not math.isfinite(value):
        return "–"
    if value == 0:
        return "0"
    if abs(value) >= 10_000:
        return f"{value / 1000:,.4g}k" if abs(value) < 1e6 else f"{value / 1e6:,.4g}M"
    return f"{value:.4g}"


def lines(
    series: Sequence[tuple[str, Sequence[Point]]], x: Axis, y: Axis, labels: tuple[str, str], *, dots: bool
) -> str:
    """Each series as a line, with dots where the points are measurements of their own."""
    drawn = []
    for index, (name, points) in enumerate(series):
        known = [(a, b) for a, b in points if math.isfinite(b) and not (y.log and b <= 0)]
        where = [(_across(x, a), _up(y, b)) for a, b in known]
        path = " ".join(f"{a:.1f},{b:.1f}" for a, b in where)
        style = f'stroke="var(--c{index % COLOURS})" stroke-dasharray="{DASHES[index % len(DASHES)]}"'
        drawn.append(
            f'<polyline class="line" {style} points="{path}"><title>{escape(name)}</title></polyline>'
        )
        if dots:
            drawn += [
                f'<circle r="3" cx="{a:.1f}" cy="{b:.1f}" fill="var(--c{index % COLOURS})">'
                f"<title>{escape(name)}: {number(px)}, {number(py)}</title></circle>"
                for (a, b), (px, py) in zip(where, known, strict=True)
            ]
    return _frame(_x_ticks(x) + _y_ticks(y) + "".join(drawn), labels)


def points(places: Sequence[Point], labels: tuple[str, str]) -> str:
    """What two sides say of the same things, with the diagonal on which they agree; both axes are one."""
    both = axis([value for place in places for value in place], log=False, from_zero=True)
    low, high = both.low, both.high
    drawn = [
        f'<line class="equal" x1="{_across(both, low):.1f}" y1="{_up(both, low):.1f}" '
        f'x2="{_across(both, high):.1f}" y2="{_up(both, high):.1f}"/>'
    ]
    drawn += [
        f'<circle class="point" r="1.8" cx="{_across(both, a):.1f}" cy="{_up(both, b):.1f}"/>'
        for a, b in places
    ]
    return _frame(_x_ticks(both) + _y_ticks(both) + "".join(drawn), labels)


def bars(rows: Sequence[tuple[str, float]], label: str, *, log: bool) -> str:
    """Horizontal bars, one a row, each with its name above and its value behind it.

    The first is what the plot is about, and has a colour of its own.
    """
    x = axis([value for _, value in rows] or [1.0], log=log, from_zero=True)
    height = 34 * len(rows) + BOTTOM
    drawn = []
    for index, (name, value) in enumerate(rows):
        top = 34 * index
        width = x.place(value) * (WIDTH - 90) if math.isfinite(value) else 0.0
        drawn.append(
            f'<text x="2" y="{top + 13}">{escape(name)}</text>'
            f'<rect x="2" y="{top + 17}" width="{max(1.0, width):.1f}" height="12" rx="2" '
            f'fill="var({"--c6" if index else "--c0"})"/>'
            f'<text x="{width + 8:.1f}" y="{top + 27}" class="value">{number(value)}</text>'
        )
    drawn.append(f'<text x="2" y="{height - 14}" class="axis">{escape(label)}{" (logarithmic)" * log}</text>')
    return f'<svg viewBox="0 0 {WIDTH} {height}" role="img">{"".join(drawn)}</svg>'


def _across(x: Axis, value: float) -> float:
    return LEFT + x.place(value) * (WIDTH - LEFT - RIGHT)


def _up(y: Axis, value: float) -> float:
    return HEIGHT - BOTTOM - y.place(value) * (HEIGHT - TOP - BOTTOM)


def _x_ticks(x: Axis) -> str:
    bottom = HEIGHT - BOTTOM
    return "".join(
        f'<line class="grid" x1="{_across(x, tick):.1f}" x2="{_across(x, tick):.1f}" y1="{TOP}" '
        f'y2="{bottom}"/><text x="{_across(x, tick):.1f}" y="{bottom + 15}" text-anchor="middle">'
        f"{number(tick)}</text>"
        for tick in x.ticks()
    )


def _y_ticks(y: Axis) -> str:
    return "".join(
        f'<line class="grid" x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{_up(y, tick):.1f}" '
        f'y2="{_up(y, tick):.1f}"/><text x="{LEFT - 5}" y="{_up(y, tick) + 4:.1f}" '
        f'text-anchor="end">{number(tick)}</text>'
        for tick in y.ticks()
    )


def _frame(content: str, labels: tuple[str, str]) -> str:
    across, up = labels
    return (
        f'<svg viewBox="0 0 {WIDTH} {HEIGHT}" role="img">{content}'
        f'<text class="axis" x="{(LEFT + WIDTH - RIGHT) / 2}" y="{HEIGHT - 6}" '
        f'text-anchor="middle">{escape(across)}</text>'
        f'<text class="axis" transform="translate(11 {(HEIGHT - BOTTOM) / 2}) rotate(-90)" '
        f'text-anchor="middle">{escape(up)}</text></svg>'
    )
