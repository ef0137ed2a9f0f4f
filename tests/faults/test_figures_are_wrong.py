"""An operator looks at the metrics, and they fall, multiply, or tell of engines long gone."""

from __future__ import annotations

import os
import re
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families

from backends.fake import Behaviour, Cut, Ending, Point, Rule
from tests.drivers.leaving import AfterEvents, leave
from tests.drivers.many import many
from tests.drivers.process import running_gateway
from tests.drivers.raw import Peer, ask, connected, request
from tests.drivers.sse import record
from tests.drivers.waiting import eventually
from tests.gateways import FORMS, fakes, gateway_to, settings_for

REQUESTS = "changeover_requests_total"
JSON = [("content-type", "application/json")]


def _sum(page: str, name: str, **labels: str) -> float:
    return sum(
        sample.value
        for family in text_string_to_metric_families(page)
        for sample in family.samples
        if sample.name == name and labels.items() <= sample.labels.items()
    )


async def _page(url: str) -> str:
    return (await ask(url, "/metrics")).body.decode()


async def _ask_all(peer: Peer, asked: list[bytes]) -> None:
    """Send these on one connection, some at a time, and read until all are answered."""
    for start in range(0, len(asked), 50):
        some = asked[start : start + 50]
        peer.received.clear()
        await peer.send(b"".join(some))
        while len(re.findall(rb"HTTP/1\.1 \d", bytes(peer.received))) < len(some):
            assert await peer.receive(), "the connection was closed"


@pytest.mark.fault("H1")
async def test_counts_of_four_workers_are_exact_and_survive_a_kill() -> None:
    async with (
        fakes(1, Behaviour(fixed=True)) as (fake,),
        running_gateway(settings_for(fake.url, server={"workers": 4, "settle_s": 0})) as gateway,
    ):
        children = Path(f"/proc/{gateway.process.pid}/task/{gateway.process.pid}/children")
        workers = [int(pid) for pid in children.read_text().split()]
        assert len(workers) == 4

        async def fifty(number: int) -> None:
            async with connected(gateway.url) as peer:
                await _ask_all(peer, [request("/v1/completions", {"prompt": "x", "max_tokens": 1})] * 50)

        (await many(20, fifty)).all()
        for _ in range(20):
            assert _sum(await _page(gateway.url), REQUESTS) == 1_000
        os.kill(workers[0], signal.SIGKILL)

        async def back() -> bool:
            now = {int(pid) for pid in children.read_text().split()}
            return len(now) == 4 and workers[0] not in now

        seen = 1_000.0
        for _ in range(20):
            try:
                page = await _page(gateway.url)
            except OSError:
                continue  # it was in the dead worker's queue
            total = _sum(page, REQUESTS)
            assert total >= seen, "a count never falls"
            seen = total
        await eventually(back)
        assert seen == 1_000


def _oddities() -> Iterator[bytes]:
    for number in range(3_500):
        yield request(f"/{number}/x")
        yield request("/v1/completions", {"model": f"model-{number}", "prompt": "x"})
        yield request("/predict", {"prompt": "x"}, headers=[("authorization", f"Bearer key-{number}")])


@pytest.mark.fault("H2")
async def test_nothing_that_clients_make_up_becomes_a_series() -> None:
    """10,500 random paths, model names and keys."""
    keys = {"keys": [{"name": "a", "sha256": "0" * 64}]}
    async with fakes(1, Behaviour(fixed=True)) as (fake,), gateway_to(fake, auth=keys) as gateway:

        def lines(page: str) -> int:
            return len([line for line in page.splitlines() if not line.startswith("#")])

        before = lines(await _page(gateway.url))
        async with connected(gateway.url) as peer:
            await _ask_all(peer, list(_oddities()))
        assert lines(await _page(gateway.url)) == before


@pytest.mark.fault("H2")
async def test_model_names_that_are_unknown_are_one_series() -> None:
    async with fakes(1, Behaviour(fixed=True)) as (fake,), gateway_to(fake) as gateway:
        names = {sample for sample in (await _page(gateway.url)).splitlines() if "model-" in sample}
        assert not names
        async with connected(gateway.url) as peer:
            await _ask_all(
                peer,
                [request("/v1/completions", {"model": f"model-{n}", "prompt": "x"}) for n in range(500)],
            )
        assert "model-" not in await _page(gateway.url)
        assert await gateway.metric(REQUESTS, outcome="ok") == 500


@pytest.mark.fault("H3")
async def test_the_series_of_an_engine_that_was_removed_go() -> None:
    async with fakes(2) as (a, b), gateway_to(a, b) as gateway:
        names = {gateway.member(fake).name for fake in (a, b)}
        for path, body in FORMS.values():
            await ask(gateway.url, path, body)
        page = await _page(gateway.url)
        assert all(f'member="{name}"' in page for name in names)
        gone = gateway.member(b).name
        await gateway.reconfigure(settings_for(a.url))

        async def forgotten() -> bool:
            return f'member="{gone}"' not in await _page(gateway.url)

        await eventually(forgotten)
        await gateway.reconfigure(settings_for(a.url, b.url))
        assert f'member="{gone}"' in await _page(gateway.url)


@pytest.mark.fault("H3")
async def test_requests_are_the_sum_of_their_outcomes_and_retries_are_apart() -> None:
    resets = Rule(contains="again", first=3, cut=Cut(how=Ending.RESET, after=Point.NOTHING))
    breaks = Rule(contains="break", cut=Cut(how=Ending.RESET, after=Point.CHUNKS, count=1))
    wrong = Rule(contains="wrong", status=400)
    behaviour = Behaviour(rules=(resets, breaks, wrong), tokens=4)
    asked: dict[str, Any] = {"max_tokens": 4, "seed": 1}
    retries = {"budget_min_per_s": 100}
    async with fakes(2, behaviour) as (a, b), gateway_to(a, b, retries=retries) as gateway:
        count = 0
        for number in range(6):
            for prompt in ("fine", "again", "wrong"):
                await ask(gateway.url, "/v1/completions", {**asked, "prompt": prompt, "seed": number})
                count += 1
            await record(gateway.url, "/v1/completions", {**asked, "prompt": "break", "stream": True})
            body = request("/v1/completions", {**asked, "prompt": "fine", "stream": True})
            await leave(gateway.url, body, AfterEvents(0))
            await ask(gateway.url, "/predict", b"[]", headers=JSON)
            count += 3
        await gateway.comes_to_rest()
        await eventually(lambda: len(gateway.records) == count)
        page = await _page(gateway.url)
        assert _sum(page, REQUESTS) == count
        outcomes = {str(outcome): number for outcome, number in gateway.outcomes.items()}
        for outcome, number in outcomes.items():
            assert _sum(page, REQUESTS, outcome=outcome) == number
        assert _sum(page, "changeover_request_duration_seconds_count") == count
        attempts = _sum(page, "changeover_upstream_attempts_total")
        retried = _sum(page, "changeover_retries_total")
        assert retried >= 1
        sent = sum(fake.stats.requests["/v1/completions"] for fake in (a, b))
        # A kept-alive connection that died when it was used is replaced, and that is no attempt.
        assert attempts <= sent <= attempts + 3


@pytest.mark.fault("H4")
async def test_long_streams_are_seen_in_their_length() -> None:
    """Seconds stand for minutes here; that ten minutes have buckets of their own is a unit test's matter."""
    async with fakes(1, Behaviour(tokens=12, tokens_per_s=10)) as (fake,), gateway_to(fake) as gateway:
        body = {"prompt": "x", "stream": True, "max_tokens": 12}
        outcomes = await many(
            20, lambda number: record(gateway.url, "/v1/completions", {**body, "seed": number})
        )
        assert all(stream.done for stream in outcomes.all())
        [longest] = sorted(request.duration for request in gateway.records)[-1:]
        page = await _page(gateway.url)
        measured = _sum(page, "changeover_latency_seconds", quantile="0.99")
        assert longest * 0.9 < measured < longest * 1.1
        total = _sum(page, "changeover_request_duration_seconds_sum")
        assert total == pytest.approx(sum(request.duration for request in gateway.records))
