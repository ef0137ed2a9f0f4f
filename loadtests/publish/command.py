"""Runs `changeover` as a user does: a process with arguments, JSON out."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import msgspec

COMMAND = (sys.executable, "-c", "from gateway.cli import main; main()")


def changeover(*arguments: object, check: bool = True) -> subprocess.CompletedProcess[str]:
    """Run it to its end; with `check`, a failure ends the caller with what it said."""
    done = subprocess.run(
        [*COMMAND, *map(str, arguments)], capture_output=True, text=True, check=False, timeout=900
    )
    if check and done.returncode != 0:
        raise SystemExit(f"changeover {' '.join(map(str, arguments))} failed:\n{done.stdout}{done.stderr}")
    return done


def publish(folder: Path, store: Path, *options: object) -> dict[str, Any]:
    """Publish and return what it printed."""
    found: dict[str, Any] = msgspec.json.decode(
        changeover("publish", folder, "--store", store, "--json", *options).stdout
    )
    return found
