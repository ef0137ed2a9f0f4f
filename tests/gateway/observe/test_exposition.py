from __future__ import annotations

import asyncio
import math
from collections.abc import Iterable, Iterator
from pathlib import Path

import pytest
from prometheus_client import Metric
from prometheus_client.openmetrics.parser import text_string_to_metric_families as parse_openmetrics
from prometheus_client.parser import text_string_to_metric_families as parse_text

from gateway.fleet.states import State
from gateway.observe import exposition as exposition_module
from gateway.observe.cells import Cells
from gateway.observe.exposition import OPENMETRICS, TEXT, Exposition
from gateway.observe.labels import Attempt, Route
from gateway.observe.metrics import Metrics
from gateway.observe.outcome import Outcome
from gateway.observe.table import FAMILIES
from tests.gateway.observe.conftest import Claim
from tests.gateway.observe.ended import book, ended

Samples = dict[tuple[str, frozenset[tuple[str, str]]], float]


@pytest.fixture
def exposition(folder: Path) -> Iterator[Exposition]:
    exposition = Exposition(folder)
    yield exposition
    exposition.close()


def count_something(metrics: Metrics) -> None:
    member = metrics.member_series("small", 'odd "name"\\with\nbreaks')
    member.state(State.READY)
    member.attempts.add(Attempt.OK)
    series = metrics.request_series("small", Route.PREDICT)
    series.begin()
    book(series, Outcome.OK, 1000.0, 0.25, ttft=0.125, queue=0.0, overhead=0.0001)
    version = metrics.model("small").versions.of("v7-1a2b3c4d")
    version.book([ended(Outcome.OK, 1000.0, 0.3, ttft=0.1, prompt=5, completion=10)])
    rollouts = metrics.rollout_series("small")
    rollouts.members(["v7-1a2b3c4d"])
    rollouts.parity("v7-1a2b3c4d", 0.001, 0.02)


def samples(families: Iterable[Metric]) -> Samples:
    return {
        (sample.name, frozenset(sample.labels.items())): float(sample.value)
        for family in families
        for sample in family.samples
    }


def find(found: Samples, name: str, **labels: str) -> float:
    return found[name, frozenset(labels.items())]


async def test_prometheus_reads_what_was_counted(metrics: Metrics, exposition: Exposition) -> None:
    count_something(metrics)
    body, kind = await exposition.scrape("text/plain")
    assert kind == TEXT
    found = samples(parse_text(body.decode()))
    assert find(found, "changeover_requests_total", model="small", route="predict", outcome="ok") == 1
    assert find(found, "changeover_requests_total", model="small", route="predict", outcome="timeout") == 0
    labels = {"model": "small", "route": "predict"}
    assert find(found, "changeover_request_duration_seconds_bucket", **labels, le="0.2") == 0
    assert find(found, "changeover_request_duration_seconds_bucket", **labels, le="0.5") == 1
    assert find(found, "changeover_request_duration_seconds_bucket", **labels, le="+Inf") == 1
    assert find(found, "changeover_request_duration_seconds_count", **labels) == 1
    assert find(found, "changeover_request_duration_seconds_sum", **labels) == 0.25
    assert find(found, "changeover_members", model="small", state="ready") == 1
    assert find(found, "changeover_workers") == 1
    member = 'odd "name"\\with\nbreaks'
    assert find(found, "changeover_member_state", model="small", member=member, state="ready") == 1


async def test_openmetrics_says_the_same(metrics: Metrics, exposition: Exposition) -> None:
    count_something(metrics)
    text, _ = await exposition.scrape()
    body, kind = await exposition.scrape("application/openmetrics-text;version=1.0.0,text/plain;q=0.5")
    assert kind == OPENMETRICS
    assert body.endswith(b"# EOF\n")
    moving = {"changeover_process_cpu_seconds_total", "changeover_process_resident_memory_bytes"}
    plain = {key: value for key, value in samples(parse_text(text.decode())).items() if key[0] not in moving}
    strict = {
        key: value for key, value in samples(parse_openmetrics(body.decode())).items() if key[0] not in moving
    }
    assert plain.keys() == strict.keys()
    for key, value in plain.items():
        assert strict[key] == pytest.approx(value, nan_ok=True, rel=0.2), key


@pytest.mark.fault("H5")
async def test_every_metric_of_the_table_is_in_a_scrape(metrics: Metrics, exposition: Exposition) -> None:
    count_something(metrics)
    body, _ = await exposition.scrape()
    seen = {sample.name for family in parse_text(body.decode()) for sample in family.samples}
    for name in exposition_module.names():
        assert name in seen or f"{name}_bucket" in seen, name


async def test_qps_and_latency_are_shown_over_all_workers(claim: Claim, exposition: Exposition) -> None:
    loop = asyncio.get_running_loop()
    for slot in range(2):
        series = Metrics(claim(slot), ["small"], version="1").request_series("small", Route.PREDICT)
        for _ in range(50):
            series.begin()
            book(series, Outcome.OK, loop.time(), 0.5)
    minute = exposition.last_minute()
    assert minute.total.counts == minute.by_route["predict"].counts
    assert sum(minute.total.counts) == 100
    body, _ = await exposition.scrape()
    found = samples(parse_text(body.decode()))
    assert find(found, "changeover_latency_seconds", quantile="0.99") == pytest.approx(0.5, rel=0.05)
    assert find(found, "changeover_qps") > 0
    assert math.isnan(find(found, "changeover_route_latency_seconds", route="chat", quantile="0.5"))


@pytest.mark.fault("H3")
async def test_a_member_that_left_is_in_no_line(metrics: Metrics, exposition: Exposition) -> None:
    member = metrics.member_series("small", "engine-7")
    assert b"engine-7" in (await exposition.scrape())[0]
    member.close()
    assert b"engine-7" not in (await exposition.scrape())[0]


@pytest.mark.fault("G2")
def test_a_scrape_is_made_in_small_pieces(metrics: Metrics, exposition: Exposition) -> None:
    for number in range(300):
        metrics.member_series("small", f"engine-{number}")
    lines = [piece.count("\n") for piece in exposition.pieces(0.0, openmetrics=False)]
    assert sum(lines) > 3000
    assert max(lines) <= exposition_module.SERIES_PER_PIECE * max(
        family.width + 1 for family in FAMILIES if family.name != "window"
    )


@pytest.mark.fault("G2")
async def test_other_work_goes_on_during_a_scrape(metrics: Metrics, exposition: Exposition) -> None:
    turns = 0
    scraping = True

    def turn() -> None:
        nonlocal turns
        turns += 1
        if scraping:
            asyncio.get_running_loop().call_soon(turn)

    turn()
    body, _ = await exposition.scrape()
    scraping = False
    assert body
    assert turns > len(FAMILIES)


async def test_scrapes_at_the_same_time_all_get_an_answer(
    cells: Cells, metrics: Metrics, exposition: Exposition
) -> None:
    count_something(metrics)
    bodies = await asyncio.gather(*(exposition.scrape() for _ in range(5)))
    assert all(b"changeover_requests_total" in body for body, _ in bodies)
