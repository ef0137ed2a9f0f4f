"""`make stack`: everything that compose runs, on this machine and without Docker.

    python -m deploy.stack [--stay] [--port 80] [--model tiny-llama]

nginx, two gateways, two engines, Valkey, Prometheus, Alertmanager and node_exporter, from the configuration
that production uses. Without --stay it shows that it works, alerts included, and ends with one line.
Exit code 0 only if everything was as it should be.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import signal
import sys
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

import httpx2

from deploy.stack.layout import LOOPBACK, Layout
from deploy.stack.ports import PortTaken, choose
from deploy.stack.programs import ROOT, ProgramMissing
from deploy.stack.running import Running, StackFailed
from deploy.stack.show import Show, curl, watch_of
from deploy.stack.watching import Sink, sink

LOGS = ROOT / "logs" / "stack"


def say(text: str) -> None:
    print(f"stack: {text}", flush=True)


@asynccontextmanager
async def started(layout: Layout) -> AsyncIterator[tuple[Running, Sink]]:
    """All of it, up; ended in order at the end of the block. Raises StackFailed."""
    LOGS.mkdir(parents=True, exist_ok=True)
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}  # noqa: TID251 (passed on)
    running = Running(LOGS, environment, say)
    valkey = layout.valkey()
    valkey.start()
    try:
        async with sink(layout.ports.sink) as received:
            try:
                await running.start(*layout.monitoring)
                await running.start(*layout.engines)
                await running.start(*layout.gateways)
                await running.start(layout.edge)
                yield running, received
            finally:
                await running.end()
    finally:
        valkey.stop()


async def stack(layout: Layout, *, stay: bool) -> None:
    """Raises StackFailed; cancelled by SIGINT and SIGTERM, which ends everything in order."""
    layout.write()
    began = time.monotonic()
    async with started(layout) as (running, received), httpx2.AsyncClient(trust_env=False) as client:
        url = f"http://localhost:{layout.ports.edge}"
        if stay:
            await curl(url, say)
            _say_where(layout)
            while True:
                running.assert_alive()
                await asyncio.sleep(1)
        shown = await Show(layout, running, watch_of(layout, client), received, say).run()
    print(
        f"stack: ok port={layout.ports.edge} gateways={len(layout.gateways)} engines={len(layout.engines)}"
        f" requests={shown.requests} failed=0 fired_after_s={shown.fired_after_s:.0f}"
        f" cleared_after_s={shown.cleared_after_s:.0f} notifications={shown.told}"
        f" seconds={time.monotonic() - began:.0f}",
        flush=True,
    )


def _say_where(layout: Layout) -> None:
    ports = layout.ports
    say(
        f"Prometheus http://{LOOPBACK}:{ports.prometheus}, Alertmanager http://{LOOPBACK}:{ports.alertmanager}"
    )
    say(f"gateways on {ports.gateways}, engines on {ports.engines}, logs in {LOGS.relative_to(ROOT)}")
    say("Ctrl-C ends everything")


async def _main(layout: Layout, *, stay: bool) -> int:
    task = asyncio.current_task()
    assert task is not None
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        asyncio.get_running_loop().add_signal_handler(number, task.cancel)
    try:
        await stack(layout, stay=stay)
    except asyncio.CancelledError:
        say("ended as told")
        return 0 if stay else 130
    return 0


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m deploy.stack", description="Run everything here.")
    parser.add_argument("--stay", action="store_true", help="show nothing; run until Ctrl-C")
    parser.add_argument("--port", type=int, default=80, help="nginx's (default: 80)")
    parser.add_argument("--model", default="tiny-llama", help="what the engines serve (default: tiny-llama)")
    given = parser.parse_args()
    try:
        with TemporaryDirectory(prefix="co-stack-", ignore_cleanup_errors=True) as folder:
            layout = Layout(Path(folder), choose(given.port), given.model)
            return asyncio.run(_main(layout, stay=given.stay))
    except (StackFailed, PortTaken, ProgramMissing, ExceptionGroup) as error:
        print(f"stack: failed: {_why(error)}", file=sys.stderr)
        return 1


def _why(error: Exception) -> str:
    """The first reason in a group of them."""
    while isinstance(error, ExceptionGroup):
        error = error.exceptions[0]
    return str(error) or type(error).__name__


if __name__ == "__main__":
    sys.exit(main())
