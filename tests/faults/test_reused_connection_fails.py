"""A connection to an engine is used again when it should not be: a 502, a lost place, or another's answer."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from backends.fake import Behaviour, Cut, Ending, Framing, Point, Rule, Say
from gateway.observe.outcome import Outcome
from tests.drivers.leaving import AfterEvents, WhileWaiting, leave
from tests.drivers.many import many
from tests.drivers.raw import ask, request
from tests.drivers.sse import record
from tests.drivers.waiting import eventually, paced
from tests.faults.seen import asked
from tests.gateways import FORMS, Running, fakes, gateway_to

WHOLE = [FORMS[name] for name in FORMS if not name.endswith("stream")]
STREAMED = [FORMS[name] for name in FORMS if name.endswith("stream")]


@pytest.mark.fault("C3")
async def test_an_idle_connection_that_the_engine_closes_costs_no_request() -> None:
    """200 rounds around the moment at which the engine closes its idle connections."""
    limit_s = 0.05
    async with fakes(1, Behaviour(idle_limit_s=limit_s)) as (fake,), gateway_to(fake) as gateway:

        async def client(number: int) -> int:
            statuses = []
            for turn in range(10):
                path, body = list(FORMS.values())[(number + turn) % len(FORMS)]
                statuses.append((await ask(gateway.url, path, body)).status)
                await paced(limit_s * (0.98 + 0.004 * turn))
            return sum(status != 200 for status in statuses)

        outcomes = await many(20, client)
        assert sum(outcomes.all()) == 0
        assert gateway.outcomes == {Outcome.OK: 200}
        assert gateway.members[0].failures == 0


@pytest.mark.fault("C3")
async def test_a_connection_that_dies_just_when_it_is_used_is_replaced_once_and_silently() -> None:
    """The engine resets every connection at its second request, before any byte of the answer."""
    async with fakes(1) as (fake,), gateway_to(fake) as gateway:
        for path, body in FORMS.values():
            assert (await ask(gateway.url, path, body)).status == 200
            first = Rule(first=1, cut=Cut(how=Ending.RESET, after=Point.NOTHING))
            fake.behave(Behaviour(rules=(first,)))
            before = len(asked(fake))
            assert (await ask(gateway.url, path, body)).status == 200
            assert len(asked(fake)) == before + 2
        assert gateway.members[0].failures == 0
        assert await gateway.metric("changeover_retries_total") == 0


@pytest.mark.fault("C3")
async def test_it_is_replaced_once_and_not_for_ever() -> None:
    async with fakes(1) as (fake,), gateway_to(fake, health={"traffic_failures": 1000}) as gateway:
        for path, body in FORMS.values():
            fake.behave(Behaviour())
            assert (await ask(gateway.url, path, body)).status == 200
            fake.behave(Behaviour(cut=Cut(how=Ending.RESET, after=Point.NOTHING)))
            before = len(asked(fake))
            assert (await ask(gateway.url, path, body)).status == 502
            assert len(asked(fake)) == before + 2


@pytest.mark.fault("C4")
async def test_as_many_requests_reach_the_engine_as_there_are() -> None:
    async with fakes(1, Behaviour(delay_headers_s=1.5)) as (fake,), gateway_to(fake) as gateway:
        forms = list(FORMS.values())

        async def client(number: int) -> int:
            path, body = forms[number % len(forms)]
            return (await ask(gateway.url, path, {**body, "seed": number})).status

        waiting = asyncio.TaskGroup()
        async with waiting:
            clients = waiting.create_task(many(300, client, at_a_time=300), name="clients")
            await eventually(lambda: fake.stats.in_flight >= 250, within=10)
        assert fake.stats.max_in_flight >= 250
        assert clients.result().counts(lambda status: status) == {200: 300}


async def _asked_with_nonce(gateway: Running, number: int) -> bool:
    """Whether a client got its own answer; some leave instead."""
    nonce = f"<{number:04}>"
    stream = number % 2 == 0
    path = ("/predict", "/v1/completions", "/v1/chat/completions")[number % 3]
    body: dict[str, Any] = {"stream": stream, "max_tokens": 8, "temperature": 0}
    if path == "/v1/chat/completions":
        body["messages"] = [{"role": "user", "content": nonce}]
    else:
        body["prompt"] = nonce
    if number % 5 == 0:
        when = AfterEvents(1) if stream else WhileWaiting(lambda: paced(0.01))
        await leave(gateway.url, request(path, body), when)
        return True
    if not stream:
        return nonce in _text((await ask(gateway.url, path, body)).json())
    recorded = await record(gateway.url, path, body)
    assert recorded.done
    return nonce in "".join(_text(event) for event in recorded.json())


def _text(answer: dict[str, Any]) -> str:
    if "text" in answer:
        return str(answer["text"])
    choices = answer.get("choices", ())
    turns = (choice.get("message") or choice.get("delta") or choice for choice in choices)
    return "".join(turn.get("content") or turn.get("text") or "" for turn in turns)


@pytest.mark.fault("C5")
async def test_nobody_gets_the_answer_of_another() -> None:
    echo = Behaviour(say=Say.PROMPT, tokens=2, tokens_per_s=100, rules=(Rule(contains="7>", say=Say.PROMPT),))
    async with fakes(2, echo) as (a, b), gateway_to(a, b) as gateway:
        outcomes = await many(500, lambda number: _asked_with_nonce(gateway, number), at_a_time=100)
        assert all(outcomes.all())


@pytest.mark.fault("C5")
@pytest.mark.parametrize("garbage", [b"x", b"HTTP/1.1 200 OK\r\ncontent-length: 4\r\n\r\nevil"])
async def test_a_connection_with_unread_bytes_is_never_used_again(garbage: bytes) -> None:
    lying = Behaviour(framing=Framing.LENGTH, length_error=-len(garbage))
    async with fakes(1, lying) as (fake,), gateway_to(fake) as gateway:
        for path, body in WHOLE:
            try:
                await ask(gateway.url, path, body)
            except AssertionError:
                pass  # the answer itself is short, which is another matter
            fake.behave(Behaviour(say=Say.PROMPT, tokens=2))
            response = await ask(gateway.url, path, body)
            assert response.status == 200
            assert _text(response.json()) in ("Hello", "Hi")
            fake.behave(lying)


@pytest.mark.fault("C7")
@pytest.mark.parametrize("interim", [100, 102, 103])
async def test_an_informational_answer_is_not_the_answer(interim: int) -> None:
    async with fakes(1, Behaviour(interim=interim)) as (fake,), gateway_to(fake) as gateway:
        for path, body in FORMS.values():
            response = await ask(gateway.url, path, body)
            assert response.status == 200
            assert response.interim == ()


@pytest.mark.fault("C7")
async def test_a_body_that_ends_with_its_connection_is_whole() -> None:
    async with fakes(1, Behaviour(framing=Framing.CLOSE)) as (fake,), gateway_to(fake) as gateway:
        for path, body in FORMS.values():
            response = await ask(gateway.url, path, body)
            assert response.status == 200
            assert response.keep_alive
            assert b"[DONE]" in response.body or response.json()


@pytest.mark.fault("C7")
async def test_an_answer_that_comes_before_the_request_was_sent_whole_is_passed_on() -> None:
    early = Behaviour(early=True, status=400, body='{"error":{"message":"no"}}', close=True)
    async with fakes(1, early) as (fake,), gateway_to(fake) as gateway:
        for path, body in FORMS.values():
            large = {**body, "parameters" if path == "/predict" else "extra": {"x": "y" * 5_000_000}}
            response = await ask(gateway.url, path, large)
            assert response.status == 400
            assert response.json()["error"]["message"] == "no"
        fake.behave(Behaviour())
        for path, body in FORMS.values():
            assert (await ask(gateway.url, path, body)).status == 200


@pytest.mark.fault("C7")
async def test_connection_close_of_an_engine_is_no_fault() -> None:
    async with fakes(1, Behaviour(close=True)) as (fake,), gateway_to(fake) as gateway:
        for _ in range(2):
            for path, body in FORMS.values():
                response = await ask(gateway.url, path, body)
                assert (response.status, response.keep_alive) == (200, True)
        assert gateway.members[0].failures == 0
