"""The table of a swap's phases, which way is taken, and one swap at a time."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from backends.agent.orders import REMEMBERED, NoSuchSwap, NotHeld, Orders, SwapRuns
from backends.agent.rotation import Why, guard_state
from backends.agent.swaps import TABLE, Event, IllegalEvent, after
from backends.agent.ways import Change, Refused, choose
from backends.contract import Outcome, Phase, SwapOrder, Way
from checkpoints.verdict import Code, Finding, Swap

TAKEN = (Way.IN_PLACE, Way.ADAPTER, Way.RESTART)
IN_PLACE = Change(Swap.IN_PLACE)


@given(
    st.sampled_from(TAKEN), st.booleans(), st.lists(st.sampled_from(list(Event)), min_size=12, max_size=12)
)
def test_every_swap_ends_in_one_of_three_ways(way: Way, hold: bool, events: list[Event]) -> None:
    phase, outcome = Phase.PREPARING, None
    for event in events:
        step = after(phase, event, way=way, hold=hold)
        phase, outcome = step.phase, step.outcome
        if phase is Phase.ENDED:
            break
    assert phase is Phase.ENDED
    assert outcome in set(Outcome)


@pytest.mark.parametrize("way", TAKEN)
@pytest.mark.parametrize("hold", [True, False])
def test_only_a_swap_in_which_everything_succeeds_serves_the_new_weights(way: Way, hold: bool) -> None:
    phase, phases = Phase.PREPARING, []
    while phase is not Phase.ENDED:
        phases.append(phase)
        step = after(phase, Event.DONE, way=way, hold=hold)
        phase = step.phase
    assert step.outcome is Outcome.SERVING_NEW
    assert (Phase.HELD in phases) is hold
    assert (Phase.RESTARTING in phases) is (way is Way.RESTART)
    assert (Phase.DRAINING in phases) is (way is not Way.ADAPTER)


@pytest.mark.parametrize("phase", [Phase.LOADING, Phase.PROBING, Phase.WARMING, Phase.HELD, Phase.UNDOING])
def test_an_engine_that_is_lost_after_the_load_began_is_never_trusted_again(phase: Phase) -> None:
    step = after(phase, Event.LOST, way=Way.IN_PLACE, hold=True)
    assert step.outcome is Outcome.RESTARTING


def test_nothing_follows_the_end() -> None:
    assert set(TABLE) == set(Phase)
    with pytest.raises(IllegalEvent, match="a swap that is ended cannot take the event done"):
        after(Phase.ENDED, Event.DONE, way=Way.IN_PLACE, hold=False)


def test_in_place_is_taken_only_where_it_is_qualified() -> None:
    trusted = choose(Way.AUTO, IN_PLACE, unqualified=None, adapters=False)
    untrusted = choose(Way.AUTO, IN_PLACE, unqualified="nothing was tried", adapters=False)
    assert (trusted.way, trusted.why) == (Way.IN_PLACE, "")
    assert (untrusted.way, untrusted.why) == (
        Way.RESTART,
        "a reload in place is not qualified here: nothing was tried",
    )
    with pytest.raises(Refused, match=r"in_place is not possible: .*nothing was tried; order `auto`"):
        choose(Way.IN_PLACE, IN_PLACE, unqualified="nothing was tried", adapters=False)


def test_what_engines_read_at_their_start_needs_one() -> None:
    change = Change(Swap.RESTART, (Finding(Code.CHAT_TEMPLATE, "differs", refuses=False),))
    assert choose(Way.AUTO, change, unqualified=None, adapters=True).why.endswith("chat_template_differs")
    with pytest.raises(Refused):
        choose(Way.IN_PLACE, change, unqualified=None, adapters=True)


def test_an_adapter_is_put_on_the_weights_that_it_rests_on() -> None:
    same, other = Change(Swap.ADAPTER), Change(Swap.ADAPTER, same_base=False)
    assert choose(Way.AUTO, same, unqualified="x", adapters=True).way is Way.ADAPTER
    assert choose(Way.AUTO, other, unqualified=None, adapters=True).way is Way.RESTART
    with pytest.raises(Refused, match=r"engine\.enable_lora"):
        choose(Way.AUTO, same, unqualified=None, adapters=False)


def test_a_restart_is_always_possible() -> None:
    for change in (IN_PLACE, Change(Swap.RESTART), Change(Swap.ADAPTER)):
        assert choose(Way.RESTART, change, unqualified=None, adapters=True).way is Way.RESTART


def test_one_swap_at_a_time_and_each_id_once() -> None:
    orders = Orders()
    assert orders.take(SwapOrder("a", 1), "v1-11111111") is None
    known = orders.take(SwapOrder("a", 1), "v1-11111111")
    assert known is not None and known.phase is Phase.PREPARING
    with pytest.raises(SwapRuns, match="swap a to v1-11111111 runs"):
        orders.take(SwapOrder("b", 2), "v2-22222222")
    orders.note(replace(known, phase=Phase.ENDED, outcome=Outcome.SERVING_NEW))
    orders.note(replace(known, phase=Phase.LOADING))
    assert orders.find("a").outcome is Outcome.SERVING_NEW, "an end is an end"
    assert orders.take(SwapOrder("b", 2), "v2-22222222") is None
    with pytest.raises(NotHeld):
        orders.held("b")
    with pytest.raises(NoSuchSwap):
        orders.find("c")


def test_only_the_last_swaps_are_remembered() -> None:
    orders = Orders()
    for number in range(REMEMBERED + 3):
        orders.take(SwapOrder(str(number), 1), "v1-11111111")
        orders.note(replace(orders.find(str(number)), phase=Phase.ENDED, outcome=Outcome.SERVING_OLD))
    with pytest.raises(NoSuchSwap):
        orders.find("2")
    assert orders.find("3").outcome is Outcome.SERVING_OLD


def test_the_gravest_reason_is_told_and_none_means_in_rotation() -> None:
    assert guard_state(frozenset()) == {"draining": False, "reason": "draining"}
    assert guard_state({Why.ASKED, Why.SWAP}) == {"draining": True, "reason": "swapping"}
    assert guard_state(set(Why)) == {"draining": True, "reason": "uncertain"}
