"""The stack's programs come up in order and end in the other; an engine that was held slow runs on."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from pathlib import Path

import pytest

from deploy.stack.layout import Program
from deploy.stack.running import Running, StackFailed, descendants
from deploy.stack.slow import held_slow
from tests.drivers.process import free_port
from tests.drivers.waiting import eventually


def _server(name: str, port: int) -> Program:
    return Program(
        name, (sys.executable, "-m", "http.server", "--bind", "127.0.0.1", str(port)), port, "/", grace_s=5.0
    )


async def test_programs_end_in_the_other_order(tmp_path: Path) -> None:
    said: list[str] = []
    running = Running(tmp_path, {"PATH": "/usr/bin"}, said.append)

    await running.start(_server("first", free_port()))
    await running.start(_server("second", free_port()))
    processes = dict(running.processes)
    await running.end()

    assert said[-2:] == ["second ended", "first ended"]
    assert all(process.returncode is not None for process in processes.values())


async def test_one_that_cannot_start_is_told_with_its_last_words(tmp_path: Path) -> None:
    running = Running(tmp_path, {"PATH": "/usr/bin"}, lambda _: None)
    broken = Program("broken", (sys.executable, "-c", "raise SystemExit('no such luck')"), free_port(), "/")

    with pytest.raises(StackFailed, match="broken ended with 1:\nno such luck"):
        await running.start(broken)
    await running.end()


async def test_an_engine_that_was_held_slow_runs_on() -> None:
    code = "import sys, time\nwhile True: time.sleep(1)"
    agent = await asyncio.create_subprocess_exec(
        *("/bin/sh", "-c", f'"{sys.executable}" -c "{code}" EngineCore & wait')
    )
    try:
        await eventually(lambda: descendants(agent.pid), what="the engine runs")
        (core,) = descendants(agent.pid)
        await eventually(lambda: b"EngineCore" in Path(f"/proc/{core}/cmdline").read_bytes())

        async with held_slow(agent.pid):
            await eventually(lambda: _state(core) == "T", what="the engine is stopped")

        await eventually(lambda: _state(core) in "SR", what="the engine runs on")
    finally:
        for pid in (*descendants(agent.pid), agent.pid):
            os.kill(pid, signal.SIGKILL)
        await agent.wait()


async def test_there_must_be_an_engine_to_hold() -> None:
    alone = await asyncio.create_subprocess_exec("/bin/sleep", "60")
    try:
        with pytest.raises(StackFailed, match="no process below"):
            async with held_slow(alone.pid):
                pass
    finally:
        alone.kill()
        await alone.wait()


def _state(pid: int) -> str:
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
