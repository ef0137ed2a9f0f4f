"""Every prompt is another one, and the gateway remembers them all until it is killed for its memory.

Of the million prompts of the report a few thousand do: enough to fill everything that may fill.
"""

from __future__ import annotations

import gc
import tracemalloc
from collections import Counter

import pytest

from backends.fake import Behaviour
from tests.drivers.many import many
from tests.drivers.raw import Response, ask
from tests.gateways import Running, fakes, gateway_to

PROMPT_BYTES = 4096
A_ROUND = 300
KEPT_BYTES = 200_000
"""Filled by the first round."""


async def a_round(gateway: Running, number: int, path: str) -> Counter[object]:
    async def client(at: int) -> Response:
        prompt = f"{number}-{at} ".ljust(PROMPT_BYTES, "x")
        return await ask(gateway.url, path, {"prompt": prompt, "max_tokens": 2, "temperature": 0})

    return (await many(A_ROUND, client)).counts(lambda answer: answer.status)


@pytest.mark.fault("G1")
@pytest.mark.parametrize("path", ["/v1/completions", "/predict"])
async def test_memory_levels_off_when_every_prompt_is_another(path: str) -> None:
    settings = {"routing": {"policy": "prefix"}, "cache": {"type": "memory", "max_bytes": KEPT_BYTES}}
    # The fakes keep what they have seen, so they forget it after each round.
    async with fakes(2, Behaviour(version="v1")) as pair, gateway_to(*pair, **settings) as gateway:  # type: ignore[arg-type]
        tracemalloc.start()
        sizes = []
        for number in range(3):
            assert await a_round(gateway, number, path) == {200: A_ROUND}
            for fake in pair:
                fake.stats.reset()
            gateway.records.clear()
            gc.collect()
            sizes.append(tracemalloc.get_traced_memory()[0])
        tracemalloc.stop()
        # Kept, the prompts of two rounds would be twice as much. Connections come and go.
        assert sizes[-1] - sizes[0] < A_ROUND * PROMPT_BYTES
        assert 0 < await gateway.metric("changeover_cache_bytes") <= KEPT_BYTES
        assert await gateway.metric("changeover_cache_events_total", event="evict") > A_ROUND
        assert repr(gateway.service.batcher) == "<Batcher []>"
