"""What the machine itself must have: `venv` with pip, two shared libraries; for the page's checks a browser.

A bare Debian or Ubuntu lacks them. As root they are installed with apt; otherwise the error names the
command. Used by deploy/setup.py only.
"""

from __future__ import annotations

import ctypes
import importlib.util
import os
import shutil
import subprocess
import sys

ENGINE_LIBRARIES = {"libnuma.so.1": "libnuma1", "libstdc++.so.6": "libstdc++6", "libgomp.so.1": "libgomp1"}
"""Shared libraries that vLLM's CPU kernels load, and the Debian packages that hold them."""


class SetupFailed(Exception):
    """Says what to do about it; printed without a traceback."""


BROWSERS = ("chromium", "chromium-browser", "google-chrome")


def require_browser() -> None:
    """A Chromium that the checks of the operator's page can drive."""
    if not any(map(shutil.which, BROWSERS)):
        _apt_install(["chromium"], "a browser (Chromium)")


def require_venv() -> None:
    """Debian and Ubuntu ship Python without ensurepip; the packages python3-venv bring it."""
    if importlib.util.find_spec("ensurepip") is not None:
        return
    _apt_install([f"python{sys.version_info.major}.{sys.version_info.minor}-venv"], "Python's venv module")


def require_engine_libraries() -> None:
    missing = [package for library, package in ENGINE_LIBRARIES.items() if not _loads(library)]
    if missing:
        _apt_install(missing, "a shared library that vLLM needs")


def _loads(library: str) -> bool:
    try:
        ctypes.CDLL(library)
    except OSError:
        return False
    return True


def _apt_install(packages: list[str], what: str) -> None:
    command = f"apt-get install -y {' '.join(packages)}"
    apt = shutil.which("apt-get")
    if apt is None or os.geteuid() != 0:
        hint = f"sudo {command}" if apt else f"(your system's packages for {', '.join(packages)})"
        raise SetupFailed(f"this machine lacks {what}. Run:\n\n    {hint}\n\nand then this again.")
    print(f"    this machine lacks {what}: {command}", flush=True)
    for arguments in (["update", "-q"], ["install", "-y", "-q", "--no-install-recommends", *packages]):
        environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}  # noqa: TID251 (passed on to apt)
        done = subprocess.run([apt, *arguments], env=environment, capture_output=True, text=True, check=False)
        if done.returncode != 0:
            raise SetupFailed(f"`{command}` failed:\n{done.stdout[-2000:]}{done.stderr[-2000:]}")
