from __future__ import annotations

import math
from array import array

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.observe.window import (
    CELLS,
    EDGES,
    FINEST_S,
    LONGEST_S,
    REFUSED,
    SLOTS,
    Figures,
    WindowWriter,
    bucket,
    figures,
)

latencies = st.floats(min_value=FINEST_S, max_value=LONGEST_S)


def ring() -> memoryview[float]:
    return memoryview(array("d", bytes(CELLS * 8)))


@given(st.lists(latencies, min_size=1, max_size=200), st.sampled_from([0.5, 0.9, 0.99]))
def test_a_quantile_is_at_most_five_percent_off(durations: list[float], share: float) -> None:
    counts = [0.0] * (len(EDGES) + 1)
    for duration in durations:
        counts[bucket(duration)] += 1
    exact = sorted(durations)[max(1, math.ceil(share * len(durations))) - 1]
    assert Figures(60.0, tuple(counts)).quantile(share) == pytest.approx(exact, rel=0.05)


@pytest.mark.fault("H4")
def test_streams_of_ten_minutes_show_in_the_p99() -> None:
    cells = ring()
    writer = WindowWriter(cells, 0)
    for second in range(60):
        writer.add(5000.0 + second, bucket(0.2))
        for _ in range(2):
            writer.add(5000.0 + second, bucket(600.0 + second / 60))
    assert figures([cells], now=5059.5, since=0).quantile(0.99) == pytest.approx(600.5, rel=0.05)


def test_requests_leave_the_window_after_a_minute() -> None:
    cells = ring()
    writer = WindowWriter(cells, 0)
    writer.add(1000.2, bucket(0.1))
    assert sum(figures([cells], now=1059.9, since=0).counts) == 1
    assert sum(figures([cells], now=1060.0, since=0).counts) == 0
    # The slot is taken by a later second.
    writer.add(1000.2 + SLOTS, bucket(0.3))
    later = figures([cells], now=1000.9 + SLOTS, since=0)
    assert later.counts[bucket(0.1)] == 0
    assert later.counts[bucket(0.3)] == 1


@given(st.lists(st.floats(min_value=0, max_value=200), max_size=100))
def test_the_window_holds_exactly_the_last_sixty_seconds(gaps: list[float]) -> None:
    cells = ring()
    writer = WindowWriter(cells, 0)
    now = 10.0
    times = []
    for gap in gaps:
        now += gap
        times.append(now)
        writer.add(now, bucket(1.0))
    oldest = math.floor(now) - SLOTS + 1
    assert sum(figures([cells], now=now, since=0).counts) == sum(at >= oldest for at in times)


def test_qps_counts_refused_requests_but_latency_does_not() -> None:
    cells = ring()
    writer = WindowWriter(cells, 0)
    for _ in range(30):
        writer.add(1000.0, REFUSED)
        writer.add(1000.0, bucket(2.0))
    seen = figures([cells], now=1000.0, since=0)
    assert seen.qps == pytest.approx(60 / 59)
    assert seen.quantile(0.5) == pytest.approx(2.0, rel=0.05)


def test_qps_is_right_before_a_minute_has_passed() -> None:
    cells = ring()
    writer = WindowWriter(cells, 0)
    for step in range(100):
        writer.add(1000.0 + step / 10, bucket(0.1))
    assert figures([cells], now=1010.0, since=1000.0).qps == pytest.approx(10.0)


def test_the_rings_of_all_workers_are_added() -> None:
    rings = [ring(), ring()]
    for number, cells in enumerate(rings):
        WindowWriter(cells, 0).add(1000.0, bucket(10.0**number))
    seen = figures(rings, now=1001.0, since=0)
    assert sum(seen.counts) == 2


def test_a_worker_that_restarts_goes_on_in_the_same_second() -> None:
    cells = ring()
    WindowWriter(cells, 0).add(1000.1, bucket(0.1))
    WindowWriter(cells, 0).add(1000.2, bucket(0.1))
    assert sum(figures([cells], now=1000.5, since=0).counts) == 2


def test_without_requests_there_is_no_latency() -> None:
    seen = figures([], now=1000.0, since=0)
    assert seen.qps == 0
    assert math.isnan(seen.quantile(0.99))


def test_what_is_beyond_an_hour_counts_as_the_longest() -> None:
    cells = ring()
    WindowWriter(cells, 0).add(1000.0, bucket(1e6))
    assert figures([cells], now=1000.0, since=0).quantile(0.5) > LONGEST_S * 0.9
