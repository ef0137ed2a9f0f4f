from __future__ import annotations

import subprocess
import sys

BLOCKED = (
    "torch",
    "transformers",
    "numpy",
    "fastapi",
    "starlette",
    "uvicorn",
    "gateway",
    "backends",
    "training",
)
"""What the package must do without; its optional packages are imported where they are used."""

SCRIPT = """
import importlib, importlib.abc, pkgutil, sys

class Blocker(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in BLOCKED:
            raise ModuleNotFoundError(f"{name} is blocked", name=name)

BLOCKED = set(sys.argv[1].split(","))
sys.meta_path.insert(0, Blocker())
import checkpoints
for module in pkgutil.walk_packages(checkpoints.__path__, "checkpoints."):
    if module.name not in sys.argv[2].split(","):
        importlib.import_module(module.name)
        print(module.name)
"""


def _import_all(blocked: tuple[str, ...], left_out: tuple[str, ...]) -> list[str]:
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT, ",".join(blocked), ",".join(left_out)],
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.split()


def test_everything_but_the_maker_imports_without_torch_or_a_web_framework() -> None:
    imported = _import_all(BLOCKED, ("checkpoints.probe.maker",))
    assert {"checkpoints.publish", "checkpoints.verify", "checkpoints.probe.judge"} <= set(imported)


def test_the_optional_packages_are_needed_only_by_their_own_modules() -> None:
    needing = ("checkpoints.probe.maker", "checkpoints.store.s3", "checkpoints.signatures")
    imported = _import_all((*BLOCKED, "obstore", "cryptography"), needing)
    assert "checkpoints.store.open" in imported


def test_the_commands_work_where_there_is_no_web_framework() -> None:
    code = (
        "import sys\n"
        "for name in ('fastapi', 'starlette', 'uvicorn', 'torch', 'obstore', 'cryptography', 'redis'):\n"
        "    sys.modules[name] = None\n"
        "from gateway.cli import main\n"
        "sys.argv = ['changeover', 'publish', '--help']\n"
        "main()\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=False, timeout=60
    )
    assert done.returncode == 0, done.stderr
    assert "Publish a checkpoint into a store" in done.stdout
