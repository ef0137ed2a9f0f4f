"""An open loop spread over processes, because one core of Python sends a few thousand requests a second.

Each process gets every n-th request and starts at the same moment. The parent prints how it goes, once a
second, from what the processes tell it through a pipe.
"""

from __future__ import annotations

import multiprocessing
import os
import sys
import time
from collections import Counter
from collections.abc import Sequence
from multiprocessing.connection import Connection, wait

import uvloop

from loadtests.open_loop import Due, drive
from loadtests.samples import Outcome, Sample
from loadtests.wire import Target

START_IN_S = 0.5
PROGRESS_EVERY_S = 1.0


def drive_sharded(
    target: Target, due: Sequence[Due], *, processes: int, timeout_s: float, quiet: bool = False
) -> list[Sample]:
    """All samples, in order of when they were due. Raises RuntimeError if a process dies."""
    spawn = multiprocessing.get_context("spawn")
    cores = sorted(os.sched_getaffinity(0))
    pipes: list[Connection] = []
    children = []
    for index in range(processes):
        ours, theirs = spawn.Pipe(duplex=False)
        core = cores[-1 - index] if 1 < processes <= len(cores) else None
        child = spawn.Process(
            target=_shard, args=(target, due[index::processes], timeout_s, core, theirs), daemon=True
        )
        child.start()
        theirs.close()
        pipes.append(ours)
        children.append(child)
    try:
        return sorted(_collect(pipes, len(due), quiet=quiet), key=lambda sample: sample.at_s)
    finally:
        for child in children:
            child.terminate()
            child.join()


def _shard(target: Target, due: Sequence[Due], timeout_s: float, core: int | None, pipe: Connection) -> None:
    """One process: sends a batch of samples whenever a second has passed, and an empty one at its end."""
    if core is not None:
        os.sched_setaffinity(0, {core})
    batch: list[Sample] = []
    last = time.monotonic()

    def report(sample: Sample) -> None:
        nonlocal last
        batch.append(sample)
        if time.monotonic() - last >= PROGRESS_EVERY_S:
            pipe.send(batch)
            batch.clear()
            last = time.monotonic()

    uvloop.run(drive(target, due, timeout_s=timeout_s, report=report, start_in_s=START_IN_S))
    pipe.send(batch)
    pipe.send([])


def _collect(pipes: list[Connection], total: int, *, quiet: bool) -> list[Sample]:
    samples: list[Sample] = []
    running = set(pipes)
    shown = time.monotonic()
    while running:
        for ready in wait(running, timeout=PROGRESS_EVERY_S):
            assert isinstance(ready, Connection)
            try:
                batch: list[Sample] = ready.recv()
            except EOFError:
                raise RuntimeError("a load process ended before its time") from None
            samples += batch
            if not batch:
                running.discard(ready)
        if not quiet and (time.monotonic() - shown >= PROGRESS_EVERY_S or not running):
            shown = time.monotonic()
            print(f"  {progress(samples, total)}", file=sys.stderr, flush=True)
    return samples


def progress(samples: Sequence[Sample], total: int) -> str:
    """One line of how it goes."""
    counts = Counter(sample.outcome for sample in samples)
    known = ", ".join(f"{counts[outcome]} {outcome}" for outcome in Outcome if counts[outcome])
    return f"{len(samples)} of {total} ended: {known or 'none yet'}"
