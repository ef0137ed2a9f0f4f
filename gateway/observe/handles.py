"""What the hot path counts with: an index into a worker's cells and the one operation on it.

Each call is a few reads and writes of shared memory, without a lock, a dictionary of labels or a thread:
about 0.1 µs a cell. A handle belongs to the process that made it, and is void once its cells are closed.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Mapping

from gateway.observe.cells import Cells
from gateway.observe.table import Family


class Counter:
    __slots__ = ("_values", "index")

    def __init__(self, cells: Cells, family: Family, labels: tuple[str, ...] = ()) -> None:
        self._values = cells.values
        self.index = cells.open(family, labels)

    def add(self, amount: float = 1.0) -> None:
        """`amount` is never negative."""
        self._values[self.index] += amount

    def close(self, cells: Cells) -> None:
        cells.close(self.index)


class Gauge:
    __slots__ = ("_values", "index")

    def __init__(self, cells: Cells, family: Family, labels: tuple[str, ...] = ()) -> None:
        self._values = cells.values
        self.index = cells.open(family, labels)

    def set(self, value: float) -> None:
        self._values[self.index] = value

    def add(self, amount: float) -> None:
        self._values[self.index] += amount

    def close(self, cells: Cells) -> None:
        cells.close(self.index)


class Histogram:
    __slots__ = ("_edges", "_sum", "_values", "index")

    def __init__(self, cells: Cells, family: Family, labels: tuple[str, ...] = ()) -> None:
        self._values = cells.values
        self._edges = family.buckets
        self.index = cells.open(family, labels)
        self._sum = self.index + len(family.buckets) + 1

    def observe(self, value: float) -> None:
        values = self._values
        values[self.index + bisect_left(self._edges, value)] += 1.0
        values[self._sum] += value

    def close(self, cells: Cells) -> None:
        cells.close(self.index)


class Choice:
    """One cell for each value of a closed set: counters by outcome, gauges by state."""

    __slots__ = ("_places", "_values", "index")

    def __init__(self, cells: Cells, family: Family, labels: tuple[str, ...] = ()) -> None:
        self._values = cells.values
        self.index = cells.open(family, labels)
        self._places: Mapping[str, int] = {value: self.index + i for i, value in enumerate(family.values)}

    def place(self, value: str) -> int:
        """The cell of one value, for whoever counts in it most of the time."""
        return self._places[value]

    def add(self, value: str, amount: float = 1.0) -> None:
        """Raises KeyError if `value` is not in the family's set."""
        self._values[self._places[value]] += amount

    def set(self, value: str, amount: float) -> None:
        """For gauges."""
        self._values[self._places[value]] = amount

    def select(self, value: str) -> None:
        """1 for this value, 0 for all others; 0 for all if the value is not in the set."""
        for name, place in self._places.items():
            self._values[place] = 1.0 if name == value else 0.0

    def close(self, cells: Cells) -> None:
        cells.close(self.index)
