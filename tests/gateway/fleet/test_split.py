"""Shares are exact, sticky values stay where they are, and wishes are read as they are meant."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.errors import BadRequest
from gateway.fleet.split import Role, Shares, Split, Wish, place_of, read_wish

V7, V8 = "v7-0a0a0a0a", "v8-0b0b0b0b"


def taken(split: Split, count: int, shares: Shares | None = None) -> int:
    account = shares or Shares()
    return sum(account.take(split) for _ in range(count))


@pytest.mark.fault("S11")
@pytest.mark.parametrize(
    ("share", "expected"), [(0.0, 0), (0.1, 1000), (0.001, 10), (0.999, 9990), (1.0, 10_000), (0.3, 3000)]
)
def test_ten_thousand_requests_are_divided_exactly(share: float, expected: int) -> None:
    assert taken(Split(V7, V8, share), 10_000) == expected


@given(share=st.floats(0, 1), counts=st.lists(st.integers(1, 400), max_size=4))
def test_any_number_in_a_row_is_right_to_within_one(share: float, counts: list[int]) -> None:
    account = Shares()
    total = given_to_candidate = 0
    for count in counts:
        given_to_candidate += taken(Split(V7, V8, share), count, account)
        total += count
        assert abs(given_to_candidate - total * share) < 1 + 1e-6


@given(steps=st.lists(st.tuples(st.floats(0, 1), st.integers(1, 50)), max_size=8))
def test_a_share_that_changes_is_right_to_within_one_over_all(steps: list[tuple[float, int]]) -> None:
    account = Shares()
    due = 0.0
    got = 0
    for share, count in steps:
        got += taken(Split(V7, V8, share), count, account)
        due += share * count
    assert abs(got - due) < 1 + 1e-6


@pytest.mark.fault("S11")
def test_a_share_of_nothing_gives_nothing_whatever_was_owed() -> None:
    account = Shares()
    taken(Split(V7, V8, 0.9), 1, account)
    assert taken(Split(V7, V8, 0.0), 1000, account) == 0


def test_what_one_candidate_was_owed_is_not_given_to_the_next() -> None:
    account = Shares()
    taken(Split(V7, V8, 0.9), 1, account)
    assert taken(Split(V7, "v9-0c0c0c0c", 0.1), 9, account) == 0


def test_while_all_change_at_once_nobody_is_the_candidates() -> None:
    assert taken(Split(V7, V8, 1.0, atomic=True), 100) == 0


@given(value=st.binary(min_size=1, max_size=40), low=st.floats(0, 1), high=st.floats(0, 1))
def test_a_sticky_value_never_comes_back_when_the_share_grows(value: bytes, low: float, high: float) -> None:
    low, high = sorted((low, high))
    few, many = (Split(V7, V8, share, sticky_header="x-user") for share in (low, high))
    assert not Shares().take(few, value) or Shares().take(many, value)


def test_sticky_values_are_divided_about_as_the_share_says() -> None:
    split = Split(V7, V8, 0.1, sticky_header="x-user")
    got = sum(Shares().take(split, b"user %d" % user) for user in range(10_000))
    assert 900 < got < 1100


def test_another_candidate_is_tried_by_other_users() -> None:
    first, second = (
        {user for user in range(1000) if place_of(b"%d" % user, label) < 10**8} for label in (V7, V8)
    )
    assert first != second


def test_requests_without_the_sticky_header_are_counted_out() -> None:
    assert taken(Split(V7, V8, 0.1, sticky_header="x-user"), 1000) == 100


def test_a_share_above_all_is_refused() -> None:
    with pytest.raises(ValueError, match="from 0 to 1"):
        Split(V7, V8, 1.5)


@pytest.mark.parametrize("text", ["7", "v7", V7])
def test_a_version_may_be_asked_for_in_three_ways(text: str) -> None:
    wish = read_wish(text.encode(), b"")
    assert wish is not None
    assert wish.admits(V7)
    assert not wish.admits(V8)


def test_a_label_with_another_digest_is_another_version() -> None:
    wish = read_wish(b"v7-ffffffff", b"")
    assert wish is not None
    assert not wish.admits(V7)


def test_a_strange_label_is_asked_for_as_it_is() -> None:
    wish = read_wish(b"main@abc", b"")
    assert wish == Wish(label="main@abc")
    assert wish is not None
    assert wish.admits("main@abc")


@pytest.mark.parametrize("text", ["7", "v7"])
def test_a_least_version_admits_what_is_as_new(text: str) -> None:
    wish = read_wish(b"", text.encode())
    assert wish is not None
    assert wish.admits(V7)
    assert wish.admits(V8)
    assert not wish.admits("v6-0a0a0a0a")
    assert not wish.admits("base-0a0a0a0a")
    assert not wish.admits("unversioned")


def test_roles_are_asked_for_by_name() -> None:
    assert read_wish(b"candidate", b"3") == Wish(role=Role.CANDIDATE, least=3)
    assert read_wish(b"serving", b"") == Wish(role=Role.SERVING)
    assert read_wish(b"", b"") is None


@pytest.mark.parametrize(
    ("version", "least"),
    [(b"a b", b""), (b"\xff", b""), (b"x" * 200, b""), (b"", b"new"), (b"", b"-1"), (b"", b"candidate")],
)
def test_what_is_no_version_is_refused(version: bytes, least: bytes) -> None:
    with pytest.raises(BadRequest, match="version"):
        read_wish(version, least)
