"""Probes on real sockets: what a member's pages say becomes evidence, and nothing ends a prober."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from random import Random

import pytest

from backends.fake import Behaviour, Fake, Rule
from gateway.fleet.discovery import Names
from gateway.fleet.evidence import Cause
from gateway.fleet.fleet import Fleet, FleetOptions
from gateway.fleet.keeper import Keeper
from gateway.fleet.member import Member, Spec
from gateway.fleet.states import State
from gateway.routing.contract import Hint
from gateway.settings.tree import Health, Routing
from gateway.upstream.address import parse_address
from tests.drivers.waiting import always, eventually
from tests.gateway.fleets import MODEL, metrics

QUICK = Health(interval_s=0.02, timeout_s=0.3, stall_s=0.2, breaker_open_s=30, breaker_max_s=30)


def spec(fake: Fake, key: str = "") -> Spec:
    return Spec(fake.name, parse_address(fake.url), api_key=key)


@asynccontextmanager
async def looked_after(*specs: Spec, health: Health = QUICK) -> AsyncIterator[tuple[Keeper, Fleet]]:
    with metrics() as counted:
        fleet = Fleet(MODEL, FleetOptions(Routing(), health, 8, 1.0), counted, Random(1))
        keeper = Keeper(fleet, specs, Names(()), health)
        await keeper.start()
        try:
            yield keeper, fleet
        finally:
            await keeper.close()


def only(fleet: Fleet) -> Member:
    (member,) = fleet.members
    return member


async def test_a_member_tells_its_health_version_and_names() -> None:
    behaviour = Behaviour(model="llama", version="v7")
    async with Fake.start(behaviour) as fake, looked_after(spec(fake)) as (_, fleet):
        await eventually(lambda: only(fleet).health.state is State.READY)
        await eventually(lambda: fleet.names == {MODEL, "llama"})


async def test_an_engine_that_asks_for_a_key_gets_it() -> None:
    async with Fake.start() as fake, looked_after(spec(fake, key="sk-engine")) as (_, fleet):
        await eventually(lambda: fake.stats.requests["/v1/models"])
        asked = next(request for request in fake.stats.seen if request.path == "/v1/models")
        assert asked.header("authorization") == "Bearer sk-engine"
        assert len(fleet.members) == 1


async def test_counters_are_read_only_while_requests_run_in_silence() -> None:
    async with Fake.start() as fake, looked_after(spec(fake)) as (_, fleet):
        await eventually(lambda: fake.stats.requests["/health"] > 5)
        assert fake.stats.requests["/metrics"] == 0
        lease = fleet.lease(Hint(), 1)
        assert lease is not None
        await eventually(lambda: fake.stats.requests["/metrics"] > 1)
        lease.release()


async def test_counters_that_stand_still_while_requests_run_eject() -> None:
    async with Fake.start(Behaviour(frozen_counters=True)) as fake, looked_after(spec(fake)) as (_, fleet):
        await eventually(lambda: only(fleet).health.state is State.READY)
        await always(lambda: only(fleet).health.state is State.READY, during=0.3)
        lease = fleet.lease(Hint(), 1)
        assert lease is not None
        await eventually(lambda: only(fleet).health.cause is Cause.STALL)
        lease.release()


@pytest.mark.parametrize(
    "page",
    [
        Rule(paths=("/metrics",), status=404),
        Rule(paths=("/metrics",), body='vllm:prompt_tokens_total{a="b"} 1.2.3\n'),
        Rule(paths=("/metrics",), body="\x00\xff{{{"),
    ],
    ids=["none", "no numbers", "no text"],
)
async def test_a_load_page_that_says_nothing_ends_no_prober(page: Rule) -> None:
    async with Fake.start(Behaviour(rules=(page,))) as fake, looked_after(spec(fake)) as (_, fleet):
        await eventually(lambda: only(fleet).health.state is State.READY)
        lease = fleet.lease(Hint(), 1)
        await eventually(lambda: fake.stats.requests["/metrics"] > 2)
        assert only(fleet).health.state is State.READY
        assert lease is not None
        lease.release()


@pytest.mark.parametrize("body", ["", "[]", '{"data": 3}', "<html>"])
async def test_a_list_of_models_that_is_none_matters_to_nobody(body: str) -> None:
    rule = Rule(paths=("/v1/models",), body=body)
    async with Fake.start(Behaviour(rules=(rule,))) as fake, looked_after(spec(fake)) as (_, fleet):
        await eventually(lambda: fake.stats.requests["/health"] > 3)
        assert (only(fleet).health.state, fleet.names) == (State.READY, {MODEL})


async def test_a_member_that_leaves_is_probed_no_more_and_one_that_comes_is() -> None:
    async with Fake.start() as a, Fake.start(name="b") as b, looked_after(spec(a)) as (keeper, fleet):
        await eventually(lambda: only(fleet).health.state is State.READY)
        keeper.set_members([spec(b)], (), QUICK)
        await eventually(lambda: only(fleet).health.state is State.READY)
        await eventually(lambda: a.stats.connections_open == 0)
        probed = a.stats.requests["/health"]
        await eventually(lambda: b.stats.requests["/health"] > 5)
        assert a.stats.requests["/health"] <= probed + 1


async def test_new_intervals_take_effect_at_once() -> None:
    slow = Health(interval_s=60, timeout_s=1)
    async with Fake.start() as fake, looked_after(spec(fake), health=slow) as (keeper, fleet):
        await eventually(lambda: only(fleet).health.state is State.READY)
        member = only(fleet)
        keeper.set_members([spec(fake)], (), QUICK)
        await eventually(lambda: fake.stats.requests["/health"] > 5)
        assert only(fleet) is member
