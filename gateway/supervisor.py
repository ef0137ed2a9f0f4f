"""Several workers on one port: starts them, starts dead ones again, passes signals on, ends with them.

Each worker is the same command with a slot number, listening with SO_REUSEPORT, counting into its slot's
cells; a worker that dies takes only its own requests with it. Workers die with the supervisor, however
it dies (PR_SET_PDEATHSIG). The supervisor answers nothing itself.
"""

from __future__ import annotations

import contextlib
import ctypes
import logging
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, field

logger = logging.getLogger(__name__)

FAST_DEATH_S = 5.0
"""A worker that lived shorter than this is started again only after a growing pause."""

MAX_PAUSE_S = 30.0

PR_SET_PDEATHSIG = 1


def die_with_parent() -> None:
    """Have the kernel end this process when its parent ends. Called in the child, before exec."""
    ctypes.CDLL(None, use_errno=True).prctl(PR_SET_PDEATHSIG, signal.SIGTERM)


@dataclass(slots=True)
class Worker:
    slot: int
    process: subprocess.Popen[bytes]
    started: float
    pause_s: float = 0.0
    again_at: float = 0.0
    """When to start it again; 0: it runs."""


@dataclass(slots=True)
class Supervisor:
    """Runs `count` workers with `command`, to which `--slot N` is added."""

    command: Sequence[str]
    count: int
    reserved: socket.socket
    """Bound to the port, not listening: keeps the port ours between workers."""
    workers: list[Worker] = field(default_factory=list)
    ending: bool = False
    received: list[int] = field(default_factory=list)
    """Signals that the workers have not been sent yet: whoever is being started gets them, too."""

    def run(self) -> int:
        """Until told to end. Returns the exit status: 0 if all workers ended in order."""
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            signal.signal(number, lambda number, frame: self.received.append(number))
        self.workers = [self._start(slot) for slot in range(self.count)]
        failed = 0
        while True:
            while self.received:
                self._pass_on(self.received.pop(0))
            for worker in self.workers:
                failed |= self._look_at(worker, time.monotonic())
            if self.ending and all(worker.process.poll() is not None for worker in self.workers):
                self.reserved.close()
                return 1 if failed else 0
            time.sleep(0.1)

    def _start(self, slot: int, pause_s: float = 0.0) -> Worker:
        process = subprocess.Popen(
            [*self.command, "--slot", str(slot)],
            preexec_fn=die_with_parent,
            # Out of the terminal's reach: Ctrl-C comes from us alone, and once.
            process_group=0,
        )
        return Worker(slot, process, time.monotonic(), pause_s)

    def _look_at(self, worker: Worker, now: float) -> bool:
        """Start a dead worker again when it is time. True if it ended badly while we were ending."""
        code = worker.process.poll()
        if code is None:
            return False
        if self.ending:
            return code not in (0, -signal.SIGTERM, -signal.SIGINT)
        if not worker.again_at:
            fast = now - worker.started < FAST_DEATH_S
            worker.pause_s = min(MAX_PAUSE_S, max(0.5, worker.pause_s * 2)) if fast else 0.0
            worker.again_at = now + worker.pause_s
            logger.error(
                "Worker %d (pid %d) ended with %s; starting it again in %.1f s",
                *(worker.slot, worker.process.pid, code, worker.pause_s),
            )
        if now >= worker.again_at:
            fresh = self._start(worker.slot, worker.pause_s)
            self.workers[self.workers.index(worker)] = fresh
        return False

    def _pass_on(self, number: int) -> None:
        if number != signal.SIGHUP:
            self.ending = True
        for worker in self.workers:
            with contextlib.suppress(ProcessLookupError):
                worker.process.send_signal(number)


def worker_command(arguments: Sequence[str]) -> list[str]:
    """This program with the same arguments, run by the same interpreter."""
    return [sys.executable, "-m", "gateway", *arguments]
