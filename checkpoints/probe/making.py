"""Runs the maker in an environment that has torch, from one that need not.

The publisher calls this between looking at the trainer's folder and copying it, so the probe is of
the weights that are published.
"""

from __future__ import annotations

import importlib.util
import subprocess
import sys
import tempfile
from pathlib import Path

from checkpoints.errors import CheckpointError

_ROOT = Path(__file__).resolve().parents[2]
_BOOT = "import sys; sys.path.insert(0, sys.argv.pop(1)); from checkpoints.probe.maker import main; main()"
_START_S = 600.0
"""For loading torch and the weights; the counterfactuals' time comes on top."""


class ProbeNotMadeError(CheckpointError):
    """The maker failed; the message ends with what it said."""


def has_torch() -> bool:
    """This environment can make probes itself."""
    return all(importlib.util.find_spec(name) is not None for name in ("torch", "transformers"))


def make_probe_with(
    folder: Path,
    parent: Path | None,
    *,
    python: Path | None = None,
    texts: Path | None = None,
    seconds: float = 60.0,
    temperature: float = 1.0,
    polite: bool = False,
) -> bytes:
    """Make a probe in a process of its own and return its bytes.

    Args:
        python: an interpreter whose environment has torch, transformers and msgspec; default: this one.
        texts: training texts, one a line.
        seconds: for counterfactuals.
        temperature: what the trainer divides its logits by.
        polite: at a low priority, beside a training.

    Raises:
        ProbeNotMadeError: it failed or took too long.
    """
    with tempfile.TemporaryDirectory(prefix="changeover-probe-") as made:
        out = Path(made) / "probe.json"
        command = [str(python or sys.executable), "-c", _BOOT, str(_ROOT), str(folder), "--out", str(out)]
        command += ["--seconds", str(seconds), "--temperature", str(temperature)]
        command += ["--parent", str(parent)] if parent is not None else []
        command += ["--texts", str(texts)] if texts is not None else []
        command = ["nice", "-n", "10", *command] if polite else command
        try:
            done = subprocess.run(
                command, capture_output=True, text=True, timeout=_START_S + seconds, check=False
            )
        except (OSError, subprocess.TimeoutExpired) as error:
            raise ProbeNotMadeError(f"no probe could be made: {error}") from error
        if done.returncode != 0:
            said = done.stderr.strip().splitlines()[-1:] or ["nothing"]
            raise ProbeNotMadeError(f"no probe could be made with {python or sys.executable}: {said[0]}")
        return out.read_bytes()
