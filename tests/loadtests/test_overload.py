from __future__ import annotations

import pytest

from loadtests.overload import DEADLINE_S, recovery_s, schedule, served_per_s
from loadtests.samples import Outcome, Sample


def good(at_s: float, latency_s: float = 0.1) -> Sample:
    return Sample("x", at_s, latency_s, Outcome.OK, 200)


def test_recovery_lasts_until_the_last_request_that_was_not_served_in_time() -> None:
    drop = 10.0
    refused = Sample("x", 11.5, 0.0, Outcome.REFUSED, 503)
    assert recovery_s([good(9), refused, good(12)], drop) == 1.5
    assert recovery_s([good(9), refused, good(13, latency_s=DEADLINE_S + 1)], drop) == 3.0
    assert recovery_s([good(9), good(10.5)], drop) == 0.0


def test_what_a_queue_serves_after_the_load_is_not_counted_as_served_under_it() -> None:
    under_load = [good(second / 10, 0.05) for second in range(40)]
    after = [good(3.95, 0.5) for _ in range(100)]
    assert served_per_s(under_load + after, 4.0) == pytest.approx(10.0, rel=0.05)


def test_the_requests_are_all_different_and_say_how_long_they_may_take() -> None:
    due = schedule(200, 2, seed=1, start_s=5)
    wires = [ask.wire for _, ask in due]
    assert len(set(wires)) == len(wires)
    assert all(b"x-request-timeout: 1\r\n" in wire for wire in wires)
    assert due[0][0] >= 5
