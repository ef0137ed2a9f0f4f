from __future__ import annotations

import hypothesis.strategies as st
import pytest
from hypothesis import given, settings
from hypothesis.stateful import Bundle, RuleBasedStateMachine, invariant, multiple, rule

from gateway.flow.quota import Grant, Limit, LocalQuota, OverQuota
from gateway.settings.tree import Key


def key(name: str = "alice", **limits: int) -> Key:
    return Key.model_validate({"name": name, "sha256": "0" * 64, **limits})


def quota(**limits: int) -> LocalQuota:
    return LocalQuota([key(**limits)], 0.0)


def granted(of: LocalQuota, now: float, tokens: int = 1) -> Grant:
    grant = of.take("alice", tokens, now)
    assert isinstance(grant, Grant)
    return grant


def refused(of: LocalQuota, now: float, tokens: int = 1) -> OverQuota:
    refusal = of.take("alice", tokens, now)
    assert isinstance(refusal, OverQuota)
    return refusal


def test_a_key_without_limits_is_never_refused() -> None:
    free = quota()
    for _ in range(1000):
        granted(free, 0.0, tokens=1_000_000)


def test_a_minutes_requests_may_come_at_once_and_then_evenly() -> None:
    limited = quota(requests_per_minute=60)
    for _ in range(60):
        granted(limited, 0.0)
    assert refused(limited, 0.0) == OverQuota(Limit.REQUESTS, 1)
    granted(limited, 1.0)
    refused(limited, 1.0)
    granted(limited, 2.0)


def test_unused_minutes_are_not_saved_up() -> None:
    limited = quota(requests_per_minute=2)
    granted(limited, 3600.0)
    granted(limited, 3600.0)
    assert refused(limited, 3600.0).retry_after_s == 30


def test_tokens_are_limited_by_estimate_and_settled_by_use() -> None:
    limited = quota(tokens_per_minute=600)
    grant = granted(limited, 0.0, tokens=600)
    assert refused(limited, 0.0, tokens=100) == OverQuota(Limit.TOKENS, 10)
    grant.close(0.0, used=200)
    granted(limited, 0.0, tokens=400)
    refused(limited, 0.0, tokens=1)


def test_who_used_more_than_estimated_pays_later() -> None:
    limited = quota(tokens_per_minute=600)
    granted(limited, 0.0, tokens=600).close(0.0, used=900)
    assert refused(limited, 0.0, tokens=100).retry_after_s == 40
    granted(limited, 40.0, tokens=100)


def test_an_unknown_usage_leaves_the_estimate() -> None:
    limited = quota(tokens_per_minute=600)
    granted(limited, 0.0, tokens=600).close(0.0)
    refused(limited, 0.0)


def test_a_request_larger_than_a_minute_passes_when_nothing_was_used_and_leaves_a_debt() -> None:
    limited = quota(tokens_per_minute=600)
    granted(limited, 0.0, tokens=1800)
    assert refused(limited, 0.0, tokens=1).retry_after_s == 121
    granted(limited, 121.0, tokens=1)


def test_requests_in_flight_are_limited_and_given_back_once() -> None:
    limited = quota(max_in_flight=2)
    first, second = granted(limited, 0.0), granted(limited, 0.0)
    assert refused(limited, 0.0).limit is Limit.IN_FLIGHT
    for _ in range(3):
        first.close(0.0)
    granted(limited, 0.0)
    refused(limited, 0.0)
    second.close(0.0)
    granted(limited, 0.0)


def test_a_request_that_never_reached_an_engine_costs_nothing() -> None:
    limited = quota(requests_per_minute=1, tokens_per_minute=10, max_in_flight=1)
    granted(limited, 0.0, tokens=10).cancel(0.0)
    granted(limited, 0.0, tokens=10)


def test_cancelling_after_the_end_gives_nothing_back() -> None:
    limited = quota(requests_per_minute=1)
    grant = granted(limited, 0.0)
    grant.close(0.0)
    grant.cancel(0.0)
    refused(limited, 0.0)


def test_a_refused_request_takes_nothing_of_its_other_limits() -> None:
    limited = quota(requests_per_minute=2, tokens_per_minute=10)
    granted(limited, 0.0, tokens=10)
    for _ in range(5):
        assert refused(limited, 0.0, tokens=10).limit is Limit.TOKENS
    granted(limited, 60.0, tokens=10)


def test_checking_takes_nothing() -> None:
    limited = quota(requests_per_minute=1)
    for _ in range(5):
        assert limited.check("alice", 1, 0.0) is None
    granted(limited, 0.0)
    assert limited.check("alice", 1, 0.0) == OverQuota(Limit.REQUESTS, 60)


def test_keys_do_not_use_each_others_quota() -> None:
    two = LocalQuota([key("alice", requests_per_minute=1), key("bob", requests_per_minute=1)], 0.0)
    assert isinstance(two.take("alice", 1, 0.0), Grant)
    assert isinstance(two.take("bob", 1, 0.0), Grant)
    assert isinstance(two.take("alice", 1, 0.0), OverQuota)


def test_new_limits_keep_what_was_used_and_what_is_in_flight() -> None:
    limited = quota(requests_per_minute=10, max_in_flight=5)
    for _ in range(4):
        granted(limited, 0.0)
    limited.configure([key(requests_per_minute=5, max_in_flight=5)], 0.0)
    grant = granted(limited, 0.0)
    assert refused(limited, 0.0).limit is Limit.IN_FLIGHT
    grant.close(0.0)
    assert refused(limited, 0.0).limit is Limit.REQUESTS


def test_a_key_that_was_removed_is_unknown_and_its_requests_may_end() -> None:
    limited = quota(max_in_flight=1)
    grant = granted(limited, 0.0)
    limited.configure([], 0.0)
    grant.close(0.0)
    with pytest.raises(KeyError):
        limited.take("alice", 1, 0.0)


@given(
    requests=st.integers(1, 100),
    tokens=st.integers(1, 1000),
    uses=st.lists(st.tuples(st.floats(0, 20), st.integers(0, 2000)), min_size=1, max_size=50),
)
@settings(deadline=None)
def test_the_time_to_come_back_is_true(requests: int, tokens: int, uses: list[tuple[float, int]]) -> None:
    limited = quota(requests_per_minute=requests, tokens_per_minute=tokens)
    now = 0.0
    for seconds, wanted in uses:
        now += seconds
        refusal = limited.take("alice", wanted, now)
        if isinstance(refusal, OverQuota):
            later = now + refusal.retry_after_s
            second = limited.check("alice", wanted, later)
            # The other limit may be met then; the same one only by what floats cannot tell apart.
            assert second is None or second.limit is not refusal.limit or second.retry_after_s <= 1
            now = later


class QuotaMachine(RuleBasedStateMachine):
    """Requests in flight are those granted and not given back, whatever the order."""

    grants = Bundle("grants")

    def __init__(self) -> None:
        super().__init__()
        self.now = 0.0
        self.quota = quota(requests_per_minute=30, tokens_per_minute=300, max_in_flight=3)
        self.open: set[int] = set()

    @rule(target=grants, tokens=st.integers(0, 400))
    def take(self, tokens: int) -> object:
        expected_full = len(self.open) >= 3
        got = self.quota.take("alice", tokens, self.now)
        if isinstance(got, OverQuota):
            assert got.retry_after_s >= 1
            return multiple()
        assert not expected_full
        self.open.add(id(got))
        return got

    @rule(grant=grants, used=st.none() | st.integers(0, 500))
    def close(self, grant: Grant, used: int | None) -> None:
        grant.close(self.now, used)
        self.open.discard(id(grant))

    @rule(grant=grants)
    def cancel(self, grant: Grant) -> None:
        grant.cancel(self.now)
        self.open.discard(id(grant))

    @rule(seconds=st.floats(0, 100))
    def wait(self, seconds: float) -> None:
        self.now += seconds

    @invariant()
    def full_is_full(self) -> None:
        refusal = self.quota.check("alice", 0, self.now)
        full = refusal is not None and refusal.limit is Limit.IN_FLIGHT
        assert full is (len(self.open) >= 3)


QuotaMachine.TestCase.settings = settings(max_examples=60, stateful_step_count=30, deadline=None)
TestQuotaMachine = QuotaMachine.TestCase
