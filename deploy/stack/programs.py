"""Finds the programs that the stack and the checks run: Debian's under their own names or the projects'.

They are where `make setup` unpacked them (deploy/debian.py), else on PATH. Pure but for looking at files.
"""

from __future__ import annotations

import shutil
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
UNPACKED = ROOT / ".cache" / "tools" / "usr" / "bin"
OTHER_NAMES = {"alertmanager": "prometheus-alertmanager", "node_exporter": "prometheus-node-exporter"}
"""The project's name to Debian's."""


class ProgramMissing(Exception):
    """Says which, and what to do."""


def find(program: str) -> str:
    """The path of `prometheus`, `promtool`, `alertmanager`, `amtool`, `node_exporter`, `nginx` and the like.

    Raises ProgramMissing.
    """
    for name in (OTHER_NAMES.get(program, program), program):
        if (UNPACKED / name).exists():
            return str(UNPACKED / name)
        if found := shutil.which(name) or shutil.which(name, path="/usr/sbin:/usr/local/sbin:/sbin"):
            return found
    raise ProgramMissing(f"{program} is not here: `make setup` fetches it from Debian, or put it on PATH")
