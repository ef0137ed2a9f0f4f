"""Where a measurement was made: goes into every result, for no figure means anything without it."""

from __future__ import annotations

import os
import platform
import shlex
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
REPORTS = Path(__file__).resolve().parent / "reports"
"""Where reports lie; git ignores it."""


def environment() -> dict[str, str]:
    """Facts by name, in the order in which a report shows them."""
    load1, load5, _ = os.getloadavg()
    return {
        "date": datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC"),
        "command": shlex.join(["python", "-m", *_module(), *sys.argv[1:]]),
        "commit": _commit(),
        "cores": f"{len(os.sched_getaffinity(0))} of {os.cpu_count()}",
        "processor": _processor(),
        "memory": f"{os.sysconf('SC_PAGE_SIZE') * os.sysconf('SC_PHYS_PAGES') / 2**30:.0f} GiB",
        "load before": f"{load1:.2f} over 1 min, {load5:.2f} over 5 min",
        "Python": f"{platform.python_implementation()} {platform.python_version()}",
        "system": f"{platform.system()} {platform.release()}",
    }


def _module() -> list[str]:
    spec = getattr(sys.modules["__main__"], "__spec__", None)
    name = spec.name.removesuffix(".__main__") if spec is not None else Path(sys.argv[0]).name
    return [name]


def _commit() -> str:
    def git(*arguments: str) -> str:
        done = subprocess.run(["git", *arguments], cwd=ROOT, capture_output=True, text=True, check=False)
        return done.stdout.strip()

    commit = git("rev-parse", "--short=12", "HEAD")
    if not commit:
        return "no repository"
    return f"{commit}{' and changes since' if git('status', '--porcelain', '--untracked-files=no') else ''}"


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor() or platform.machine()
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.machine()
