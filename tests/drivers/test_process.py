"""Processes under test are judged by their end and by their log."""

from __future__ import annotations

import sys

import pytest

from tests.drivers.process import free_port, running, running_fake
from tests.drivers.raw import ask

_FAKE_WITH_A_TRACEBACK = """
import runpy, sys, traceback
try:
    raise ValueError("on purpose")
except ValueError:
    traceback.print_exc()
runpy.run_module("backends.fake", run_name="__main__", alter_sys=True)
"""


async def test_a_traceback_in_the_log_fails_the_test() -> None:
    port = free_port()
    command = [sys.executable, "-c", _FAKE_WITH_A_TRACEBACK, "--port", str(port)]
    with pytest.raises(AssertionError, match="on purpose"):
        async with running(command, f"http://127.0.0.1:{port}", "/health"):
            pass


async def test_a_process_that_ends_before_it_is_ready_says_why() -> None:
    command = [sys.executable, "-c", "raise SystemExit('no engine here')"]
    with pytest.raises(RuntimeError, match="no engine here"):
        async with running(command, "http://127.0.0.1:9", "/"):
            pass


async def test_a_process_that_ends_well_leaves_the_test_alone() -> None:
    async with running_fake() as fake:
        assert (await ask(fake.url, "/health")).status == 200
    assert fake.process.returncode == 0
