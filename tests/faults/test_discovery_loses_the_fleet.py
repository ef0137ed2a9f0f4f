"""A name server has a bad minute, and the gateway forgets every engine that works."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

import pytest

from backends.fake import Fake
from gateway.fleet.states import State
from tests.drivers.raw import ask
from tests.drivers.waiting import eventually
from tests.gateways import FORMS, Running, gateway_to, settings_for


class NameServer:
    """Answers as it is told to."""

    def __init__(self, *hosts: str) -> None:
        self.hosts: Sequence[str] = hosts
        self.failure: Exception | None = None
        self.silent = False
        self.asked = 0

    async def look_up(self, host: str, port: int) -> Sequence[str]:
        self.asked += 1
        if self.silent:
            await asyncio.Event().wait()
        if self.failure is not None:
            raise self.failure
        return self.hosts


@asynccontextmanager
async def two_behind_a_name() -> AsyncIterator[tuple[NameServer, Fake, Fake, Running]]:
    async with Fake.start(host="127.0.0.2") as a, Fake.start(host="127.0.0.3", port=a.port, name="b") as b:
        names = NameServer("127.0.0.2", "127.0.0.3")
        async with gateway_to(f"dns://engines:{a.port}", look_up=names.look_up, ready=False) as gateway:
            await eventually(lambda: len(gateway.ready) == 2)
            yield names, a, b, gateway


async def asked_again(names: NameServer, times: int = 3) -> None:
    before = names.asked
    await eventually(lambda: names.asked >= before + times)


@pytest.mark.fault("B10")
@pytest.mark.parametrize(
    "failure",
    [OSError("Temporary failure in name resolution"), TimeoutError(), UnicodeError("label too long"), None],
    ids=["fails", "times out", "no name", "no addresses"],
)
async def test_a_failed_look_up_keeps_the_working_set(failure: Exception | None) -> None:
    async with two_behind_a_name() as (names, _, _, gateway):
        kept = gateway.members
        names.failure, names.hosts = failure, ()
        await asked_again(names)
        assert gateway.members == kept
        for form in FORMS.values():
            assert (await ask(gateway.url, *form)).status == 200
        warnings = [record.getMessage() for record in gateway.logged if "Looking up" in record.getMessage()]
        assert len(warnings) == 1
        assert "keeping the 2 members known" in warnings[0]


@pytest.mark.fault("B10")
async def test_a_reload_while_look_ups_fail_keeps_the_working_set() -> None:
    async with two_behind_a_name() as (names, a, _, gateway):
        kept = gateway.members
        names.failure = OSError("Temporary failure in name resolution")
        await gateway.reconfigure(settings_for(f"dns://engines:{a.port}", limits={"max_queued": 7}))
        await asked_again(names)
        assert gateway.members == kept


@pytest.mark.fault("B10")
async def test_an_engine_whose_removal_is_missed_is_found_dead_by_probing() -> None:
    async with two_behind_a_name() as (names, _, b, gateway):
        await b.kill()
        for _ in range(3):
            for form in FORMS.values():
                assert (await ask(gateway.url, *form)).status == 200
        await eventually(lambda: gateway.state(b) is State.EJECTED)
        names.hosts = ("127.0.0.2",)
        await eventually(lambda: [member.spec.address.host for member in gateway.members] == ["127.0.0.2"])
        names.hosts = ("127.0.0.2", "127.0.0.3")
        await b.start_again()
        await eventually(lambda: len(gateway.ready) == 2)


@pytest.mark.fault("B10")
async def test_a_name_server_that_does_not_answer_stops_nothing() -> None:
    async with two_behind_a_name() as (names, _, b, gateway):
        names.silent = True
        await asked_again(names, 1)
        await b.kill()
        await eventually(lambda: gateway.state(b) is State.EJECTED)
        assert (await ask(gateway.url, *FORMS["chat"])).status == 200
