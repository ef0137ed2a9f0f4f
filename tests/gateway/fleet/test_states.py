from __future__ import annotations

from itertools import product

import pytest

from gateway.fleet.states import LAST_RESORT, LEASABLE, TRANSITIONS, Event, IllegalTransition, State, step


@pytest.mark.parametrize(("state", "event"), sorted(product(State, Event)))
def test_a_step_follows_the_table_or_is_refused(state: State, event: Event) -> None:
    if (state, event) in TRANSITIONS:
        assert step(state, event) is TRANSITIONS[state, event]
        return
    with pytest.raises(
        IllegalTransition, match=f"{state.value} cannot take the event '{event.value}'"
    ) as caught:
        step(state, event)
    assert (caught.value.state, caught.value.event) == (state, event)


def test_nothing_comes_back_from_gone() -> None:
    assert not [state for state, _ in TRANSITIONS if state is State.GONE]


@pytest.mark.parametrize("state", [state for state in State if state is not State.GONE])
def test_any_member_can_be_removed(state: State) -> None:
    assert step(state, Event.REMOVE) is State.GONE


def test_every_state_can_be_reached() -> None:
    assert set(TRANSITIONS.values()) == set(State)


@pytest.mark.parametrize("state", [State.DRAINING, State.UNCERTAIN, State.GONE])
def test_who_leaves_or_is_uncertain_gets_nothing_not_even_as_a_last_resort(state: State) -> None:
    assert state not in LEASABLE | LAST_RESORT


def test_an_uncertain_member_becomes_ready_by_proof_only() -> None:
    ways = {
        event
        for (state, event), after in TRANSITIONS.items()
        if state is State.UNCERTAIN and after in LEASABLE
    }
    assert ways == {Event.PROVED}


def test_a_draining_member_does_not_become_leasable_in_one_step() -> None:
    assert not [
        1 for (state, _), after in TRANSITIONS.items() if state is State.DRAINING and after in LEASABLE
    ]
