"""Memory is bounded whatever comes, and what was used last stays longest."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from gateway.flow.cache.entry import OVERHEAD_BYTES, Entry, decode, encode
from gateway.flow.cache.memory import Memory


def entry(body: bytes = b"x", kept_ms: int = 0) -> Entry:
    return Entry(b"v1", kept_ms, 0, False, body)


ONE = entry().size
untimed = settings(deadline=None)


def test_what_was_kept_is_found() -> None:
    memory = Memory(10 * ONE, ttl_s=1)
    memory.put(b"a", entry(b"a"))
    assert memory.get(b"a", 0) == entry(b"a")
    assert memory.get(b"b", 0) is None


def test_an_answer_lives_as_long_as_it_may() -> None:
    memory = Memory(10 * ONE, ttl_s=1)
    memory.put(b"a", entry(kept_ms=5000))
    assert memory.get(b"a", 6000) is not None
    assert memory.get(b"a", 6001) is None
    assert (len(memory), memory.bytes) == (0, 0)


def test_the_least_recently_used_go_first() -> None:
    memory = Memory(2 * ONE, ttl_s=1)
    memory.put(b"a", entry())
    memory.put(b"b", entry())
    memory.get(b"a", 0)
    assert memory.put(b"c", entry()) == 1
    assert memory.get(b"a", 0) is not None
    assert memory.get(b"b", 0) is None


def test_an_answer_that_is_too_big_pushes_nobody_out() -> None:
    memory = Memory(2 * ONE, ttl_s=1)
    memory.put(b"a", entry())
    assert memory.put(b"b", entry(b"x" * 3 * ONE)) == 0
    assert memory.get(b"a", 0) is not None


@untimed
@given(st.lists(st.tuples(st.integers(0, 9), st.integers(0, 3000)), max_size=60))
def test_its_bytes_are_those_of_what_it_holds_and_never_above_the_limit(puts: list[tuple[int, int]]) -> None:
    limit = 4 * OVERHEAD_BYTES + 2000
    memory = Memory(limit, ttl_s=1)
    for name, size in puts:
        memory.put(b"%d" % name, entry(b"x" * size))
        held = [memory.get(b"%d" % other, 0) for other in range(10)]
        assert memory.bytes == sum(each.size for each in held if each is not None) <= limit
    assert memory.clear() == sum(each is not None for each in held) if puts else memory.clear() == 0
    assert (len(memory), memory.bytes) == (0, 0)


@untimed
@given(st.binary())
def test_bytes_that_somebody_else_wrote_are_no_answer(data: bytes) -> None:
    found = decode(data)
    assert found is None or encode(found)


def test_an_answer_survives_the_way_through_redis() -> None:
    assert decode(encode(entry(b"\x00{}"))) == entry(b"\x00{}")
