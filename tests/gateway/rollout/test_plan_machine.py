"""Whatever happens, in whatever order: somebody serves, and every rollout ends in one of its ends.

Hypothesis makes up what happens between two looks: time, deaths, returns, publications, operators, failures
of swaps, and two leaders that decide from what they saw at different times.
"""

from __future__ import annotations

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from checkpoints.rollouts import ENDED
from gateway.rollout import commands
from gateway.rollout.commands import NotPossible
from gateway.rollout.plan import begin, plan
from gateway.rollout.steps import Swap
from gateway.settings.rollout import RolloutMode
from tests.gateway.rollout.world import CRASHES, DIES, GOOD, OLD, PROBE, World, weights, world

FATES = st.sampled_from([GOOD, GOOD, OLD, PROBE, DIES, CRASHES])
EVENTS = st.one_of(
    st.tuples(st.just("time"), st.floats(0.5, 90)),
    st.tuples(st.just("publish"), st.none()),
    st.tuples(st.just("fate"), st.tuples(st.integers(0, 9), FATES)),
    st.tuples(st.just("kill"), st.integers(0, 9)),
    st.tuples(st.just("revive"), st.integers(0, 9)),
    st.tuples(st.just("operator"), st.sampled_from(["pause", "resume", "promote", "back", "base"])),
    st.tuples(st.just("stale leader"), st.none()),
)


def _happen(fleet: World, what: str, how: object) -> None:
    if what == "time":
        fleet.advance(float(how))  # type: ignore[arg-type]
    elif what == "publish":
        fleet.publish((fleet.candidate or 0) + 1)
    elif what == "fate":
        index, fate = how  # type: ignore[misc]
        fleet.machines[index % len(fleet.machines)].fates.append(fate)
    elif what == "operator":
        _operate(fleet, str(how))
    elif what in ("kill", "revive"):
        machine = fleet.machines[int(how) % len(fleet.machines)]  # type: ignore[call-overload]
        living = sum(each.serving(fleet.now) for each in fleet.machines)
        if what == "revive" and not machine.alive:
            fleet.revive(machine)
        elif what == "kill" and machine.alive and living > 2:
            fleet.kill(machine)


def _operate(fleet: World, what: str) -> None:
    record = fleet.record
    if what == "base":
        if record is None or not record.active:
            fleet.save(begin(fleet.view(), weights(0), mode="rolling", forced=True, reason="by hand"))
        return
    if record is None:
        return
    try:
        if what == "pause":
            fleet.save(commands.pause(record, by="op"))
        elif what == "resume":
            fleet.save(commands.resume(record, by="op"))
        elif what == "promote":
            fleet.save(commands.promote(record, by="op", now=fleet.now))
        else:
            fleet.save(commands.take_back(record, by="op", now=fleet.now))
    except NotPossible:
        return


def _may_stop_all(fleet: World) -> bool:
    """All change at once, or there is only one that could serve."""
    atomic = fleet.options.mode is RolloutMode.ATOMIC
    return atomic or sum(machine.alive for machine in fleet.machines) <= 1


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    count=st.integers(1, 6),
    mode=st.sampled_from(list(RolloutMode)),
    unavailable=st.integers(1, 3),
    events=st.lists(EVENTS, max_size=60),
)
def test_somebody_serves_and_every_rollout_ends(
    count: int, mode: RolloutMode, unavailable: int, events: list[tuple[str, object]]
) -> None:
    fleet = world(count, mode=mode.value, max_unavailable=unavailable, member_deadline_s=60, wait_s=5)
    fleet.publish(1)
    stale = plan(fleet.view())
    for what, how in events:
        _happen(fleet, what, how)
        before = sum(machine.serving(fleet.now) for machine in fleet.machines)
        made = plan(fleet.view())
        assert made == plan(fleet.view())
        if what == "stale leader":
            fleet.perform(stale.steps)
        fleet.perform(made.steps)
        after = sum(machine.serving(fleet.now) for machine in fleet.machines)
        if any(isinstance(step, Swap) for step in made.steps) and what != "stale leader":
            assert after >= 1 or before == 0 or _may_stop_all(fleet), made
        stale = made
    _come_to_an_end(fleet)


def _come_to_an_end(fleet: World) -> None:
    """Nothing happens any more: it ends, and who lives serves what should be served."""
    for machine in fleet.machines:
        machine.fates.clear()
        if not machine.alive:
            fleet.revive(machine)
    if fleet.record is not None and fleet.record.paused:
        fleet.save(commands.resume(fleet.record, by="op"))
    fleet.evidence = lambda world: None
    if fleet.record is not None and fleet.record.active:
        _operate(fleet, "promote")
    for _ in range(4):
        fleet.run(within_s=100_000, round_s=5.0)
        if fleet.record is None or fleet.record.stage in ENDED:
            break
    assert fleet.record is None or fleet.record.stage in ENDED
    serving = weights(fleet.serving)
    assert all(serving.are(machine.version) for machine in fleet.machines)
