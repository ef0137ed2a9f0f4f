from __future__ import annotations

import itertools
from collections import Counter

import msgspec

from loadtests.traces import Arrival
from loadtests.workload import Ask, Mix, asks, from_trace


def body(ask: Ask) -> dict[str, object]:
    found: dict[str, object] = msgspec.json.decode(ask.wire.partition(b"\r\n\r\n")[2])
    return found


def test_the_same_seed_asks_the_same() -> None:
    assert take(200, 1) == take(200, 1)
    assert take(20, 1) != take(20, 2)


def test_kinds_and_repeats_come_in_the_shares_asked_for() -> None:
    found = take(2000, 5, Mix(repeats=0.25))
    labels = Counter(ask.label for ask in found)
    assert 0.3 < labels["/predict"] / 2000 < 0.5
    assert 0.75 < len({ask.wire for ask in found}) / 2000 + 0.05 < 0.85
    assert all(ask.stream == (body(ask).get("stream") is True) for ask in found)


def test_prefixes_are_few_and_shared() -> None:
    mix = Mix(
        predict=1,
        predict_stream=0,
        chat=0,
        chat_stream=0,
        completions=0,
        shared_prefix=1,
        repeats=0,
        prefixes=3,
    )
    prefixes = {str(body(ask)["prompt"]).partition("\n")[0] for ask in take(100, 2, mix)}
    assert len(prefixes) == 3


def test_recorded_blocks_that_are_equal_become_equal_beginnings() -> None:
    arrivals = [Arrival(0, 1024, 9, (1, 2)), Arrival(1, 1024, 9, (1, 3)), Arrival(2, 10_000, 9)]
    first, second, long = (str(body(ask)["prompt"]) for ask in from_trace(arrivals, None, 1, largest=1000))
    shared = len(first) // 3
    assert first[:shared] == second[:shared]
    assert first != second
    assert len(long.split()) <= 1000


def take(count: int, seed: int, mix: Mix | None = None) -> list[Ask]:
    return list(itertools.islice(asks(mix or Mix(), "m", seed), count))
