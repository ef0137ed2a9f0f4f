from __future__ import annotations

import os
import sys

import pytest

from loadtests.peers.listener import REQUEST, listen
from loadtests.processes import free_ports, running
from loadtests.wire import post


@pytest.fixture
def pacer() -> int:
    return free_ports(1)[0]


async def test_every_open_stream_gets_an_event_at_each_tick(pacer: int) -> None:
    command = [sys.executable, "-m", "loadtests.peers.pacer", "--every-ms", "20", str(pacer)]
    with running("pacer", command, port=pacer):
        counted = await listen(pacer, os.getpid(), 4, 0.5, post("/v1/completions", REQUEST))
    assert counted.streams == 4
    assert counted.events > 4
    assert counted.cpu_per_event_s * counted.events == pytest.approx(counted.cpu_s)
