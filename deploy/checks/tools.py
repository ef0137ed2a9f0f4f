"""Runs the programs that judge configuration files."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator

from deploy.stack.programs import find

LIMIT_S = 120


def complaints_of(program: str, *arguments: str) -> Iterator[str]:
    """What it printed, if it refused. Raises `ProgramMissing`."""
    command = (find(program), *arguments)
    done = subprocess.run(command, capture_output=True, text=True, timeout=LIMIT_S, check=False)
    if done.returncode != 0:
        yield f"{program} {' '.join(arguments[:2])}:\n{done.stdout[-4000:]}{done.stderr[-4000:]}"
