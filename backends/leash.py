"""Runs a command that cannot outlive whoever started it. Standard library only, Linux only.

    python backends/leash.py --parent PID --grace SECONDS -- COMMAND...

Engines are trees of processes: killing the first leaves the others, with their gigabytes. This one
adopts every orphan below it (PR_SET_CHILD_SUBREAPER) and ends only when none is left.

- When the command ends, what it left is killed; exit code as a shell would report it.
- SIGTERM, SIGINT, or the parent's death: SIGTERM to the command, after the grace SIGKILL to all.
- SIGQUIT, or a second signal: SIGKILL to all at once.
- Killed itself: the command gets SIGTERM from the kernel (PR_SET_PDEATHSIG).
"""

from __future__ import annotations

import argparse
import ctypes
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from types import FrameType

PR_SET_PDEATHSIG = 1
PR_SET_CHILD_SUBREAPER = 36
POLL_S = 0.05
"""Between two looks at the children; it bounds how late an end is noticed."""
TRACKER_S = 3.0
"""Time in which Python's resource tracker is left to clean up."""
SIGNAL_BASE = 128
"""A command killed by signal N is reported as 128 + N."""


def leashed(command: tuple[str, ...], *, grace_s: float) -> tuple[str, ...]:
    """The command line that runs `command` on a leash held by this process."""
    python = (sys.executable, "-I", "-S", str(Path(__file__).resolve()))
    return (*python, "--parent", str(os.getpid()), "--grace", f"{grace_s:g}", "--", *command)


def _prctl(option: int, value: int) -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(option, value, 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), "prctl")


class Leash:
    """One command, all that descends from it, and the time it has to end."""

    def __init__(self, command: list[str], parent: int, grace_s: float) -> None:
        self._command = command
        self._parent = parent
        self._grace_s = grace_s
        self._kill_at: float | None = None
        self._child: int | None = None

    def run(self) -> int:
        """Blocks until nothing of the command is left; returns its exit code."""
        signal.signal(signal.SIGTERM, self._on_signal)
        signal.signal(signal.SIGINT, self._on_signal)
        signal.signal(signal.SIGQUIT, self._on_signal)
        _prctl(PR_SET_CHILD_SUBREAPER, 1)
        _prctl(PR_SET_PDEATHSIG, signal.SIGTERM)
        if os.getppid() != self._parent:
            return SIGNAL_BASE + signal.SIGTERM  # it died before the kernel was told
        own = os.getpid()
        try:
            process = subprocess.Popen(self._command, preexec_fn=lambda: _tie_to(own))  # single-threaded here
        except OSError as error:
            print(f"cannot run {self._command[0]}: {error.strerror}", file=sys.stderr, flush=True)  # noqa: T201
            return 127
        self._child = process.pid
        status = self._wait(process.pid)
        _kill_descendants()
        code = os.waitstatus_to_exitcode(status)
        return code if code >= 0 else SIGNAL_BASE - code

    def _wait(self, child: int) -> int:
        """Reap whatever ends until the command itself does; returns its wait status."""
        while True:
            pid, status = os.waitpid(-1, os.WNOHANG)
            if pid == child:
                return status
            if pid == 0:
                if self._kill_at is not None and time.monotonic() >= self._kill_at:
                    os.kill(child, signal.SIGKILL)
                time.sleep(POLL_S)

    def _on_signal(self, number: int, frame: FrameType | None) -> None:
        if self._kill_at is not None or number == signal.SIGQUIT:
            self._kill_at = 0.0
            return
        self._kill_at = time.monotonic() + self._grace_s
        if self._child is not None:
            os.kill(self._child, signal.SIGTERM)


def _tie_to(parent: int) -> None:
    """Runs in the child before the command: the kernel ends it when the leash is gone."""
    _prctl(PR_SET_PDEATHSIG, signal.SIGTERM)
    if os.getppid() != parent:
        os.kill(os.getpid(), signal.SIGTERM)


def _children() -> list[int]:
    own = os.getpid()
    return [int(pid) for pid in Path(f"/proc/self/task/{own}/children").read_text().split()]


def _kill_descendants() -> None:
    """Kill children until there are none: those of a killed one become ours and are next.

    Python's resource tracker removes the shared memory of the dead and then ends by itself: it gets the time.
    """
    deadline = time.monotonic() + TRACKER_S
    while children := _children():
        for pid in children:
            if time.monotonic() >= deadline or not _is_tracker(pid):
                os.kill(pid, signal.SIGKILL)
        if os.waitpid(-1, os.WNOHANG)[0] == 0:
            time.sleep(POLL_S / 5)


def _is_tracker(pid: int) -> bool:
    return b"multiprocessing.resource_tracker" in Path(f"/proc/{pid}/cmdline").read_bytes()


def main() -> int:
    parser = argparse.ArgumentParser(prog="leash")
    parser.add_argument("--parent", type=int, required=True)
    parser.add_argument("--grace", type=float, default=30.0)
    parser.add_argument("command", nargs="+")
    arguments = parser.parse_args()
    return Leash(arguments.command, arguments.parent, arguments.grace).run()


if __name__ == "__main__":
    sys.exit(main())
