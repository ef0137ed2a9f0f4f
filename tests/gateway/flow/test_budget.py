from __future__ import annotations

import hypothesis.strategies as st
import pytest
from hypothesis import given

from gateway.flow.budget import MEMORY_S, RetryBudget


def spend(budget: RetryBudget, now: float) -> int:
    taken = 0
    while budget.withdraw(now):
        taken += 1
    return taken


def test_a_few_retries_are_there_from_the_start() -> None:
    assert spend(RetryBudget(0.2, min_per_s=3, now=0.0), 0.0) == 3 * MEMORY_S


def test_without_any_allowance_nothing_is_retried() -> None:
    budget = RetryBudget(0.0, min_per_s=0, now=0.0)
    budget.request()
    assert not budget.withdraw(1.0)


@pytest.mark.parametrize("rate", [1, 100, 5000])
def test_retries_of_everything_stay_a_share_of_the_requests(rate: int) -> None:
    budget = RetryBudget(0.2, min_per_s=3, now=0.0)
    retries = requests = 0
    for tenth in range(1, 1200):
        now = tenth / 10
        for _ in range(max(1, rate // 10)):
            budget.request()
            requests += 1
            retries += budget.withdraw(now)
    assert retries <= 0.2 * requests + 3 * now + 3 * MEMORY_S
    assert retries >= 0.9 * min(requests, 0.2 * requests)


def test_what_many_requests_left_pays_for_the_death_of_a_member_at_once() -> None:
    budget = RetryBudget(0.2, min_per_s=3, now=0.0)
    for tenth in range(600):
        for _ in range(100):
            budget.request()
        budget.balance(tenth / 10)
    assert spend(budget, 60.0) == pytest.approx((0.2 * 1000 + 3) * MEMORY_S, rel=0.02)


def test_what_was_not_used_is_forgotten() -> None:
    budget = RetryBudget(0.2, min_per_s=0, now=0.0)
    for _ in range(1000):
        budget.request()
    assert budget.balance(0.0) == 200
    assert budget.balance(10 * MEMORY_S) < 1


@given(
    ratio=st.floats(0, 1),
    min_per_s=st.floats(0, 10),
    steps=st.lists(st.tuples(st.floats(0, 30), st.integers(0, 20), st.integers(0, 30)), max_size=40),
)
def test_it_is_never_overdrawn_and_never_pays_more_than_was_earned(
    ratio: float, min_per_s: float, steps: list[tuple[float, int, int]]
) -> None:
    budget = RetryBudget(ratio, min_per_s, 0.0)
    now, requests, retries = 0.0, 0, 0
    for seconds, came, wanted in steps:
        now += seconds
        for _ in range(came):
            budget.request()
        requests += came
        retries += sum(budget.withdraw(now) for _ in range(wanted))
        assert budget.balance(now) >= 0
        assert retries <= ratio * requests + min_per_s * (now + MEMORY_S) + 1e-6
