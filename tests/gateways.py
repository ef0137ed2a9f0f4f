"""A gateway in the test's own process and event loop, on a real socket, in front of given engines.

    async with fakes(2) as (a, b), gateway_to(a, b, timeouts={"first_byte_s": 0.3}) as gateway:
        answer = await ask(gateway.url, "/predict", {"prompt": "Hello"})
        assert gateway.members[0].in_flight == 0
        assert gateway.outcomes == {Outcome.OK: 1}

It is the whole gateway (uvicorn, our protocol, probers, sweeps, settings file), only without signals; its
parts can be looked at: `service` (`live`, `admission`), `fleet`, `members`, `records` (one for each request
that has ended), `metric`. The settings are `QUICK`, section by section overridden by what is given;
`reconfigure` replaces the file and reloads, as SIGHUP does. At the end of the block nothing may be left:
every count must come back to 0, and the gateway must not have logged an exception.

For signals, kills and several workers: `tests.drivers.process.running_gateway(settings_for(fake.url, ...))`.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import msgspec
from prometheus_client.parser import text_string_to_metric_families

from backends import rundir
from backends.fake import Behaviour, Fake
from backends.fake.behaviour import WORK_PATHS
from gateway.app import Gateway
from gateway.fleet.discovery import LookUp, system_look_up
from gateway.fleet.fleet import Fleet
from gateway.fleet.member import Member
from gateway.fleet.states import State
from gateway.flow.service import Service
from gateway.observe import cells
from gateway.observe.outcome import Outcome
from gateway.observe.record import RequestRecord
from gateway.server import Server, listen
from gateway.settings.load import load
from tests.drivers.raw import ask
from tests.drivers.waiting import eventually

Settings = Mapping[str, Any]

QUICK: Settings = {
    "health": {
        "interval_s": 0.1,
        "timeout_s": 0.5,
        "breaker_open_s": 0.2,
        "breaker_max_s": 0.4,
        "stall_s": 10,
        "resolve_s": 0.1,
    },
    "logging": {"format": "json"},
}
"""Everything happens within tenths of a second."""

FORMS: dict[str, tuple[str, dict[str, Any]]] = {
    "predict": ("/predict", {"prompt": "Hello", "max_tokens": 4}),
    "predict-stream": ("/predict", {"prompt": "Hello", "max_tokens": 4, "stream": True}),
    "completions": ("/v1/completions", {"prompt": "Hello", "max_tokens": 4}),
    "completions-stream": ("/v1/completions", {"prompt": "Hello", "max_tokens": 4, "stream": True}),
    "chat": ("/v1/chat/completions", {"messages": [{"role": "user", "content": "Hi"}], "max_tokens": 4}),
    "chat-stream": (
        "/v1/chat/completions",
        {"messages": [{"role": "user", "content": "Hi"}], "max_tokens": 4, "stream": True},
    ),
}
"""Every hot route that generates, whole and streamed: name to path and body."""

STREAMS = {name: form for name, form in FORMS.items() if name.endswith("stream")}

BUSY_S = 20.0
"""For what takes no time, on a machine that has too much to do."""

POLICIES = ("round_robin", "least_load", "power_of_two", "prefix", "session")


def settings_for(*urls: str, **sections: Settings) -> dict[str, Any]:
    """`QUICK` in front of these engines; `sections` go over it."""
    whole: dict[str, Any] = {"endpoints": list(urls), **QUICK}
    for name, section in sections.items():
        given = whole.get(name)
        whole[name] = {**given, **section} if isinstance(given, dict) else section
    return whole


@dataclass(slots=True)
class Running:
    """A gateway that serves."""

    gateway: Gateway
    url: str
    file: Path
    """Its settings."""
    records: list[RequestRecord]
    """What the log and the trace were told, in the order in which the requests ended."""
    logged: list[logging.LogRecord] = field(default_factory=list)
    """What the gateway's code logged."""

    @property
    def service(self) -> Service:
        """Of the first model."""
        return next(iter(self.gateway.services))

    @property
    def fleet(self) -> Fleet:
        return self.service.fleet

    @property
    def members(self) -> tuple[Member, ...]:
        """In the order of the engines given."""
        return tuple(self.fleet.members)

    @property
    def ready(self) -> list[Member]:
        """The members that are ready."""
        return [member for member in self.members if member.health.state is State.READY]

    def member(self, fake: Fake) -> Member:
        """The member that stands for this engine."""
        return next(member for member in self.members if str(member.spec.address) == fake.url)

    def state(self, fake: Fake) -> State:
        return self.member(fake).health.state

    @property
    def outcomes(self) -> Counter[Outcome]:
        """How the requests have ended that have ended."""
        return Counter(record.outcome for record in self.records)

    async def metric(self, name: str, **labels: str) -> float:
        """The sum over all series of this name with these labels, in a scrape. Fails if there is no such."""
        page = (await ask(self.url, "/metrics")).body.decode()
        found = [
            sample.value
            for family in text_string_to_metric_families(page)
            for sample in family.samples
            if sample.name == name and labels.items() <= sample.labels.items()
        ]
        assert found, f"no series {name} {labels}"
        return sum(found)

    async def reconfigure(self, settings: Settings) -> None:
        """Replace the file by other settings and have it read, as SIGHUP does.

        Returns when it was taken over or refused.
        """
        before = await self.metric("changeover_config_reloads_total")
        self.file.write_bytes(msgspec.json.encode(settings))
        self.gateway.reload_now()

        async def read() -> bool:
            return await self.metric("changeover_config_reloads_total") > before

        await eventually(read, within=BUSY_S, what="the settings were read again")

    def leftovers(self) -> list[str]:
        """Every count that is not 0."""
        found = {"edge buffered": self.gateway.edge.buffered}
        for service in self.gateway.services:
            found |= {
                f"{service.name} live": len(service.live),
                f"{service.name} in flight": service.admission.in_flight,
                f"{service.name} tokens": service.admission.tokens,
                f"{service.name} queued": service.admission.queued,
                f"{service.name} in flight by version": service.lanes.in_flight,
                f"{service.name} queued by version": service.lanes.queued,
            }
            for member in service.fleet.members:
                # One may be the prober's.
                busy = max(0, member.pool.open_count - member.pool.idle_count - 1)
                found |= {
                    f"{member.name} in flight": member.in_flight,
                    f"{member.name} tokens": member.tokens,
                    f"{member.name} busy connections": busy,
                }
        return [f"{what}: {count}" for what, count in found.items() if count]

    async def comes_to_rest(self, within: float = 2.0) -> None:
        """Return when every count is 0."""

        def at_rest() -> bool:
            left = self.leftovers()
            assert not left, left
            return True

        await eventually(at_rest, within=within, what="every count is 0")


class _InProcess(Server):
    """Leaves signals to pytest."""

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


class _Collector(logging.Handler):
    def __init__(self, records: list[logging.LogRecord]) -> None:
        super().__init__()
        self._records = records

    def emit(self, record: logging.LogRecord) -> None:
        self._records.append(record)


@asynccontextmanager
async def gateway_to(
    *engines: Fake | str,
    ready: bool = True,
    rests: bool = True,
    look_up: LookUp = system_look_up,
    **sections: Settings,
) -> AsyncIterator[Running]:
    """A gateway in front of these engines (or URLs). `sections`: settings, such as `limits={...}`.

    ready: wait until every engine is. rests: at the end every count must come back to 0.
    """
    urls = [engine if isinstance(engine, str) else engine.url for engine in engines]
    async with serving(settings_for(*urls, **sections), look_up) as running:
        if ready:
            await eventually(lambda: all(m.health.state is State.READY for m in running.members) and urls)
        yield running
        if rests:
            await running.comes_to_rest()


@asynccontextmanager
async def serving(settings: Settings, look_up: LookUp = system_look_up) -> AsyncIterator[Running]:
    """A gateway with exactly these settings (but for host and port). Fails if it logs an exception."""
    records: list[RequestRecord] = []
    logged: list[logging.LogRecord] = []
    with TemporaryDirectory() as folder, _collected(logged):
        file = Path(folder) / "infer_config.yaml"
        file.write_bytes(msgspec.json.encode(settings))  # YAML is a superset of JSON
        run_dir = Path(folder) / "run"
        rundir.prepare(run_dir)
        cells.prepare(run_dir / "metrics")
        sock = listen("127.0.0.1", 0, shared=False)

        def read() -> Any:
            return load(file, environment={})

        gateway = Gateway(read(), run_dir=run_dir, sinks=(records.append,), load=read, look_up=look_up)
        server = _InProcess(gateway)
        url = f"http://127.0.0.1:{sock.getsockname()[1]}"
        task = asyncio.get_running_loop().create_task(server.serve(sockets=[sock]), name="gateway")
        try:
            await eventually(lambda: server.started or task.done(), within=BUSY_S, what="the gateway listens")
            yield Running(gateway, url, file, records, logged)
        finally:
            # Told to end rather than cancelled, also where the test has failed: sockets are closed in order.
            gateway.abort()
            server.should_exit = True
            await task
        failures = [record for record in logged if record.exc_info]
        assert not failures, logging.Formatter().format(failures[0])


@contextmanager
def _collected(records: list[logging.LogRecord]) -> Iterator[None]:
    logger = logging.getLogger("gateway")
    handler = _Collector(records)
    level = logger.level
    logger.addHandler(handler)
    logger.setLevel(logging.INFO)
    try:
        yield
    finally:
        logger.removeHandler(handler)
        logger.setLevel(level)


def asked_of(fake: Fake) -> int:
    """How many generation requests have reached the engine."""
    return sum(fake.stats.requests[path] for path in WORK_PATHS)


@asynccontextmanager
async def fakes(count: int, behaviour: Behaviour | None = None) -> AsyncIterator[tuple[Fake, ...]]:
    """So many fake engines that behave alike, named a, b, c and so on."""
    async with AsyncExitStack() as stack:
        yield tuple(
            [await stack.enter_async_context(Fake.start(behaviour, name=chr(97 + i))) for i in range(count)]
        )
