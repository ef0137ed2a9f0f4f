from __future__ import annotations

from gateway.observe import table
from gateway.observe.cells import Cells
from gateway.observe.reader import CellsReader
from tests.gateway.observe.conftest import Claim


def test_counters_add_up_over_workers(claim: Claim, reader: CellsReader) -> None:
    for slot in range(3):
        cells = claim(slot)
        cells.values[cells.open(table.TASK_FAILURES)] += slot + 1
    assert list(reader.read().series[table.TASK_FAILURES.name][()]) == [6.0]


def test_gauges_combine_as_the_table_says(claim: Claim, reader: CellsReader) -> None:
    for slot in range(2):
        cells = claim(slot)
        cells.values[cells.open(table.OPEN_CONNECTIONS)] = 10 + slot
        cells.values[cells.open(table.LAST_RELOAD)] = 10 + slot
    series = reader.read().series
    assert list(series[table.OPEN_CONNECTIONS.name][()]) == [21.0]
    assert list(series[table.LAST_RELOAD.name][()]) == [11.0]


def test_a_worker_that_left_in_order_keeps_its_counts_and_drops_its_gauges(
    claim: Claim, reader: CellsReader
) -> None:
    cells = claim(0)
    cells.values[cells.open(table.TASK_FAILURES)] = 4
    cells.values[cells.open(table.OPEN_CONNECTIONS)] = 9
    cells.release()
    reading = reader.read()
    assert list(reading.series[table.TASK_FAILURES.name][()]) == [4.0]
    assert table.OPEN_CONNECTIONS.name not in reading.series
    assert reading.workers == {}


def test_a_series_made_between_two_readings_is_seen(cells: Cells, reader: CellsReader) -> None:
    assert reader.read().series == {}
    cells.values[cells.open(table.IN_FLIGHT, ("small",))] = 1
    assert list(reader.read().series[table.IN_FLIGHT.name]) == [("small",)]


def test_a_series_that_is_replaced_while_it_is_read_is_left_out(claim: Claim, reader: CellsReader) -> None:
    """The reader has copied the cells; before it looks at them, they come to belong to another series."""
    cells = claim(0)
    index = cells.open(table.LOAD_ERRORS, ("small", "old"))
    cells.values[index] = 5
    assert list(reader.read().series[table.LOAD_ERRORS.name]) == [("small", "old")]
    # What a writer does first when it reuses a block: void the tag, then count anew.
    cells.values[index - 1] = 0
    cells.values[index] = 1
    assert reader.read().series.get(table.LOAD_ERRORS.name, {}) == {}


def test_reading_pauses_after_each_worker(claim: Claim, reader: CellsReader) -> None:
    from gateway.observe.reader import Reading

    for slot in range(3):
        claim(slot)
    assert len(list(reader.read_slices(Reading()))) == 3
