"""Arithmetic on measurements: percentiles, medians with their spread, slopes, distributions. Pure."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

NOTHING = math.nan
"""The percentile of no values."""


def percentile(ordered: Sequence[float], share: float) -> float:
    """The value below which `share` (0 to 1) of the sorted values lie, interpolated. NaN of none."""
    if not ordered:
        return NOTHING
    place = share * (len(ordered) - 1)
    below = math.floor(place)
    above = min(below + 1, len(ordered) - 1)
    return ordered[below] + (ordered[above] - ordered[below]) * (place - below)


def median(values: Sequence[float]) -> float:
    """The middle of any values. NaN of none."""
    return percentile(sorted(values), 0.5)


def mean(values: Sequence[float]) -> float:
    """Their mean. NaN of none."""
    return math.fsum(values) / len(values) if values else NOTHING


@dataclass(frozen=True, slots=True)
class Spread:
    """The rounds of one measurement."""

    median: float
    low: float
    high: float

    @classmethod
    def of(cls, values: Sequence[float]) -> Spread:
        """Median, least and most. NaN of none."""
        if not values:
            return cls(NOTHING, NOTHING, NOTHING)
        return cls(median(values), min(values), max(values))


def slope(points: Sequence[tuple[float, float]]) -> float:
    """Least squares: how much y grows for each x. NaN where x does not vary."""
    mean_x, mean_y = mean([x for x, _ in points]), mean([y for _, y in points])
    spread = math.fsum((x - mean_x) ** 2 for x, _ in points)
    if not points or spread == 0:
        return NOTHING
    return math.fsum((x - mean_x) * (y - mean_y) for x, y in points) / spread


def ratio(mine: float, other: float) -> float:
    """`mine / other`, NaN where there is nothing to divide by."""
    return mine / other if other else NOTHING


def paired_ratio(mine: Sequence[float], other: Sequence[float]) -> float:
    """The median of the rounds' ratios: what drifts between rounds cancels out within one."""
    return median([ratio(a, b) for a, b in zip(mine, other, strict=True)])


def distribution(values: Sequence[float], points: int = 60) -> list[tuple[float, float]]:
    """(value, share of values at or below it), thinned to `points`, dense at the tail."""
    ordered = sorted(values)
    shares = [1 - (1 - index / (points - 1)) ** 2 for index in range(points)]
    return [(percentile(ordered, share), share) for share in shares] if ordered else []
