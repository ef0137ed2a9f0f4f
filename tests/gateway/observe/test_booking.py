from __future__ import annotations

from array import array
from bisect import bisect_left

from hypothesis import given
from hypothesis import strategies as st

from gateway.observe import table
from gateway.observe.booking import observe
from gateway.observe.labels import Route
from gateway.observe.metrics import Metrics
from gateway.observe.outcome import Outcome
from gateway.observe.reader import CellsReader
from tests.gateway.observe.ended import ended

EDGES = (0.001, 0.01, 0.1, 1.0, 10.0)
NUMBERS = st.lists(st.one_of(st.sampled_from(EDGES), st.floats(0, 100)), max_size=200)


@given(NUMBERS)
def test_many_numbers_are_counted_as_one_after_the_other(numbers: list[float]) -> None:
    cells = array("d", bytes(8 * (len(EDGES) + 4)))
    values = memoryview(cells)
    observe(values, 1, EDGES, list(numbers))
    counts = [0.0] * (len(EDGES) + 1)
    for number in numbers:
        counts[bisect_left(EDGES, number)] += 1
    assert list(cells[1 : len(EDGES) + 2]) == counts
    assert abs(cells[len(EDGES) + 2] - sum(numbers)) <= 1e-9 * max(1.0, sum(numbers))
    assert (cells[0], cells[-1]) == (0.0, 0.0)


def test_time_in_the_gateway_is_counted_of_those_that_were_admitted(
    metrics: Metrics, reader: CellsReader
) -> None:
    series = metrics.request_series("small", Route.PREDICT)
    series.begin()
    series.begin()
    series.ended += [
        ended(Outcome.OVER_QUOTA, 100.0, 0.5),
        ended(Outcome.OK, 100.0, 0.5, queue=0.1, overhead=0.002),
    ]
    series.book()
    *counts, total = reader.read().series[table.OVERHEAD.name]["small",]
    assert sum(counts) == 1
    assert abs(total - 0.002) < 1e-9
