"""A thousand members: the plan holds, and its time grows as its parts say."""

from __future__ import annotations

from math import ceil

from tests.gateway.rollout.simulate import Case, simulate


def test_a_thousand_members_with_failures_take_a_version_and_most_serve_all_the_while() -> None:
    case = Case(1000, gigabytes=2, drain_s=5, unavailable=100, failing=0.02)
    found = simulate(case)
    assert found.end == "promoted"
    assert found.fewest >= 1000 - 100 - 40  # those that came down by themselves count too
    assert 1000 < found.orders < 1000 * 1.05


def test_time_grows_with_members_over_those_that_change_at_a_time() -> None:
    few, many = (
        simulate(Case(members, gigabytes=0.5, drain_s=4, unavailable=20)).seconds for members in (60, 240)
    )
    each = (many - few) / (ceil(240 / 20) - ceil(60 / 20))
    assert 4 <= each <= 9  # a drain of up to 4 s, 1.25 s of load, and up to two rounds to notice


def test_time_does_not_grow_with_members_where_all_change_at_once() -> None:
    few, many = (
        simulate(Case(members, gigabytes=0.5, drain_s=4, unavailable=1, mode="atomic")).seconds
        for members in (10, 500)
    )
    assert abs(many - few) <= 2
