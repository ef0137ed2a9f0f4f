from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from loadtests.stats import Spread, distribution, mean, median, paired_ratio, percentile, slope

values = st.lists(st.floats(-1e6, 1e6), min_size=1, max_size=50)


def test_percentiles_are_interpolated() -> None:
    assert percentile([1.0, 2.0, 3.0, 4.0], 0.5) == 2.5
    assert percentile([10.0, 20.0], 0.99) == pytest.approx(19.9)
    assert percentile([7.0], 0.99) == 7.0


@given(values, st.floats(0, 1))
def test_a_percentile_lies_among_the_values(found: list[float], share: float) -> None:
    ordered = sorted(found)
    assert ordered[0] - 1e-6 <= percentile(ordered, share) <= ordered[-1] + 1e-6


def test_nothing_has_no_percentile() -> None:
    assert math.isnan(percentile([], 0.5))
    assert math.isnan(mean([]))
    assert math.isnan(Spread.of([]).median)
    assert distribution([]) == []


def test_the_spread_is_the_median_with_the_extremes() -> None:
    assert Spread.of([3.0, 1.0, 2.0]) == Spread(2.0, 1.0, 3.0)


def test_a_slope_is_found_in_noise_and_absent_without_extent() -> None:
    assert slope([(x, 3 * x + (-1) ** x) for x in range(100)]) == pytest.approx(3, rel=0.01)
    assert math.isnan(slope([(1, 1), (1, 2)]))
    assert math.isnan(slope([]))


def test_paired_ratios_do_not_see_a_machine_that_slows_down() -> None:
    theirs = [100.0, 50.0, 25.0]
    assert paired_ratio([2 * rate for rate in theirs], theirs) == 2.0
    assert median([200.0, 50.0, 25.0]) == 50.0


@given(values)
def test_a_distribution_rises_to_all_of_the_values(found: list[float]) -> None:
    points = distribution(found)
    assert points == sorted(points)
    assert points[-1][1] == 1.0
    assert points[-1][0] == pytest.approx(max(found))
