from __future__ import annotations

from itertools import pairwise

import pytest

from loadtests.arrivals import ARRIVALS, BURST, bursts, constant, poisson
from loadtests.stats import mean


@pytest.mark.parametrize("kind", sorted(ARRIVALS))
def test_a_schedule_is_sorted_and_ends_in_time(kind: str) -> None:
    times = ARRIVALS[kind](50.0, 20.0, 3)
    assert times == sorted(times)
    assert times[0] >= 0 and times[-1] < 20


@pytest.mark.parametrize("kind", sorted(ARRIVALS))
def test_the_same_seed_gives_the_same_load_at_the_rate_asked_for(kind: str) -> None:
    times = ARRIVALS[kind](50.0, 400.0, 3)
    assert times == ARRIVALS[kind](50.0, 400.0, 3)
    assert len(times) == pytest.approx(50 * 400, rel=0.1)


def test_another_seed_gives_other_moments() -> None:
    assert poisson(10, 10, 1) != poisson(10, 10, 2)
    assert bursts(10, 10, 1) != bursts(10, 10, 2)


def test_poisson_gaps_vary_as_much_as_they_are_long() -> None:
    times = poisson(100, 200, 7)
    gaps = [after - before for before, after in pairwise(times)]
    average = mean(gaps)
    deviation = mean([(gap - average) ** 2 for gap in gaps]) ** 0.5
    assert deviation == pytest.approx(average, rel=0.05)


def test_constant_gaps_do_not_vary() -> None:
    assert constant(4, 1) == [0, 0.25, 0.5, 0.75]


def test_a_burst_comes_at_one_moment() -> None:
    times = bursts(100, 10, 1)
    assert all(len(set(times[start : start + BURST])) == 1 for start in range(0, len(times), BURST))
