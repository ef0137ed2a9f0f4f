"""The real Alertmanager with the project's configuration tells whom it should, and stays silent else."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx2

from deploy.stack.layout import Layout
from deploy.stack.ports import choose
from deploy.stack.watching import Sink, sink
from tests.drivers.process import free_port, running
from tests.drivers.waiting import eventually

WAIT = ("group_wait: 15s", "group_wait: 200ms")
"""What is told at once here and after a moment there."""


@asynccontextmanager
async def alertmanager(folder: Path) -> AsyncIterator[tuple[httpx2.AsyncClient, Sink]]:
    """As `make stack` runs it, but for the time that alerts are collected."""
    layout = Layout(folder, choose(free_port()), "tiny-llama")
    layout.write()
    file = folder / "alertmanager" / "alertmanager.yml"
    text = file.read_text()
    assert WAIT[0] in text
    file.write_text(text.replace(*WAIT))
    program = next(program for program in layout.monitoring if program.name == "alertmanager")
    url = f"http://127.0.0.1:{program.port}"
    client = httpx2.AsyncClient(base_url=url, trust_env=False)
    async with sink(layout.ports.sink) as told, running(list(program.command), url, program.ready), client:
        yield client, told


async def send(client: httpx2.AsyncClient, *alerts: dict[str, str]) -> None:
    body: list[dict[str, Any]] = [
        {"labels": labels, "annotations": {"summary": f"{labels['alertname']} it is"}} for labels in alerts
    ]
    answer = await client.post("/api/v2/alerts", json=body)
    assert answer.status_code == 200, answer.text


async def test_a_page_goes_to_pagerduty_and_slack_a_ticket_to_slack_alone(tmp_path: Path) -> None:
    async with alertmanager(tmp_path) as (client, told):
        await send(
            client,
            {"alertname": "GatewayDown", "severity": "page", "area": "serving", "instance": "g"},
            {"alertname": "SwapFailed", "severity": "ticket", "area": "fleet", "model": "m"},
            {"alertname": "TrainerStalled", "severity": "page", "area": "training", "instance": "t"},
        )
        for path, words in (
            ("/pagerduty", ["GatewayDown it is"]),
            ("/slack", ["#serving", "GatewayDown it is"]),
            ("/slack", ["#serving", "SwapFailed it is"]),
            ("/pagerduty", ["TrainerStalled it is"]),
            ("/slack", ["#training", "TrainerStalled it is"]),
        ):
            await eventually(lambda p=path, w=words: told.to(p, w), within=20, what=f"{path} is told {words}")

        assert not told.to("/pagerduty", ["SwapFailed"])


async def test_the_cause_speaks_and_its_consequences_are_silent(tmp_path: Path) -> None:
    async with alertmanager(tmp_path) as (client, told):
        await send(client, {"alertname": "NoBackend", "severity": "page", "area": "fleet", "model": "m"})
        await eventually(lambda: told.to("/slack", ["NoBackend it is"]), within=20)
        await send(
            client,
            {"alertname": "BackendDown", "severity": "ticket", "area": "fleet", "model": "m"},
            {"alertname": "BackendDown", "severity": "ticket", "area": "fleet", "model": "another"},
        )
        await eventually(lambda: told.to("/slack", ["BackendDown it is"]), within=20)

        inhibited = (await client.get("/api/v2/alerts", params={"active": "false"})).json()

    assert [alert["labels"]["model"] for alert in inhibited] == ["m"]
