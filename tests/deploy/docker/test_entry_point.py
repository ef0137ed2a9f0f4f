"""The gateway's image without Docker: its own pip command in an empty environment, run in an empty folder.

What only the tests install, or only a checkout has, is not there: a file that was forgotten in the package,
or an import of a test's dependency, ends it. What the package needs is taken from this environment, as its
metadata says and no more; the package itself is built by pip as the recipe does it.
"""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from importlib.metadata import Distribution, distributions
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from deploy.checks.images import FOLDER
from tests.drivers.process import free_port, running
from tests.drivers.raw import ask
from tests.gateways import fakes

ROOT = FOLDER.parents[1]
USER = 10001


def wanted_extras() -> str:
    found = re.search(r'"\.\[([a-z0-9,]+)\]"', (FOLDER / "gateway.Dockerfile").read_text())
    assert found is not None
    return found[1]


def sources(into: Path) -> Path:
    """What the recipe copies: a build in the checkout would leave files there."""
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, into / name)
    for name in ("backends", "checkpoints", "gateway", "training"):
        shutil.copytree(ROOT / name, into / name, ignore=shutil.ignore_patterns("__pycache__"))
    return into


def closure(requirement: str, known: dict[str, Distribution]) -> dict[str, Distribution]:
    """The distributions of this environment that this one needs, itself left out."""
    found: dict[str, Distribution] = {}
    first = Requirement(requirement)
    waiting = [(known[canonicalize_name(first.name)], frozenset(first.extras))]
    seen: set[tuple[str, frozenset[str]]] = set()
    while waiting:
        distribution, extras = waiting.pop()
        for text in distribution.requires or ():
            needed = Requirement(text)
            wanted = needed.marker is None or any(
                needed.marker.evaluate({"extra": extra}) for extra in (extras or {""})
            )
            name = canonicalize_name(needed.name)
            if not wanted or name not in known or (name, frozenset(needed.extras)) in seen:
                continue
            seen.add((name, frozenset(needed.extras)))
            found[name] = known[name]
            waiting.append((known[name], frozenset(needed.extras) | {""}))
    return found


def copy_into(site: Path, distribution: Distribution) -> None:
    for file in distribution.files or ():
        target = site / file
        if ".." in file.parts or target.suffix == ".pyc":
            continue
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(distribution.locate_file(file), target)


@pytest.fixture
def changeover() -> Iterator[Path]:
    """The command, installed as the recipe installs it."""
    known = {canonicalize_name(found.metadata["Name"]): found for found in distributions()}
    with TemporaryDirectory() as name, TemporaryDirectory() as source:
        folder = Path(name)
        folder.chmod(0o755)
        subprocess.run([sys.executable, "-m", "venv", name], check=True, capture_output=True)
        site = Path(
            folder, "lib", f"python{sys.version_info.major}.{sys.version_info.minor}", "site-packages"
        )
        for needed in closure(f"changeover[{wanted_extras()}]", known).values():
            copy_into(site, needed)
        pip = [str(folder / "bin" / "pip"), "install", "-q", "--disable-pip-version-check", "--no-compile"]
        done = subprocess.run(
            [*pip, "--no-deps", str(sources(Path(source)))], capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stderr[-3000:]
        yield folder / "bin" / "changeover"


def as_nobody() -> list[str]:
    """What makes a command run as the image's user, where this Python can be read by others than root."""
    base = Path(sys.base_prefix)
    readable = all(path.stat().st_mode & 0o001 for path in (base, *base.parents))
    return ["setpriv", f"--reuid={USER}", f"--regid={USER}", "--clear-groups"] if readable else []


@pytest.mark.timeout(300)
async def test_the_gateway_starts_serves_and_ends_on_sigterm(changeover: Path) -> None:
    port = free_port()
    privileges = as_nobody() if os.geteuid() == 0 else []
    async with fakes(1) as (fake,):
        with TemporaryDirectory() as name:
            folder = Path(name)
            folder.chmod(0o777)
            (folder / "infer_config.yaml").write_text(
                f"endpoints: ['{fake.url}']\nserver: {{settle_s: 0}}\nrun_dir: {folder}/run\n"
            )
            command = [
                *privileges,
                "env",
                "-i",
                "-C",
                name,
                f"CHANGEOVER_CONFIG={folder}/infer_config.yaml",
                str(changeover),
                "gateway",
                "--port",
                str(port),
            ]
            async with running(command, f"http://127.0.0.1:{port}", "/readyz", within=60) as run:
                assert (await ask(run.url, "/predict", {"prompt": "Hello"})).status == 200
                for path in ("/docs", "/openapi.json", "/metrics", "/status"):
                    assert (await ask(run.url, path)).status == 200, path
                run.signal(signal.SIGTERM)
                assert await run.ended() == 0
