from __future__ import annotations

from math import inf

import hypothesis.strategies as st
from hypothesis import given

from gateway.fleet.breaker import JITTER, Breaker, Position


def opened(now: float = 0.0) -> Breaker:
    breaker = Breaker(after=3, open_s=5, max_s=30)
    for _ in range(3):
        breaker.failed(now, 0.0)
    return breaker


def test_it_opens_at_the_last_of_its_failures_in_a_row() -> None:
    breaker = Breaker(after=3, open_s=5, max_s=30)
    assert [breaker.failed(0.0, 0.0) for _ in range(3)] == [False, False, True]
    assert breaker.position is Position.OPEN
    assert breaker.until == 5.0


def test_a_success_between_failures_begins_the_count_anew() -> None:
    breaker = Breaker(after=3, open_s=5, max_s=30)
    for _ in range(20):
        assert not breaker.failed(0.0, 0.0)
        assert not breaker.failed(0.0, 0.0)
        assert not breaker.ok()
    assert breaker.position is Position.CLOSED


def test_it_is_half_open_when_its_time_is_up_and_not_before() -> None:
    breaker = opened()
    assert not breaker.cool(4.9)
    assert breaker.cool(5.0)
    assert not breaker.cool(5.1), "said once"
    assert breaker.position is Position.HALF_OPEN


def test_a_success_on_trial_closes_it() -> None:
    breaker = opened()
    breaker.cool(5.0)
    assert breaker.ok()
    assert (breaker.position, breaker.failures, breaker.until) == (Position.CLOSED, 0, inf)


def test_one_failure_on_trial_opens_it_for_twice_as_long_up_to_the_limit() -> None:
    breaker = opened()
    now, lengths = 0.0, []
    for _ in range(5):
        lengths.append(breaker.until - now)
        now = breaker.until
        breaker.cool(now)
        assert breaker.failed(now, 0.0)
    assert lengths == [5, 10, 20, 30, 30]


def test_a_success_makes_the_next_opening_short_again_and_closing_without_one_does_not() -> None:
    proved, believed = opened(), opened()
    for breaker in (proved, believed):
        breaker.cool(5.0)
    proved.ok()
    believed.close()
    for breaker in (proved, believed):
        for _ in range(3):
            breaker.failed(100.0, 0.0)
    assert (proved.until, believed.until) == (105.0, 110.0)


def test_requests_older_than_the_opening_neither_close_nor_lengthen_it() -> None:
    breaker = opened()
    assert not breaker.ok()
    assert not breaker.failed(1.0, 0.0)
    assert (breaker.position, breaker.until) == (Position.OPEN, 5.0)


@given(jitter=st.floats(0, 1, exclude_max=True))
def test_jitter_only_lengthens_it_and_by_a_bounded_share(jitter: float) -> None:
    breaker = Breaker(after=1, open_s=10, max_s=30)
    breaker.failed(0.0, jitter)
    assert 10 <= breaker.until <= 10 * (1 + JITTER)
