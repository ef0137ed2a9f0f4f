"""What the kernel says about a worker's process: whether it lives, its CPU time, memory and files.

Read from /proc by process id, so that any worker can report on all. The start time tells a process from a
later one with the same id.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class ProcessFigures:
    cpu_s: float
    """User and system time."""
    resident_bytes: int
    start_unix_s: float
    open_files: int
    threads: int


def _stat(pid: int) -> list[str] | None:
    """Fields of /proc/PID/stat from the third (state) on; None if there is no such process."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text("ascii", errors="replace")
    except (FileNotFoundError, ProcessLookupError):
        return None
    return text.rpartition(")")[2].split()


def start_ticks(pid: int) -> int | None:
    """When a process began, in clock ticks since boot; None if it has ended (a zombie has)."""
    fields = _stat(pid)
    if fields is None or fields[0] in "ZX":
        return None
    return int(fields[19])


def boot_unix_s() -> float:
    """When the machine booted, as Unix time; 0 if the kernel does not tell."""
    for line in Path("/proc/stat").read_text("ascii").splitlines():
        if line.startswith("btime "):
            return float(line.split()[1])
    return 0.0


def figures(pid: int, booted_unix_s: float) -> ProcessFigures | None:
    """Read a process; None if it has ended."""
    fields = _stat(pid)
    if fields is None or fields[0] in "ZX":
        return None
    tick = os.sysconf("SC_CLK_TCK")
    try:
        open_files = sum(1 for _ in Path(f"/proc/{pid}/fd").iterdir())
    except OSError:
        open_files = 0
    return ProcessFigures(
        cpu_s=(int(fields[11]) + int(fields[12])) / tick,
        resident_bytes=int(fields[21]) * os.sysconf("SC_PAGE_SIZE"),
        start_unix_s=booted_unix_s + int(fields[19]) / tick,
        open_files=open_files,
        threads=int(fields[17]),
    )
