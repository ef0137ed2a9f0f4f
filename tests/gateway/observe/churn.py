"""A worker whose members come and go for ever: `python -m tests.gateway.observe.churn FOLDER SLOT`.

The series of member `n` holds the value `n`, so that a reader can tell whose cells it was given. Twenty
are there at a time; the cells of one that leaves are reused at once. Says so when it begins, and ends when
its input does.
"""

from __future__ import annotations

import select
import sys
import time
from collections import deque
from itertools import count
from pathlib import Path

from gateway.observe import table
from gateway.observe.cells import Cells
from gateway.observe.table import FAMILIES


def main(folder: Path, slot: int) -> None:
    cells = Cells(folder, slot, FAMILIES, now=time.monotonic(), keep_closed=0)
    print("churning", flush=True)
    present: deque[int] = deque()
    for number in count(1):
        present.append(cells.open(table.LOAD_ERRORS, ("small", str(number))))
        cells.values[present[-1]] += number
        if len(present) > 20:
            cells.close(present.popleft())
        if number % 1000 == 0 and select.select([sys.stdin], [], [], 0)[0]:
            return


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]))
