"""Gets a peer onto this machine, pinned and once: a virtual environment of its own, or a Debian package.

Environments lie in .cache/peers/NAME and are made of deploy/constraints/peers-NAME.txt, which lists every
package with its version. What cannot be had is said as `NotRun`, never left out in silence.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
from pathlib import Path

from loadtests.environment import ROOT

ENVIRONMENTS = ROOT / ".cache" / "peers"
PINS = ROOT / "deploy" / "constraints"
STAMP = "peer.sha256"


class NotRun(Exception):
    """Why a peer is not measured."""


def from_package(name: str) -> Path:
    """The `bin` folder of the environment of this package. Raises NotRun."""
    pins = PINS / f"peers-{name}.txt"
    if not pins.exists():
        raise NotRun(f"no pinned packages in {pins.relative_to(ROOT)}")
    home = ENVIRONMENTS / name
    identity = hashlib.sha256(f"{sys.version}\n{pins.read_text()}".encode()).hexdigest()
    stamp = home / STAMP
    if stamp.exists() and stamp.read_text() == identity:
        return home / "bin"
    print(f"installing {name} into {home.relative_to(ROOT)}", flush=True)
    shutil.rmtree(home, ignore_errors=True)
    _run([sys.executable, "-m", "venv", str(home)])
    python = str(home / "bin" / "python")
    _run([python, "-m", "pip", "install", "-q", "--disable-pip-version-check", "--no-deps", "-r", str(pins)])
    stamp.write_text(identity)
    return home / "bin"


def from_debian(package: str) -> Path:
    """The folder of a command that Debian has; installs it where we may. Raises NotRun."""
    found = shutil.which(package)
    if found is None:
        if os.geteuid() != 0 or shutil.which("apt-get") is None:
            raise NotRun(f"not installed: apt-get install {package}")
        print(f"installing Debian's {package}", flush=True)
        _run(["apt-get", "update", "-qq"])
        quiet = ["env", "DEBIAN_FRONTEND=noninteractive", "apt-get", "install", "-y", "-qq"]
        _run([*quiet, "--no-install-recommends", package])
        found = shutil.which(package)
    if found is None:
        raise NotRun(f"Debian's {package} brings no command of that name")
    return Path(found).parent


def _run(command: list[str]) -> None:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        words = (done.stderr or done.stdout).strip().splitlines()
        raise NotRun(f"{' '.join(command[:4])} …: {words[-1] if words else done.returncode}")
