from __future__ import annotations

from gateway.observe.repeats import MAX_KEYS, AtMostEvery, OncePerChange


def test_a_state_is_news_once() -> None:
    changes = OncePerChange()
    assert [changes.news("a", state) for state in ("up", "up", "down", "down", "up")] == [
        True,
        False,
        True,
        False,
        True,
    ]
    assert changes.news("b", "up")


def test_nothing_is_a_state_like_any_other() -> None:
    changes = OncePerChange()
    assert changes.news("a", None)
    assert not changes.news("a", None)


def test_what_is_forgotten_is_news_again() -> None:
    changes = OncePerChange()
    changes.news("a", "up")
    changes.forget("a")
    assert changes.news("a", "up")


def test_a_message_comes_through_once_per_interval_with_the_number_suppressed() -> None:
    limit = AtMostEvery(10.0)
    assert limit.due("a", 100.0) == 0
    assert limit.due("a", 101.0) is None
    assert limit.due("a", 109.9) is None
    assert limit.due("b", 109.9) == 0
    assert limit.due("a", 110.0) == 2
    assert limit.due("a", 120.0) == 0


def test_neither_remembers_without_limit() -> None:
    changes, limit = OncePerChange(), AtMostEvery(10.0)
    for number in range(MAX_KEYS + 1):
        changes.news(str(number), "up")
        limit.due(str(number), 0.0)
    assert changes.news("0", "up")
    assert not changes.news(str(MAX_KEYS), "up")
    assert limit.due("0", 0.0) == 0
    assert limit.due(str(MAX_KEYS), 0.0) is None
