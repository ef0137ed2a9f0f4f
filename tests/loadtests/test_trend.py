from __future__ import annotations

import math
from random import Random

import pytest

from loadtests.trend import trend


def test_a_straight_line_has_its_slope() -> None:
    found = trend([(second, 10 + second / 360) for second in range(600)])
    assert found.slope == pytest.approx(10)
    assert found.half_width == pytest.approx(0, abs=1e-6)
    assert found.grows_by(9)
    assert not found.grows_by(11)


def test_what_only_flutters_does_not_grow() -> None:
    random = Random(3)
    grew = 0
    for _ in range(200):
        found = trend([(second, random.gauss(100, 5)) for second in range(400)])
        grew += found.grows_by(0)
    # One in forty is above its interval by chance.
    assert grew <= 12


def test_a_leak_is_seen_through_the_flutter() -> None:
    random = Random(4)
    found = trend([(second, random.gauss(100, 2) + second * 60 / 3600) for second in range(1200)])
    assert found.low < 60 < found.slope + found.half_width
    assert found.grows_by(20)


@pytest.mark.parametrize("points", [[], [(0.0, 1.0)], [(5.0, 1.0)] * 100])
def test_too_little_says_nothing(points: list[tuple[float, float]]) -> None:
    assert math.isinf(trend(points).half_width)
