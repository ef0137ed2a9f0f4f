"""H1: counts are exact over worker processes and never fall, whatever happens to a worker."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from gateway.observe import table
from gateway.observe.cells import Cells, SlotTaken
from gateway.observe.labels import OTHER_MODEL
from gateway.observe.reader import CellsReader, Reading
from gateway.observe.table import FAMILIES

REQUESTS = 1500


class Worker:
    """A hammering process in a slot."""

    def __init__(self, folder: Path, slot: int, requests: int) -> None:
        command = [
            sys.executable,
            "-m",
            "tests.gateway.observe.hammer",
            str(folder),
            str(slot),
            str(requests),
        ]
        self._process = subprocess.Popen(command, bufsize=0, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        assert self._process.stdout is not None
        self._reports = self._process.stdout
        self._requests = requests
        self.counted = 0

    def run_until(self, counted: int) -> None:
        """Wait until it has counted so many requests."""
        while self.counted < counted:
            reported = os.read(self._reports.fileno(), counted - self.counted)
            assert reported, "the worker ended early"
            self.counted += len(reported)

    def run_out(self) -> None:
        self.run_until(self._requests)

    def kill(self) -> int:
        """Kill it in the middle; return how many requests it had reported by then."""
        self._process.kill()
        self.counted += len(self._reports.read())
        self._process.wait()
        return self.counted

    def end(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait()
        self._reports.close()


@contextmanager
def workers(folder: Path, *requests: int) -> Iterator[list[Worker]]:
    started = [Worker(folder, slot, count) for slot, count in enumerate(requests)]
    try:
        yield started
    finally:
        for worker in started:
            worker.end()


def requests_in(reading: Reading) -> float:
    return sum(sum(cells) for cells in reading.series.get(table.REQUESTS.name, {}).values())


@pytest.mark.fault("H1")
def test_four_workers_count_every_request_and_no_scrape_shows_fewer(
    folder: Path, reader: CellsReader
) -> None:
    seen = [0.0]
    with workers(folder, *[REQUESTS] * 4) as running:
        for step in range(1, 101):
            for worker in running:
                worker.run_until(REQUESTS * step // 100)
            seen.append(requests_in(reader.read()))
        final = reader.read()
    assert seen == sorted(seen)
    assert requests_in(final) == 4 * REQUESTS
    durations = final.series[table.DURATION.name][("small", "predict")]
    assert sum(durations[:-1]) == 4 * REQUESTS
    assert final.series[table.IN_FLIGHT.name] == {("small",): [0.0], (OTHER_MODEL,): [0.0]}


@pytest.mark.fault("H1")
def test_a_killed_worker_and_its_successor_lose_nothing(folder: Path, reader: CellsReader) -> None:
    seen = [0.0]
    certain = 0
    with workers(folder, REQUESTS, 1_000_000) as running:
        for round_ in range(5):
            running[1].run_until(200 * (round_ + 1))
            certain += running[1].kill()
            seen.append(requests_in(reader.read()))
            running[1].end()
            running[1] = Worker(folder, 1, 1_000_000)
            running[1].run_until(1)
            seen.append(requests_in(reader.read()))
        running[0].run_out()
        certain += running[1].kill()
        total = requests_in(reader.read())
    assert seen == sorted(seen)
    # Each kill may have hit between counting a request and saying so.
    assert REQUESTS + certain <= total <= REQUESTS + certain + 6


def test_gauges_of_a_killed_worker_no_longer_count(folder: Path, reader: CellsReader) -> None:
    with workers(folder, 1, 1) as running:
        for worker in running:
            worker.run_out()
        assert len(reader.read().workers) == 2
        running[1].kill()
        after = reader.read()
    assert list(after.workers) == [0]
    assert after.series[table.BUILD.name].popitem()[1][0] == 1.0


def test_a_slot_of_a_living_worker_is_not_taken(folder: Path) -> None:
    with workers(folder, 1) as running:
        running[0].run_out()
        with pytest.raises(SlotTaken, match="slot 0"):
            Cells(folder, 0, FAMILIES, now=0.0)


@pytest.mark.fault("H3")
def test_no_count_appears_under_a_wrong_member_while_members_come_and_go(
    folder: Path, reader: CellsReader
) -> None:
    command = [sys.executable, "-m", "tests.gateway.observe.churn", str(folder), "0"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as churning:
        assert churning.stdin is not None
        assert churning.stdout is not None
        assert churning.stdout.readline() == b"churning\n"
        members: set[str] = set()
        while len(members) < 2000:
            for (_, member), cells in reader.read().series.get(table.LOAD_ERRORS.name, {}).items():
                assert cells[0] in (0.0, float(member))
                members.add(member)
        churning.stdin.close()
