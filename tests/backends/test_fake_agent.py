"""The fake agent: swaps of a fake engine, and each way in which one goes wrong."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

import pytest

from backends.agent.client import AgentClient, AgentRefused
from backends.contract import ELSEWHERE_HEADER, VERSION_HEADER, Outcome, Phase, State, SwapOrder, SwapStatus
from backends.fake import Fake
from backends.fake.agent import FakeAgent
from backends.fake.trouble import How, Manner, Trouble
from tests.drivers.raw import ask
from tests.drivers.waiting import eventually

OLD, NEW = "v1-11111111", "v2-22222222"


@dataclass
class Published:
    """Two versions, the first of which is served."""

    served: int = 1
    labels: dict[int, str] = field(default_factory=lambda: {1: OLD, 2: NEW})

    def label(self, version: int) -> str:
        return self.labels[version]

    def serving(self) -> int:
        return self.served


@dataclass
class Pair:
    fake: Fake
    agent: FakeAgent
    client: AgentClient
    published: Published

    async def swap(self, **order: object) -> SwapStatus:
        """The swap's end."""
        wanted = SwapOrder(**{"id": "one", "version": 2, "wait_s": 0.1, **order})  # type: ignore[arg-type]
        await self.client.swap(wanted)
        await eventually(lambda: self.agent.swap_status(wanted.id).phase is Phase.ENDED)
        return await self.client.swap_status(wanted.id)

    async def answered(self) -> tuple[int, str | None]:
        response = await ask(self.fake.url, "/v1/completions", {"prompt": "x", "max_tokens": 2})
        return response.status, response.header(VERSION_HEADER)


@asynccontextmanager
async def pair(*troubles: Trouble, **manner: float) -> AsyncIterator[Pair]:
    published = Published()
    behaviour = Manner(troubles=troubles, **manner)
    async with (
        Fake.start() as fake,
        FakeAgent.start(fake, published, behaviour) as agent,
        AgentClient(agent.url, agent.token) as client,
    ):
        yield Pair(fake, agent, client, published)


async def test_a_swap_changes_weights_and_label_together() -> None:
    async with pair() as found:
        assert await found.answered() == (200, OLD)
        status = await found.swap()
        assert (status.outcome, status.version) == (Outcome.SERVING_NEW, NEW)
        assert await found.answered() == (200, NEW)
        assert found.fake.engine.weights == NEW


async def test_the_same_id_is_the_same_swap_and_another_waits_its_turn() -> None:
    async with pair(phase_s=0.05) as found:
        order = SwapOrder("one", 2)
        await found.client.swap(order)
        await found.client.swap(order)
        with pytest.raises(AgentRefused, match="swap one to v2-22222222 runs") as refused:
            await found.client.swap(SwapOrder("two", 2))
        assert refused.value.status == 409
        assert len(found.agent.orders) == 1


async def test_a_held_member_serves_when_it_is_released_and_not_if_something_else_should_be() -> None:
    async with pair() as found:
        await found.client.swap(SwapOrder("one", 2, hold=True))
        await eventually(lambda: found.agent.swap_status("one").phase is Phase.HELD)
        response = await ask(found.fake.url, "/health", None, method="GET")
        assert (response.status, response.header(ELSEWHERE_HEADER)) == (503, "swapping")
        with pytest.raises(AgentRefused, match=f"{OLD} should be served by now"):
            await found.client.release("one")
        found.published.served = 2
        released = await found.client.release("one")
        assert released.outcome is Outcome.SERVING_NEW
        assert await found.client.release("one") == released
        assert await found.answered() == (200, NEW)


@pytest.mark.parametrize(
    "phase", [Phase.PREPARING, Phase.DRAINING, Phase.LOADING, Phase.PROBING, Phase.WARMING]
)
@pytest.mark.parametrize("how", [How.FAILS, How.HANGS, How.DIES, How.AGENT_DIES])
async def test_whatever_goes_wrong_the_old_weights_serve_again(phase: Phase, how: How) -> None:
    async with pair(Trouble(phase, how), hang_s=0.01) as found:
        await found.client.swap(SwapOrder("one", 2, wait_s=0.1))
        await eventually(lambda: found.agent.status().state is State.READY and _ended(found.agent))
        assert await found.answered() == (200, OLD)


def _ended(agent: FakeAgent) -> bool:
    last = agent.status().swap
    return not agent.gone and (last is None or last.phase is Phase.ENDED)


async def test_an_agent_that_lies_is_seen_by_what_its_engine_says() -> None:
    async with pair(Trouble(Phase.LOADING, How.LIES)) as found:
        assert (await found.swap()).outcome is Outcome.SERVING_NEW
        assert await found.answered() == (200, OLD)


async def test_hundreds_of_swaps_take_seconds() -> None:
    async with pair() as found:
        for number in range(100):
            status = await found.swap(id=f"s{number}", version=1 + number % 2)
            assert status.outcome is Outcome.SERVING_NEW


async def test_without_the_token_there_is_nothing() -> None:
    async with pair() as found, AgentClient(found.agent.url, "guess") as stranger:
        with pytest.raises(AgentRefused) as refused:
            await stranger.status()
        assert refused.value.status == 404
