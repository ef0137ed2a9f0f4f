from __future__ import annotations

import itertools

import pytest

from backends.fake import Behaviour, Fake
from loadtests.closed_loop import TooManyFailed, ask_in_turn
from loadtests.wire import Target, post
from loadtests.workload import Ask

ASK = Ask("x", post("/v1/completions", b'{"prompt":"a","max_tokens":1}'), False)


async def test_each_client_has_one_request_open() -> None:
    async with Fake.start(Behaviour(delay_first_chunk_s=0.01)) as fake:
        samples = await ask_in_turn(Target(fake.host, fake.port), itertools.repeat(ASK), 3, 0.5)
        assert len(samples) > 3, "clients ask again"
        assert fake.stats.max_in_flight == 3


async def test_a_server_that_refuses_gives_no_figure() -> None:
    async with Fake.start(Behaviour(status=503)) as fake:
        with pytest.raises(TooManyFailed, match="refused 503"):
            await ask_in_turn(Target(fake.host, fake.port), itertools.repeat(ASK), 2, 0.2)


async def test_a_server_that_is_silent_gives_no_figure() -> None:
    async with Fake.start(Behaviour(delay_headers_s=30)) as fake:
        with pytest.raises(TooManyFailed, match="no answer came"):
            await ask_in_turn(Target(fake.host, fake.port), itertools.repeat(ASK), 2, 0.1)
