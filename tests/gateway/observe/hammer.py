"""A worker process that counts: `python -m tests.gateway.observe.hammer FOLDER SLOT REQUESTS`.

Writes one byte for each request that it has counted, then waits for its input to end.
"""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path

from gateway.observe.cells import Cells
from gateway.observe.labels import Route
from gateway.observe.metrics import Metrics
from gateway.observe.outcome import Outcome
from gateway.observe.table import FAMILIES
from tests.gateway.observe.ended import book


def main(folder: Path, slot: int, requests: int) -> None:
    cells = Cells(folder, slot, FAMILIES, now=time.monotonic())
    metrics = Metrics(cells, ["small"], version="test")
    member = metrics.member_series("small", "a")
    series = metrics.request_series("small", Route.PREDICT)
    outcomes = list(Outcome)
    for number in range(requests):
        series.begin()
        member.attempts.add("ok")
        book(series, outcomes[number % len(outcomes)], time.monotonic(), 0.01, ttft=0.005)
        os.write(sys.stdout.fileno(), b".")
    sys.stdin.read()
    cells.release()


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]))
