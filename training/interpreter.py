"""Finds a Python that can train. Standard library only: any Python must get as far as its message.

`python train.py …` with a Python that has no TRL goes on with the project's own environment, if that is
made. Under a launcher (torchrun, accelerate, deepspeed) nothing is replaced: there it is an error.
"""

from __future__ import annotations

import importlib.util
import os
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PYTHON = ROOT / ".venv-engine" / "bin" / "python"
MADE_BY = "make setup-training"


def require_trainer(script: Path) -> None:
    """Return if TRL is there; else run the script again with the project's Python, or exit with code 2."""
    if importlib.util.find_spec("trl") is not None:
        return
    launched = "WORLD_SIZE" in os.environ  # noqa: TID251 (set by launchers)
    if PYTHON.exists() and not launched and Path(sys.prefix) != PYTHON.parents[1]:
        os.execv(PYTHON, [str(PYTHON), str(script), *sys.argv[1:]])
    hint = f"start it with {PYTHON.parent}/torchrun" if launched and PYTHON.exists() else f"run `{MADE_BY}`"
    sys.stderr.write(f"{sys.executable} has no TRL: {hint} in {ROOT}\n")
    raise SystemExit(2)
