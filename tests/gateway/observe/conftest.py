"""A gateway's metrics folder and the workers that count in it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from gateway.observe.cells import Cells, prepare
from gateway.observe.metrics import Metrics
from gateway.observe.reader import CellsReader
from gateway.observe.table import FAMILIES

Claim = Callable[[int], Cells]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    prepare(tmp_path / "metrics")
    return tmp_path / "metrics"


@pytest.fixture
def claim(folder: Path) -> Iterator[Claim]:
    """Take a slot as a worker of this process does; all are left at the end of the test."""
    claimed: list[Cells] = []

    def take(slot: int) -> Cells:
        claimed.append(Cells(folder, slot, FAMILIES, now=1000.0))
        return claimed[-1]

    yield take
    for cells in claimed:
        if not cells.released:
            cells.release()


@pytest.fixture
def cells(claim: Claim) -> Cells:
    return claim(0)


@pytest.fixture
def metrics(cells: Cells) -> Metrics:
    return Metrics(cells, ["small", "large"], version="1.2.3")


@pytest.fixture
def reader(folder: Path) -> Iterator[CellsReader]:
    reader = CellsReader(folder, FAMILIES)
    yield reader
    reader.close()
