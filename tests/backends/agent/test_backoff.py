"""When an engine that died is started again, and when it is given up."""

from __future__ import annotations

from random import Random

from hypothesis import given
from hypothesis import strategies as st

from backends.agent.backoff import (
    FIRST_S,
    LONGEST_S,
    MAX_FAILED_STARTS,
    WELL_AFTER_S,
    History,
    delay_s,
    gives_up,
)


def test_a_fault_that_another_start_would_not_mend_is_given_up_at_once() -> None:
    assert gives_up(History().after_death(None), permanent=True)


def test_an_engine_that_never_starts_is_given_up_after_a_few_tries() -> None:
    history = History()
    tries = 0
    while not gives_up(history, permanent=False):
        history = history.after_death(None)
        tries += 1

    assert tries == MAX_FAILED_STARTS


def test_an_engine_that_has_worked_is_started_again_for_ever() -> None:
    history = History().after_death(ready_for_s=1.0)
    for _ in range(1000):
        history = history.after_death(None)

    assert not gives_up(history, permanent=True)


def test_an_engine_that_was_well_for_long_starts_over_with_short_waits() -> None:
    history = History(deaths=9, was_ready=True).after_death(ready_for_s=WELL_AFTER_S)

    assert delay_s(history, Random(1)) <= FIRST_S


@given(deaths=st.integers(0, 10_000), seed=st.integers())
def test_waits_grow_but_are_bounded_and_never_nothing(deaths: int, seed: int) -> None:
    shorter = delay_s(History(deaths), Random(seed))
    longer = delay_s(History(deaths + 1), Random(seed))

    assert FIRST_S / 2 <= shorter <= longer <= LONGEST_S
