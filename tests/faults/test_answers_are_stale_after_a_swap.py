"""Kept answers outlive the weights that computed them: whoever asks gets what the engines said yesterday."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from backends.fake import Behaviour
from tests.drivers.raw import Response, ask
from tests.drivers.waiting import eventually
from tests.gateway.rollout.rolled import rolled
from tests.gateways import asked_of

SAME: dict[str, Any] = {"prompt": "What is the policy?", "max_tokens": 4, "temperature": 0}
MEMORY = {"type": "memory"}


def _told(answer: Response) -> tuple[int, str | None, str | None]:
    return answer.status, answer.header("x-model-version"), answer.header("x-cache")


@pytest.mark.fault("F8")
async def test_a_warm_answer_is_not_given_after_a_swap() -> None:
    async with rolled(2, cache=MEMORY) as fleet:
        old = fleet.publish(1)
        await fleet.serves(1)
        url = fleet.gateway.url
        assert _told(await ask(url, "/v1/completions", SAME)) == (200, old, "miss")
        assert _told(await ask(url, "/v1/completions", SAME)) == (200, old, "hit")
        new = fleet.publish(2)
        await fleet.serves(2)
        assert _told(await ask(url, "/v1/completions", SAME)) == (200, new, "miss")
        assert _told(await ask(url, "/v1/completions", SAME)) == (200, new, "hit")


@pytest.mark.fault("F8")
async def test_an_answer_that_was_begun_before_a_swap_is_not_kept_for_after_it() -> None:
    """Both engines change while it runs: it ends on the old weights, and the next is computed on the new."""
    async with rolled(2, cache=MEMORY, behaviour=Behaviour(tokens_per_s=8)) as fleet:
        old = fleet.publish(1)
        await fleet.serves(1)
        url = fleet.gateway.url
        running = asyncio.create_task(ask(url, "/v1/completions", SAME))  # noqa: TID251 (owned by the test)
        await eventually(lambda: sum(asked_of(fake) for fake in fleet.fakes) == 1)
        new = fleet.publish(2)
        assert _told(await running) == (200, old, "miss")
        await fleet.serves(2)
        assert _told(await ask(url, "/v1/completions", SAME)) == (200, new, "miss")
