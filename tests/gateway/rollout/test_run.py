"""Rollouts over real sockets: fake engines with fake agents, a real store, the whole gateway."""

from __future__ import annotations

import pytest

from backends.contract import Phase
from backends.fake import Behaviour
from backends.fake.trouble import How, Manner, Trouble
from checkpoints.rollouts import Stage
from tests.drivers.raw import ask
from tests.drivers.waiting import eventually
from tests.gateway.rollout.rolled import BASE_LABEL, Rolled, rolled
from tests.gateways import asked_of


async def _traffic(fleet: Rolled, count: int) -> list[str | None]:
    """Versions of so many answers, one after the other."""
    found = []
    for _ in range(count):
        answer = await ask(fleet.gateway.url, "/v1/completions", {"prompt": "Hi", "max_tokens": 2})
        assert answer.status == 200, answer.body
        found.append(answer.header("x-model-version"))
    return found


async def test_a_published_version_serves_everywhere() -> None:
    async with rolled(2) as fleet:
        assert fleet.labels == [BASE_LABEL] * 2
        label = fleet.publish(1)
        await fleet.serves(1)
        assert fleet.labels == [label] * 2
        assert fleet.store.aliases.read("serving").version == 1
        stages = ["verifying", "preparing", "rolling", "promoting", "promoted"]
        await eventually(lambda: fleet.events() == [f"rollout {stage}" for stage in stages])
        fleet.publish(2)
        await fleet.serves(2)
        assert fleet.store.aliases.read("last_good").version == 1
        assert (await fleet.stage(Stage.PROMOTED)).from_version == 1
        await fleet.counts("changeover_rollout_outcomes_total", 2, outcome="promoted")
        await fleet.counts("changeover_rollout_active", 0)
        await fleet.counts("changeover_members_by_version", 2, version=fleet.label(2))
        await fleet.counts("changeover_swap_seconds_count", 4, way="in_place")


@pytest.mark.fault("S3")
async def test_a_version_that_fails_its_probe_is_taken_back_and_not_tried_again() -> None:
    trouble = Trouble(Phase.PROBING, How.FAILS, version=2, first=None)
    async with rolled(3, manner=Manner((trouble,))) as fleet:
        fleet.publish(1)
        await fleet.serves(1)
        fleet.publish(2)
        record = await fleet.stage(Stage.ROLLED_BACK)
        await fleet.serves(1)
        assert "probing failed" in record.reason
        assert fleet.store.aliases.read("serving").version == 1
        digest = fleet.store.manifest(2).digest
        assert "probing failed" in fleet.store.rollouts.quarantined()[digest].reason
        assert [order.version for agent in fleet.agents for order in agent.orders].count(2) == 1
        fleet.publish(3)
        await fleet.serves(3)
        await fleet.counts("changeover_swap_failures_total", 1)


@pytest.mark.fault("S2")
async def test_a_version_without_the_required_probe_is_refused_before_an_engine_hears_of_it() -> None:
    async with rolled(2, probe="required") as fleet:
        fleet.publish(1)
        record = await fleet.stage(Stage.REFUSED)
        assert "it carries no probe" in record.reason
        assert [agent.orders for agent in fleet.agents] == [[], []]
        await eventually(lambda: fleet.events() == ["rollout verifying", "rollout refused"])
        await fleet.counts("changeover_rollout_outcomes_total", 1, outcome="refused")


@pytest.mark.fault("S3")
@pytest.mark.parametrize(
    ("phase", "how"),
    [
        (Phase.DRAINING, How.AGENT_DIES),
        (Phase.LOADING, How.DIES),
        (Phase.PROBING, How.HANGS),
        (Phase.WARMING, How.AGENT_DIES),
    ],
)
async def test_an_engine_or_agent_that_dies_once_in_a_swap_takes_the_version_after_all(
    phase: Phase, how: How
) -> None:
    async with rolled(2, manner=Manner((Trouble(phase, how, version=1),), hang_s=0.05)) as fleet:
        label = fleet.publish(1)
        await fleet.stage(Stage.PROMOTED)
        await fleet.serves(1)
        assert fleet.labels == [label] * 2


async def test_no_request_fails_while_versions_change() -> None:
    async with rolled(3, manner=Manner(phase_s=0.02)) as fleet:
        for step in (1, 2):
            fleet.publish(step)
            seen: list[str | None] = []
            while fleet.gateway.fleet.known_versions != {fleet.label(step)}:
                seen += await _traffic(fleet, 5)
            assert set(seen) <= {BASE_LABEL if step == 1 else fleet.label(step - 1), fleet.label(step)}
            await fleet.serves(step)
        assert set(await _traffic(fleet, 10)) == {fleet.label(2)}


async def test_all_change_between_two_moments_where_that_is_asked_for() -> None:
    async with rolled(3, mode="atomic", manner=Manner(phase_s=0.02)) as fleet:
        label = fleet.publish(1)
        seen: list[str | None] = []
        while fleet.gateway.fleet.known_versions != {label}:
            seen += await _traffic(fleet, 5)
        await fleet.serves(1)
        seen += await _traffic(fleet, 5)
        first_new = seen.index(label)
        assert set(seen[:first_new]) == {BASE_LABEL}
        assert set(seen[first_new:]) == {label}


async def test_a_canary_gets_its_share_and_is_promoted_on_evidence() -> None:
    canary = {"share": 0.25, "min_requests": 10, "min_s": 0, "max_latency_ratio": 1000}
    async with rolled(4, mode="canary", canary=canary) as fleet:
        label = fleet.publish(1)

        def has_its_share() -> bool:
            split = fleet.gateway.fleet.split
            return split is not None and split.candidate == label and split.share == 0.25

        await eventually(has_its_share, within=20)
        assert fleet.labels.count(label) == 1
        seen = await _traffic(fleet, 40)
        assert seen.count(label) == 10
        record = await fleet.stage(Stage.PROMOTED)
        assert fleet.labels == [label] * 4
        states = fleet.store.rollouts.states(record.id)
        rolling = next(state for state in states if state.stage is Stage.ROLLING)
        assert rolling.evidence["candidate"]["requests"] == 10  # type: ignore[index]


@pytest.mark.fault("S12")
async def test_a_canary_that_fails_its_requests_is_taken_back() -> None:
    canary = {"share": 0.5, "min_requests": 5, "min_s": 3600}
    async with rolled(2, mode="canary", canary=canary) as fleet:
        label = fleet.publish(1)

        def has_its_share() -> bool:
            split = fleet.gateway.fleet.split
            return split is not None and split.candidate == label and split.share == 0.5

        await eventually(has_its_share, within=20)
        bad = fleet.fakes[fleet.labels.index(label)]
        bad.behave(Behaviour(status=500))
        for _ in range(30):
            await ask(fleet.gateway.url, "/v1/completions", {"prompt": "Hi", "max_tokens": 2})
            if fleet.gateway.fleet.split is None or fleet.gateway.fleet.split.candidate is None:
                break
        record = await fleet.stage(Stage.ROLLED_BACK)
        assert "errors" in record.reason
        assert fleet.store.manifest(1).digest in fleet.store.rollouts.quarantined()


async def test_a_candidate_answers_copies_that_nobody_sees_before_it_gets_its_share() -> None:
    canary = {"share": 0.5, "shadow": 1.0, "min_requests": 5, "min_s": 0, "max_latency_ratio": 1000}
    async with rolled(2, mode="canary", canary=canary) as fleet:
        label = fleet.publish(1)
        await eventually(lambda: fleet.gateway.service.shadow.on, within=20)
        candidate = fleet.fakes[fleet.labels.index(label)]
        seen: list[str | None] = []
        while fleet.gateway.service.shadow.on:
            seen += await _traffic(fleet, 1)
        record = fleet.record
        assert record is not None
        assert set(seen[:5]) == {BASE_LABEL}
        assert asked_of(candidate) >= 5
        while (record := fleet.record) is not None and record.active:
            await _traffic(fleet, 1)
        assert record is not None
        shadowed = [state for state in fleet.store.rollouts.states(record.id) if state.shadow]
        assert [state.stage for state in shadowed] == [Stage.CANARY]
        assert record.stage is Stage.PROMOTED
