"""An engine is killed, and users get cut answers that look whole, or errors for what was never begun."""

from __future__ import annotations

import asyncio

import pytest

from backends.fake import Behaviour
from gateway.fleet.states import State
from gateway.observe.outcome import Outcome
from tests.drivers.raw import ask
from tests.drivers.sse import record
from tests.drivers.waiting import eventually
from tests.gateways import FORMS, POLICIES, STREAMS, asked_of, fakes, gateway_to

ROUND_ROBIN = {"policy": "round_robin"}


@pytest.mark.fault("B8")
@pytest.mark.parametrize("policy", POLICIES)
async def test_what_had_no_first_byte_succeeds_elsewhere(policy: str) -> None:
    async with (
        fakes(2, Behaviour(delay_headers_s=30)) as (killed, other),
        gateway_to(killed, other, routing={"policy": policy}) as gateway,
        asyncio.TaskGroup() as group,
    ):
        answers = [
            group.create_task(ask(gateway.url, *form, headers=[("x-session-id", name)]), name=name)
            for name, form in FORMS.items()
        ]
        await eventually(lambda: asked_of(killed) + asked_of(other) == len(FORMS))
        other.behave(Behaviour())
        stuck = other.stats.in_flight
        await killed.kill()
        await eventually(lambda: sum(answer.done() for answer in answers) == len(FORMS) - stuck)
        assert {answer.result().status for answer in answers if answer.done()} <= {200}
        await other.kill()
        await other.start_again()
        await asyncio.wait(answers)
        assert gateway.outcomes[Outcome.BACKEND_ERROR] <= stuck


@pytest.mark.fault("B8")
@pytest.mark.parametrize("form", STREAMS)
async def test_open_streams_end_in_an_error_event_and_the_others_go_on(form: str) -> None:
    slow = Behaviour(tokens=60, tokens_per_s=60)
    async with (
        fakes(2, slow) as (killed, other),
        gateway_to(killed, other, routing=ROUND_ROBIN, health={"traffic_failures": 2}) as gateway,
        asyncio.TaskGroup() as group,
    ):
        path, body = STREAMS[form]
        streams = [group.create_task(record(gateway.url, path, body), name="stream") for _ in range(8)]
        await eventually(lambda: killed.stats.in_flight == other.stats.in_flight == 4)
        await eventually(lambda: killed.stats.generation_tokens > 8)
        await killed.kill()
        await eventually(lambda: gateway.state(killed) is State.EJECTED)
        recorded = await asyncio.gather(*streams)
        broken = [stream for stream in recorded if not stream.done]
        assert len(broken) == 4
        for stream in broken:
            assert stream.status == 200
            assert stream.errors[-1]["code"] == "backend_failed"
        assert not any(stream.errors for stream in recorded if stream.done)
        assert gateway.outcomes == {Outcome.OK: 4, Outcome.TRUNCATED: 4}
        assert (await ask(gateway.url, *FORMS["chat"])).status == 200
