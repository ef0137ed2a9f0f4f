"""Engines that answer every request are declared dead, and users are turned away from a healthy fleet."""

from __future__ import annotations

import asyncio

import pytest

from backends.fake import Behaviour, Rule
from gateway.fleet.states import State
from gateway.observe.outcome import Outcome
from tests.drivers.many import many
from tests.drivers.raw import ask
from tests.drivers.waiting import eventually
from tests.gateways import FORMS, POLICIES, asked_of, fakes, gateway_to

HEALTH = {"interval_s": 0.05, "timeout_s": 0.1, "unhealthy_after": 3}


def probes_fail(**how: object) -> Behaviour:
    return Behaviour(rules=(Rule(paths=("/health",), **how),), tokens_per_s=100)  # type: ignore[arg-type]


@pytest.mark.fault("B3")
@pytest.mark.parametrize("form", FORMS)
async def test_slow_probes_do_not_outweigh_answers(form: str) -> None:
    async with fakes(1) as (fake,), gateway_to(fake, health=HEALTH) as gateway:
        fake.behave(probes_fail(delay_headers_s=5))
        probes = fake.stats.requests["/health"]
        states = set()

        async def flow() -> bool:
            answer = await ask(gateway.url, *FORMS[form])
            assert answer.status == 200
            states.add(gateway.state(fake))
            return fake.stats.requests["/health"] >= probes + 6

        await eventually(flow)
        assert states == {State.READY}


@pytest.mark.fault("B4")
@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("how", [{"status": 500}, {"status": 404}, {"delay_headers_s": 5}], ids=str)
async def test_when_all_probes_fail_the_last_engines_are_used(how: dict[str, float], policy: str) -> None:
    async with fakes(2) as (a, b), gateway_to(a, b, health=HEALTH, routing={"policy": policy}) as gateway:
        for fake in (a, b):
            fake.behave(probes_fail(**how))
        await eventually(lambda: not gateway.ready)
        assert (await ask(gateway.url, "/readyz")).status == 200
        for path, body in FORMS.values():
            assert (await ask(gateway.url, path, body)).status == 200
        assert asked_of(a) + asked_of(b) == len(FORMS)


@pytest.mark.fault("B5")
@pytest.mark.parametrize("status", [400, 401, 404, 413, 422, 429])
async def test_bad_requests_open_no_breaker(status: int) -> None:
    async with fakes(2) as (a, b), gateway_to(a, b) as gateway:
        for fake in (a, b):
            fake.behave(Behaviour(rules=(Rule(contains="bad", status=status),)))
        forms = list(FORMS.values())

        async def client(number: int) -> int:
            path, body = forms[number % len(forms)]
            return (await ask(gateway.url, path, {**body, "stop": "bad"})).status

        assert (await many(60, client)).counts(int) == {status: 60}
        assert not any(member.failures for member in gateway.members)
        assert {member.health.state for member in gateway.members} == {State.READY}
        assert (await ask(gateway.url, *FORMS["chat"])).status == 200


@pytest.mark.fault("B5")
@pytest.mark.parametrize("form", FORMS)
async def test_a_client_in_a_hurry_opens_no_breaker(form: str) -> None:
    hurry = [("x-request-timeout", "0.1")]
    async with fakes(1, Behaviour(delay_headers_s=30)) as (fake,), gateway_to(fake) as gateway:
        answers = await many(10, lambda _: ask(gateway.url, *FORMS[form], headers=hurry))
        assert {answer.status for answer in answers.all()} == {504}
        assert gateway.outcomes == {Outcome.TIMEOUT: 10}
        assert gateway.members[0].failures == 0
        fake.behave(Behaviour())
        assert (await ask(gateway.url, *FORMS[form])).status == 200


@pytest.mark.fault("B5")
async def test_a_client_that_leaves_fifty_times_opens_no_breaker() -> None:
    async with fakes(1, Behaviour(delay_headers_s=30)) as (fake,), gateway_to(fake) as gateway:
        async with asyncio.TaskGroup() as group:
            clients = [
                group.create_task(ask(gateway.url, *FORMS["chat"]), name=f"leaves {number}")
                for number in range(50)
            ]
            await eventually(lambda: fake.stats.in_flight == 50)
            for client in clients:
                client.cancel()
        await eventually(lambda: gateway.outcomes == {Outcome.CLIENT_GONE: 50})
        assert gateway.state(fake) is State.READY
