"""The fake engine as a process, driven over HTTP."""

from __future__ import annotations

import asyncio
import signal
import sys

import msgspec

from backends.fake import Behaviour, Cut, Ending, Point, Rule
from tests.drivers.leaving import WhileWaiting, leave
from tests.drivers.process import free_port, running, running_fake
from tests.drivers.raw import ask, request
from tests.drivers.waiting import eventually

COMPLETIONS = "/v1/completions"
PLAIN = {"prompt": "Hello", "max_tokens": 8}


async def test_it_is_driven_while_it_runs() -> None:
    async with running_fake(Behaviour(version="v1"), name="b") as fake:
        answer = await ask(fake.url, COMPLETIONS, PLAIN)
        assert (answer.header("x-fake-name"), answer.header("x-model-version")) == ("b", "v1")
        behaviour = msgspec.json.encode(Behaviour(rules=(Rule(contains="bad", status=503),), version="v2"))
        assert (await ask(fake.url, "/fake/behaviour", behaviour)).json() == {"ok": True}
        assert (await ask(fake.url, "/fake/behaviour")).body == behaviour
        assert (await ask(fake.url, COMPLETIONS, {"prompt": "bad"})).status == 503
        stats = (await ask(fake.url, "/fake/stats")).json()
        assert stats["requests"] == {COMPLETIONS: 2}
        assert stats["statuses"] == {"200": 1, "503": 1}
        assert stats["in_flight"] == 0
        assert msgspec.json.decode(stats["seen"][0]["body"]) == PLAIN
        await ask(fake.url, "/fake/reset-stats", {})
        assert (await ask(fake.url, "/fake/stats")).json()["requests"] == {}
        fake.signal(signal.SIGTERM)
        assert await fake.ended() == 0
        assert "fake b: listening on" in fake.log


async def test_a_wrong_behaviour_is_refused_by_name_and_changes_nothing() -> None:
    async with running_fake() as fake:
        refused = await ask(fake.url, "/fake/behaviour", b'{"tokenz": 3}')
        assert refused.status == 400
        assert "tokenz" in refused.json()["error"]["message"]
        assert (await ask(fake.url, "/fake/behaviour")).body == msgspec.json.encode(Behaviour())


async def test_it_says_when_its_client_goes_away() -> None:
    async with running_fake(Behaviour(delay_headers_s=30)) as fake:

        async def waits() -> bool:
            return bool((await ask(fake.url, "/fake/stats")).json()["in_flight"])

        waiting = WhileWaiting(lambda: eventually(waits))
        await leave(fake.url, request(COMPLETIONS, PLAIN, headers=[("x-request-id", "r-1")]), waiting)

        async def gone() -> list[dict[str, object]]:
            events = (await ask(fake.url, "/fake/log")).json()["events"]
            return [event for event in events if event["event"] == "client gone"]

        (event,) = await eventually(gone)
        assert (event["request_id"], event["waiting"]) == ("r-1", True)


async def test_it_dies_when_told_to() -> None:
    async with running_fake() as fake:
        try:
            await ask(fake.url, "/fake/die", {})
        except (ConnectionResetError, AssertionError):
            pass
        assert await fake.ended() == 1


async def test_it_dies_in_a_control_call() -> None:
    rule = Rule(paths=("/collective_rpc",), cut=Cut(how=Ending.DIE, after=Point.NOTHING))
    async with running_fake(Behaviour(rules=(rule,))) as fake:
        try:
            await ask(fake.url, "/collective_rpc", {"method": "reload_weights"})
        except (ConnectionResetError, AssertionError):
            pass
        assert await fake.ended() == 1


async def test_the_control_port_is_neither_deaf_nor_frozen() -> None:
    port, control = free_port(), free_port()
    command = [sys.executable, "-m", "backends.fake", "--port", str(port), "--control-port", str(control)]
    async with running(command, f"http://127.0.0.1:{control}", "/fake/stats") as fake:
        await ask(fake.url, "/fake/behaviour", b'{"deaf": true}')
        await ask(fake.url, "/fake/freeze", b'{"seconds": null}')
        url = f"http://127.0.0.1:{port}"
        async with asyncio.TaskGroup() as group:
            health = group.create_task(ask(url, "/health"), name="health")
            await ask(fake.url, "/fake/stats")
            assert not health.done()
            await ask(fake.url, "/fake/thaw", b"{}")
            await ask(fake.url, "/fake/behaviour", b"{}")
        assert health.result().status == 200
