"""Whether something grows: the slope of a measured series, with its confidence. Pure.

Ordinary least squares over means of blocks, because what is measured each second resembles the second before,
and single values would make the slope look surer than it is.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

BLOCKS = 20
PER_HOUR = 3600.0


@dataclass(frozen=True, slots=True)
class Trend:
    """Units an hour."""

    slope: float
    half_width: float
    """Of the 95 % confidence interval; infinite where there is too little to say."""

    @property
    def low(self) -> float:
        return self.slope - self.half_width

    def grows_by(self, limit: float) -> bool:
        """Whether it surely grows by more than this."""
        return self.low > limit

    def __str__(self) -> str:
        return f"{self.slope:+.2f} ± {self.half_width:.2f} an hour"


def trend(points: Sequence[tuple[float, float]]) -> Trend:
    """Of (seconds, value), in order of time."""
    means = _blocks(points)
    count = len(means)
    if count < 3:
        return Trend(0.0, math.inf)
    middle = sum(x for x, _ in means) / count
    level = sum(y for _, y in means) / count
    spread = sum((x - middle) ** 2 for x, _ in means)
    if spread == 0:
        return Trend(0.0, math.inf)
    slope = sum((x - middle) * (y - level) for x, y in means) / spread
    rest = sum((y - level - slope * (x - middle)) ** 2 for x, y in means)
    error = math.sqrt(rest / (count - 2) / spread)
    return Trend(slope * PER_HOUR, _t95(count - 2) * error * PER_HOUR)


def _blocks(points: Sequence[tuple[float, float]]) -> list[tuple[float, float]]:
    size = max(1, len(points) // BLOCKS)
    parts = [points[at : at + size] for at in range(0, len(points) - size + 1, size)]
    return [(sum(x for x, _ in part) / size, sum(y for _, y in part) / size) for part in parts]


def _t95(freedom: int) -> float:
    """Student's t, two-sided 95 %, to within 2 % from four degrees of freedom on."""
    return 1.96 + 2.4 / freedom + 2.8 / freedom**2
