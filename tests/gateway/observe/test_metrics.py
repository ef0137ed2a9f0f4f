from __future__ import annotations

import random
import string

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.fleet.states import State
from gateway.observe import table
from gateway.observe.cells import Cells
from gateway.observe.labels import OTHER_MODEL, Attempt, ConnectionState, Refusal, Route
from gateway.observe.metrics import Metrics
from gateway.observe.outcome import Outcome
from gateway.observe.reader import CellsReader
from gateway.observe.table import FAMILIES, Kind
from tests.gateway.observe.ended import book, ended


def shown(reader: CellsReader, family: table.Family, *labels: str) -> list[float]:
    return list(reader.read().series[family.name][labels])


def test_a_finished_request_is_counted_in_every_series(metrics: Metrics, reader: CellsReader) -> None:
    series = metrics.request_series("small", Route.CHAT)
    series.begin()
    assert shown(reader, table.IN_FLIGHT, "small") == [1.0]
    book(series, Outcome.OK, 1000.0, 1.25, ttft=0.21, queue=0.031, overhead=0.00041)
    assert shown(reader, table.IN_FLIGHT, "small") == [0.0]
    assert shown(reader, table.REQUESTS, "small", "chat")[0] == 1.0
    for family, labels, value in (
        (table.DURATION, ("small", "chat"), 1.25),
        (table.TTFT, ("small", "chat"), 0.21),
        (table.QUEUE, ("small",), 0.031),
        (table.OVERHEAD, ("small",), 0.00041),
    ):
        *counts, total = shown(reader, family, *labels)
        assert total == pytest.approx(value)
        assert counts.index(1.0) == next(i for i, edge in enumerate(family.buckets) if value <= edge)


def test_what_did_not_happen_is_not_observed(metrics: Metrics, reader: CellsReader) -> None:
    series = metrics.request_series("small", Route.PREDICT)
    series.begin()
    book(series, Outcome.OVER_QUOTA, 1000.0, 0.001)
    assert sum(shown(reader, table.TTFT, "small", "predict")) == 0
    assert sum(shown(reader, table.QUEUE, "small")) == 0
    assert sum(shown(reader, table.OVERHEAD, "small")) == 0


def test_a_request_that_did_not_wait_is_in_the_first_bucket(metrics: Metrics, reader: CellsReader) -> None:
    series = metrics.request_series("small", Route.PREDICT)
    series.begin()
    book(series, Outcome.OK, 1000.0, 0.001, queue=0.0)
    first, *others = shown(reader, table.QUEUE, "small")
    assert (first, sum(others)) == (1.0, 0.0)


@pytest.mark.fault("H3")
@given(outcomes=st.lists(st.sampled_from(Outcome), max_size=50))
def test_requests_equal_the_sum_of_outcomes(
    outcomes: list[Outcome], tmp_path_factory: pytest.TempPathFactory
) -> None:
    folder = tmp_path_factory.mktemp("metrics")
    cells = Cells(folder, 0, FAMILIES, now=0.0)
    series = Metrics(cells, ["small"], version="1").request_series("small", Route.PREDICT)
    for outcome in outcomes:
        series.begin()
        book(series, outcome, 1000.0, 0.5)
    reader = CellsReader(folder, FAMILIES)
    counts = dict(zip(Outcome, shown(reader, table.REQUESTS, "small", "predict"), strict=True))
    assert counts == {outcome: outcomes.count(outcome) for outcome in Outcome}
    assert sum(shown(reader, table.DURATION, "small", "predict")[:-1]) == len(outcomes)
    reader.close()
    cells.release()


@pytest.mark.fault("H2")
def test_what_clients_invent_adds_no_series(metrics: Metrics, cells: Cells) -> None:
    before = cells.series()
    draw = random.Random(1)
    for _ in range(10_000):
        model = "".join(draw.choices(string.printable, k=draw.randrange(1, 40)))
        series = metrics.request_series(model, draw.choice(list(Route)))
        series.begin()
        book(series, Outcome.CLIENT_ERROR, 1000.0, 0.001)
        assert series.model.name == OTHER_MODEL
    assert cells.series() == before


@pytest.mark.fault("H3")
def test_the_series_of_a_member_that_left_go(metrics: Metrics, reader: CellsReader) -> None:
    kept, left = metrics.member_series("small", "kept"), metrics.member_series("small", "left")
    for member in (kept, left):
        member.state(State.READY)
        member.attempts.add(Attempt.OK)
        member.load_errors.add()
        member.in_flight.add(1)
        member.connections.set(ConnectionState.IDLE, 2)
    left.close()
    left.close()
    for family in FAMILIES:
        if "member" in family.labels:
            assert list(reader.read().series[family.name]) == [("small", "kept")]


def test_a_member_is_in_one_state(metrics: Metrics, reader: CellsReader) -> None:
    member = metrics.member_series("small", "a")
    for state in State:
        member.state(state)
        cells = shown(reader, table.MEMBER_STATE, "small", "a")
        expected = [] if state is State.GONE else [state.value]
        assert [
            value for value, cell in zip(table.MEMBER_STATE.values, cells, strict=True) if cell
        ] == expected


def test_a_model_that_is_no_longer_served_goes_and_counts_as_other(
    metrics: Metrics, reader: CellsReader
) -> None:
    metrics.request_series("small", Route.PREDICT)
    metrics.set_models(["large", "new"])
    series = reader.read().series
    assert sorted(series[table.IN_FLIGHT.name]) == [("large",), ("new",), (OTHER_MODEL,)]
    assert all(model != "small" for model, _ in series[table.REQUESTS.name])
    assert metrics.request_series("small", Route.PREDICT).model.name == OTHER_MODEL


def test_a_value_outside_its_set_is_an_error(metrics: Metrics) -> None:
    with pytest.raises(KeyError):
        metrics.model("small").refused.add("whim")
    metrics.model("small").refused.add(Refusal.TOKENS)


def test_tokens_count_by_kind(metrics: Metrics, reader: CellsReader) -> None:
    for prompt, completion in ((7, 20), (1, 1)):
        metrics.model("small").book([ended(Outcome.OK, 1000.0, 0.2, prompt=prompt, completion=completion)])
    assert shown(reader, table.TOKENS, "small") == [8.0, 21.0]


def test_every_family_has_a_name_and_buckets_that_operators_expect() -> None:
    names = [family.name for family in (*table.FAMILIES, *table.DERIVED)]
    assert len(names) == len(set(names))
    for family in table.FAMILIES:
        assert family.name.endswith("_total") == (family.kind is Kind.COUNTER)
        assert list(family.buckets) == sorted(set(family.buckets))
        assert family.help.endswith(".") or family is table.BUILD
    assert 0.5 in table.DURATION_BUCKETS
    assert table.DURATION_BUCKETS[-1] == table.TTFT_BUCKETS[-1] == 1800.0
    assert table.OVERHEAD_BUCKETS[0] == 50e-6


@pytest.mark.fault("H4")
def test_the_histogram_finds_ten_minutes_within_ten_percent() -> None:
    edges = table.DURATION_BUCKETS
    for tenths in range(5900, 6200):
        duration = tenths / 10
        above = next(edge for edge in edges if duration <= edge)
        below = max(edge for edge in edges if edge < duration)
        # What histogram_quantile(0.99) answers when all observations lie in one bucket.
        assert below + 0.99 * (above - below) == pytest.approx(duration, rel=0.1)
