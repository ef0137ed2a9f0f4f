"""The states of a backend."""

from __future__ import annotations

import pytest

from backends.agent.states import TABLE, Event, IllegalTransition, advance
from backends.contract import State


def test_every_state_is_in_the_table_and_can_be_reached() -> None:
    reached = {State.STARTING} | {after for events in TABLE.values() for after in events.values()}

    assert set(TABLE) == set(State) == reached


def test_an_engine_that_dies_is_started_again_from_wherever_it_served() -> None:
    for state in (State.STARTING, State.READY, State.DRAINING):
        assert advance(advance(state, Event.DIED), Event.LAUNCH) is State.STARTING


def test_only_a_started_engine_that_answers_becomes_ready() -> None:
    ready = {
        (state, event)
        for state, events in TABLE.items()
        for event, after in events.items()
        if after is State.READY
    }

    assert ready == {(State.STARTING, Event.HEALTHY), (State.DRAINING, Event.UNDRAIN)}


@pytest.mark.parametrize("state", [State.FAILED, State.STOPPED])
@pytest.mark.parametrize("event", list(Event))
def test_nothing_leads_out_of_an_end(state: State, event: Event) -> None:
    with pytest.raises(IllegalTransition, match=f"a backend that is {state} cannot take the event {event}"):
        advance(state, event)
