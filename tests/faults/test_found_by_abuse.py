"""What random abuse (`make abuse`) found: each as the short script that was left of it, or as its kind."""

from __future__ import annotations

from collections.abc import Iterator
from typing import cast

import pytest
from redis.asyncio import Redis

from backends.fake import Behaviour
from gateway.fleet.member import UNVERSIONED
from gateway.rollout.lease import RedisLease
from tests.abuse.play import play
from tests.abuse.steps import Ask, Replace, Step, Stranger
from tests.abuse.world import Ground, ground
from tests.drivers.sse import record
from tests.drivers.waiting import eventually
from tests.gateways import FORMS, fakes, gateway_to

V7 = "v7-0a0a0a0a"
FOUND: dict[str, list[Step]] = {
    # A client of Redis lost the cancellation of a rollout's rounds: they went on, beside a closed gateway.
    "gateways end while they renew the lease": [Replace(0), Replace(1)] * 4,
    "another engine takes an address and names no weights": [
        *(Stranger(engine, says=False) for engine in range(3)),
        *(Ask(form=form, temperature=None) for form in ("completions", "predict stream", "chat stream")),
    ],
}


@pytest.fixture(scope="module")
def shared() -> Iterator[Ground]:
    with ground() as found:
        yield found


@pytest.mark.parametrize("name", FOUND)
async def test_what_abuse_found_does_not_come_again(name: str, shared: Ground) -> None:
    assert await play(shared, FOUND[name]) == []


@pytest.mark.parametrize("form", FORMS)
async def test_an_answer_without_a_name_is_not_given_the_name_that_others_had(form: str) -> None:
    """Whether a probe has seen the other engine or not."""
    path, body = FORMS[form]
    async with (
        fakes(1, Behaviour(version=V7)) as (fake,),
        gateway_to(fake, health={"interval_s": 30}, cache={"type": "off"}) as gateway,
    ):
        fake.behave(Behaviour(version="others", announce_version=False))
        answer = await record(gateway.url, path, body)
        assert answer.head is not None
        assert answer.head.header("x-model-version") == UNVERSIONED
        assert b"others" in answer.content
        assert gateway.member(fake).version == UNVERSIONED
        wished = await record(gateway.url, path, body, headers=[("x-model-version", V7)])
        assert wished.head is not None
        assert wished.head.status in (404, 503)
        assert b"others" not in wished.content


async def test_probes_learn_that_weights_are_named_no_more() -> None:
    async with fakes(1, Behaviour(version=V7)) as (fake,), gateway_to(fake) as gateway:
        await eventually(lambda: gateway.member(fake).version == V7)
        fake.behave(Behaviour(version="others", announce_version=False))
        await eventually(lambda: gateway.member(fake).version == UNVERSIONED)


async def test_a_refusal_without_a_name_says_nothing_of_the_weights() -> None:
    """As a proxy between gateway and engine gives it."""
    named = {"interval_s": 30}
    async with fakes(1, Behaviour(version=V7)) as (fake,), gateway_to(fake, health=named) as gateway:
        fake.behave(Behaviour(version=V7, announce_version=False, status=404))
        path, body = FORMS["completions"]
        assert (await record(gateway.url, path, body)).status == 404
        assert gateway.member(fake).version == V7


class _Closed:
    """A client of Redis whose connection the other side has just closed, as uvloop tells it."""

    def register_script(self, text: str) -> _Closed:
        del text
        return self

    async def __call__(self, keys: list[str], args: list[object]) -> int:
        raise RuntimeError("unable to perform operation on <TCPTransport closed=True>; the handler is closed")


async def test_a_lease_whose_connection_was_just_closed_is_not_held() -> None:
    """It ended the rounds of all rollouts with a traceback each time."""
    lease = RedisLease(cast(Redis, _Closed()), "small", "me")
    assert not await lease.hold()
    assert not lease.held
