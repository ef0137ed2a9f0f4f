"""Asks Prometheus and Alertmanager what they think, and receives what Alertmanager sends."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import httpx2

from deploy.stack.layout import LOOPBACK

HEAD_LIMIT = 64 * 1024


@dataclass(slots=True)
class Watch:
    """Both must be up. Raises httpx2.HTTPError if one is not."""

    client: httpx2.AsyncClient
    prometheus: str
    alertmanager: str

    async def targets(self) -> dict[str, str]:
        """Instance to "up", "down" or "unknown"."""
        answer = await self.client.get(f"{self.prometheus}/api/v1/targets", params={"state": "active"})
        return {t["labels"]["instance"]: t["health"] for t in answer.json()["data"]["activeTargets"]}

    async def ask(self, expression: str) -> list[dict[str, Any]]:
        """The samples of an instant query. Raises ValueError with Prometheus' words if it is refused."""
        answer = await self.client.get(f"{self.prometheus}/api/v1/query", params={"query": expression})
        said: dict[str, Any] = answer.json()
        if said["status"] != "success":
            raise ValueError(f"{expression}: {said.get('error')}")
        result: list[dict[str, Any]] = said["data"]["result"]
        return result

    async def names(self) -> list[str]:
        """Of all series."""
        answer = await self.client.get(f"{self.prometheus}/api/v1/label/__name__/values")
        found: list[str] = answer.json()["data"]
        return found

    async def firing(self) -> set[str]:
        """Alerts that Alertmanager has, and neither silences nor inhibits."""
        filters = {"active": "true", "silenced": "false", "inhibited": "false"}
        answer = await self.client.get(f"{self.alertmanager}/api/v2/alerts", params=filters)
        return {alert["labels"]["alertname"] for alert in answer.json()}


@dataclass(slots=True)
class Sink:
    """Stands for Slack and PagerDuty: keeps which of them was told what."""

    told: list[tuple[str, str]] = field(default_factory=list)
    """Path, and the beginning of the body."""

    def to(self, path: str, words: Sequence[str]) -> bool:
        """Whether this one was told something with all of these words."""
        return any(path == to and all(word in text for word in words) for to, text in self.told)


@asynccontextmanager
async def sink(port: int) -> AsyncIterator[Sink]:
    received = Sink()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
            lengths = [int(h.partition(":")[2]) for h in head if h.lower().startswith("content-length:")]
            body = await reader.readexactly(min(lengths[0] if lengths else 0, HEAD_LIMIT))
            received.told.append((head[0].split(" ")[1], body.decode(errors="replace")))
            writer.write(b"HTTP/1.1 202 Accepted\r\ncontent-length: 2\r\nconnection: close\r\n\r\nok")
            await writer.drain()
        except (OSError, asyncio.IncompleteReadError):
            pass
        finally:
            writer.close()

    server = await asyncio.start_server(serve, LOOPBACK, port, limit=HEAD_LIMIT)
    async with server:
        yield received
