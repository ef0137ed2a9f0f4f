"""After a week of ordinary trouble the gateway believes that idle engines are full, and memory is too."""

from __future__ import annotations

import gc
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from random import Random
from typing import Any

import pytest

from backends.fake import Behaviour, Cut, Ending, Fake, Point, Rule
from tests.drivers.leaving import How, WhileWaiting, leave
from tests.drivers.many import many
from tests.drivers.raw import ask, connected, request
from tests.drivers.sse import record
from tests.drivers.waiting import eventually, paced
from tests.gateways import FORMS, Running, fakes, gateway_to, settings_for

TROUBLE = (
    Rule(contains="400", status=400),
    Rule(contains="500", status=500),
    Rule(contains="503", status=503),
    Rule(contains="reset at once", cut=Cut(how=Ending.RESET, after=Point.NOTHING)),
    Rule(contains="reset late", cut=Cut(how=Ending.RESET, after=Point.BYTES, count=30)),
    Rule(contains="cut", cut=Cut(how=Ending.END, after=Point.BYTES, count=30)),
    Rule(contains="leaves", delay_headers_s=30),
    Rule(contains="hangs", delay_headers_s=30),
)
KINDS = ("fine", "fine", *(str(rule.contains) for rule in TROUBLE), "engine leaves or comes")
SECTIONS: dict[str, Any] = {"health": {"traffic_failures": 10_000}, "cache": {"type": "off"}}


def total(engines: tuple[Fake, ...]) -> int:
    return sum(engine.stats.in_flight for engine in engines)


def worded(form: str, kind: str, number: int) -> tuple[str, dict[str, Any]]:
    path, body = FORMS[form]
    words = f"{kind} {number}"
    said = {"messages": [{"role": "user", "content": words}]} if "messages" in body else {"prompt": words}
    return path, {**body, **said}


@asynccontextmanager
async def hangs(gateway: Running, path: str, body: dict[str, Any]) -> AsyncIterator[None]:
    """A request that is under way until the block ends."""
    before = gateway.service.admission.in_flight
    async with connected(gateway.url) as peer:
        await peer.send(request(path, body))
        await eventually(lambda: gateway.service.admission.in_flight == before + 1)
        yield


def assert_counts_agree(gateway: Running, engines: tuple[Fake, ...], held: int) -> bool:
    """The gateway's, the engines' and the test's own; members that have left hold what still runs there."""
    members = [member.in_flight for member in gateway.members]
    assert gateway.service.admission.in_flight == total(engines) == held, (gateway.service, held)
    assert 0 <= sum(members) <= held, gateway.members
    assert all(member.tokens >= 0 for member in gateway.members)
    return True


@pytest.mark.fault("A5")
@pytest.mark.parametrize("seed", range(3))
async def test_counts_agree_with_the_engines_at_every_step(seed: int) -> None:
    random = Random(seed)
    behaviour = Behaviour(rules=TROUBLE)
    async with (
        fakes(3, behaviour) as engines,
        gateway_to(*engines, **SECTIONS) as gateway,
        AsyncExitStack() as hanging,
    ):
        held = 0
        there = set(engines)
        for step in range(60):
            form = random.choice(list(FORMS))
            kind = random.choice(KINDS)
            path, body = worded(form, kind, step)
            if kind == "hangs" and held < 10:
                await hanging.enter_async_context(hangs(gateway, path, body))
                held += 1
            elif kind == "engine leaves or comes":
                there ^= {random.choice(engines)}
                urls = [each.url for each in there or engines]
                await gateway.reconfigure(settings_for(*urls, **SECTIONS, limits={"max_queued": 100 + step}))
                await eventually(lambda: len(gateway.ready) == len(gateway.members))
            elif kind == "leaves":
                gone = len(gateway.records)
                now = gateway.service.admission.in_flight
                sent = WhileWaiting(lambda n=now: eventually(lambda: total(engines) > n))  # type: ignore[misc]
                await leave(gateway.url, request(path, body), sent, random.choice(list(How)))
                await eventually(lambda n=gone: len(gateway.records) > n)  # type: ignore[misc]
            elif kind != "hangs":
                await record(gateway.url, path, body)
            await eventually(lambda n=held: assert_counts_agree(gateway, engines, n))  # type: ignore[misc]


@pytest.mark.fault("A4")
async def test_after_many_requests_nothing_has_grown() -> None:
    """A tenth is cancelled, a tenth is reset by the engine; batched, streamed and plain ones alike."""
    rules = (
        Rule(contains="reset", cut=Cut(how=Ending.RESET, after=Point.BYTES, count=30)),
        Rule(contains="cancel", delay_headers_s=30),
    )
    async with fakes(2, Behaviour(rules=rules)) as engines, gateway_to(*engines, **SECTIONS) as gateway:
        forms = list(FORMS)

        async def client(number: int) -> None:
            form = forms[number % len(forms)]
            tenth = number % 10
            if tenth == 0:
                asked = request(*worded(form, "cancel", number))
                sent = WhileWaiting(lambda: paced(0.01))
                await leave(gateway.url, asked, sent)
            elif tenth == 1:
                await record(gateway.url, *worded(form, "reset", number))
            else:
                assert (await ask(gateway.url, *worded(form, "fine", number))).status == 200

        async def load(count: int) -> int:
            (await many(count, client, at_a_time=32)).all()
            await gateway.comes_to_rest()
            gateway.records.clear()
            gateway.logged.clear()
            for engine in engines:
                engine.stats.reset()
            gc.collect()
            return len(gc.get_objects())

        await load(300)
        before = await load(100)
        after = await load(1200)
        # 1,200 requests leave not even a twelfth of an object each.
        assert after - before < 100 + 100 * len(engines)
        assert total(engines) == 0
        assert not any(member.in_flight or member.tokens for member in gateway.members)
        assert repr(gateway.service.batcher) == "<Batcher []>"
