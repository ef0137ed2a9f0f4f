"""What `make stack` shows: an answer through the edge, and an alert that fires and clears as it should."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

import httpx2
import msgspec

from deploy.stack.layout import LOOPBACK, Layout
from deploy.stack.programs import find
from deploy.stack.running import Running, StackFailed
from deploy.stack.slow import held_slow
from deploy.stack.traffic import Traffic, traffic
from deploy.stack.watching import Sink, Watch

ALERT = "PredictLatencyHigh"
TARGETS_S = 90.0
QUIET_S = 45.0
"""Traffic before anything is made slow: three scrapes."""
ALERT_S = 480.0
"""For each of firing and clearing; both take two minutes' window and some scrapes."""
POLL_S = 1.0
CURL_LIMIT_S = 30


@dataclass(frozen=True, slots=True)
class Shown:
    fired_after_s: float
    cleared_after_s: float
    told: int
    """Messages that Alertmanager sent."""
    requests: int


@dataclass(slots=True)
class Show:
    layout: Layout
    running: Running
    watch: Watch
    sink: Sink
    say: Callable[[str], None]

    async def run(self) -> Shown:
        """Takes six to ten minutes. Raises StackFailed with what was not as it should be."""
        url = f"http://localhost:{self.layout.ports.edge}"
        await curl(url, self.say)
        await self._until(self._all_targets_up, TARGETS_S, "Prometheus scrapes everything")
        async with traffic(url) as sent:
            await self._settle()
            self.say(f"engine-0 is held slow; {ALERT} should fire in about 3 minutes")
            began = time.monotonic()
            async with held_slow(self.running.processes["engine-0"].pid):
                await self._until(self._fires, ALERT_S, f"{ALERT} fires")
                fired = time.monotonic() - began
                await self._until(self._told, ALERT_S, "Alertmanager tells it")
            self.say("it fired and was told; engine-0 is let go, it should clear in about 2 minutes")
            began = time.monotonic()
            await self._until(self._clears, ALERT_S, f"{ALERT} clears")
            cleared = time.monotonic() - began
        self._judge(sent)
        return Shown(fired, cleared, len(self.sink.told), sent.outcomes.total())

    async def _settle(self) -> None:
        """Some traffic while all is well. Raises StackFailed if an alert fires."""
        self.say(f"{QUIET_S:.0f} s of traffic while all is well")
        until = time.monotonic() + QUIET_S
        while time.monotonic() < until:
            self.running.assert_alive()
            await asyncio.sleep(POLL_S)
        if firing := await self.watch.firing():
            raise StackFailed(f"alerts fire while all is well: {sorted(firing)}")

    async def _all_targets_up(self) -> bool:
        ports = self.layout.ports
        wanted = {*ports.gateways, *ports.engines, ports.node, ports.prometheus, ports.alertmanager}
        health = await self.watch.targets()
        return all(health.get(f"{LOOPBACK}:{port}") == "up" for port in wanted)

    async def _fires(self) -> bool:
        return ALERT in await self.watch.firing()

    async def _clears(self) -> bool:
        return not await self._fires()

    async def _told(self) -> bool:
        """On both ways that a page takes."""
        return all(self.sink.to(path, ["P99 of /predict"]) for path in ("/slack", "/pagerduty"))

    async def _until(self, holds: Callable[[], Awaitable[bool]], limit_s: float, what: str) -> None:
        deadline = time.monotonic() + limit_s
        while not await holds():
            self.running.assert_alive()
            if time.monotonic() > deadline:
                raise StackFailed(f"not within {limit_s:.0f} s: {what}; firing: {await self.watch.firing()}")
            await asyncio.sleep(POLL_S)

    def _judge(self, sent: Traffic) -> None:
        if sent.failed:
            raise StackFailed(f"requests failed, a slow engine should cost none: {dict(sent.outcomes)}")


async def curl(url: str, say: Callable[[str], None]) -> None:
    """Ask as the README does. Raises StackFailed unless it answers."""
    body = msgspec.json.encode({"prompt": "Hello, world!", "max_tokens": 8}).decode()
    command = (find("curl"), "-sS", "-f", "-X", "POST", f"{url}/predict")
    header = ("-H", "Content-Type: application/json", "-d", body, "--max-time", str(CURL_LIMIT_S))
    pipe = asyncio.subprocess.PIPE
    process = await asyncio.create_subprocess_exec(*command, *header, stdout=pipe, stderr=pipe)
    answer, error = await process.communicate()
    if process.returncode != 0:
        raise StackFailed(f"curl -X POST {url}/predict: {error.decode()}")
    say(f"curl -X POST {url}/predict answers {answer.decode()[:160]}")


def watch_of(layout: Layout, client: httpx2.AsyncClient) -> Watch:
    """Its Prometheus and Alertmanager."""
    prometheus, alertmanager = layout.ports.prometheus, layout.ports.alertmanager
    return Watch(client, f"http://{LOOPBACK}:{prometheus}", f"http://{LOOPBACK}:{alertmanager}")
