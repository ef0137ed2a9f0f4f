"""Programs out of Debian packages, unpacked into the project's cache and not installed.

An installed prometheus would start as a service, on the machine of whoever only wants to run the tests;
unpacked it is a file. Needs no root where the package lists are there; but to run Alertmanager, two templates
must lie where Debian has them. Used by deploy/plans.py only; `deploy.stack.programs` finds what is here.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

from prerequisites import SetupFailed

MONITORING = {
    "prometheus": ("prometheus", "promtool"),
    "prometheus-alertmanager": ("prometheus-alertmanager", "amtool"),
    "prometheus-node-exporter": ("prometheus-node-exporter",),
}
"""Package to the programs that are needed of it."""


TEMPLATES = Path("/usr/share/prometheus/alertmanager")
"""Where Debian's Alertmanager looks for its templates, wherever it is itself."""


def unpack(packages: dict[str, tuple[str, ...]], into: Path) -> None:
    """Make `into`/usr/bin hold these programs, unless it or PATH does. Raises SetupFailed."""
    missing = [name for name, programs in packages.items() if not all(_there(p, into) for p in programs)]
    if not missing:
        return
    apt, dpkg = shutil.which("apt-get"), shutil.which("dpkg-deb")
    if apt is None or dpkg is None:
        raise SetupFailed(
            f"this machine lacks {', '.join(missing)}: put their programs on PATH, then this again"
        )
    downloads = into / "downloads"
    downloads.mkdir(parents=True, exist_ok=True)
    if os.geteuid() == 0:
        _run([apt, "update", "-q"], downloads)
    _run([apt, "download", "-q", *missing], downloads)
    for package in downloads.glob("*.deb"):
        _run([dpkg, "-x", str(package), str(into)], downloads)
    shutil.rmtree(downloads)
    templates = list((into / str(TEMPLATES)[1:]).glob("*.tmpl"))
    if templates and os.geteuid() == 0 and not TEMPLATES.exists():
        TEMPLATES.mkdir(parents=True)
        for template in templates:
            shutil.copy(template, TEMPLATES)


def _there(program: str, into: Path) -> bool:
    return (into / "usr" / "bin" / program).exists() or shutil.which(program) is not None


def _run(command: list[str], folder: Path) -> None:
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise SetupFailed(f"`{' '.join(command)}` failed:\n{done.stdout[-2000:]}{done.stderr[-2000:]}")
