"""Makes the two virtual environments: `.venv` (gateway, tests) and `.venv-engine` (vLLM, the trainer).

    python3 deploy/setup.py gateway [--without-tools]
    python3 deploy/setup.py engine [--device cpu|cuda] [--with training]
    python3 deploy/setup.py browser

Needs only the standard library of Python 3.11+. Every package is pinned in deploy/constraints/.
A stamp in each environment records the steps that are done, keyed by everything they depend on: a
second run does nothing, an interrupted one goes on where it stopped, a changed pin runs again from
the step that it concerns. What each step is stands in `plans.py`; here they are carried out.
"""

from __future__ import annotations

import argparse
import fcntl
import hashlib
import json
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from plans import Plan, Step, engine_plan, gateway_plan
from prerequisites import SetupFailed, require_browser
from terminal import Progress

ROOT = Path(__file__).resolve().parent.parent
STAMP = "changeover-setup.json"


def _digest(*parts: str) -> str:
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()[:16]


def _done_steps(venv: Path, identity: str) -> list[str]:
    """Digests of the steps that this very environment has behind it."""
    try:
        stamp = json.loads((venv / STAMP).read_text())  # noqa: TID251 (standard library only)
    except (OSError, ValueError):
        return []
    return list(stamp["done"]) if stamp.get("identity") == identity else []


def _write_stamp(venv: Path, identity: str, done: list[str], facts: dict[str, str]) -> None:
    partial = venv / (STAMP + ".partial")
    stamp = {"identity": identity, "done": done, **facts}
    partial.write_text(json.dumps(stamp, indent=1))  # noqa: TID251 (standard library only)
    partial.replace(venv / STAMP)


def _pending(plan: Plan, done: list[str]) -> list[tuple[Step, str]]:
    """The steps still to run, each with its digest, which covers the steps before it."""
    pending: list[tuple[Step, str]] = []
    chain = ""
    for position, step in enumerate(plan.steps):
        chain = _digest(chain, *step.inputs)
        if pending or position >= len(done) or done[position] != chain:
            pending.append((step, chain))
    return pending


@contextmanager
def _alone(plan: Plan) -> Iterator[None]:
    """Two set-ups of one environment wait for each other."""
    lock_path = ROOT / ".cache" / f"setup-{plan.name}.lock"
    lock_path.parent.mkdir(exist_ok=True)
    with lock_path.open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            print(f"another set-up of {plan.venv} is running; waiting for it", flush=True)
            fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _carry_out(plan: Plan) -> None:
    venv = ROOT / plan.venv
    identity = _digest(str(venv), sys.version, str(Path(sys.base_prefix)))
    done = _done_steps(venv, identity)
    pending = _pending(plan, done)
    if not pending:
        return
    plan.prerequisites()
    log = ROOT / "logs" / f"setup-{plan.name}.log"
    log.parent.mkdir(exist_ok=True)
    progress = Progress(plan.name, len(plan.steps), log)
    done = done[: len(plan.steps) - len(pending)]
    if not done and (venv / "pyvenv.cfg").exists() and not _same_python(venv):
        shutil.rmtree(venv)
    for step, digest in pending:
        with progress.step(len(done) + 1, step.title):
            _run_step(step, progress, log)
        done.append(digest)
        _write_stamp(venv, identity, done, plan.facts)
    progress.finished(f"{plan.venv} is ready")


def _same_python(venv: Path) -> bool:
    """Whether the environment was made in this place by this Python: it cannot be moved or upgraded."""
    probe = "import sys; print(sys.prefix, sys.version)"
    python = venv / "bin" / "python"
    try:
        answer = subprocess.run([python, "-c", probe], capture_output=True, text=True, check=True)
    except (OSError, subprocess.CalledProcessError):
        return False
    return answer.stdout.strip() == f"{venv} {sys.version}"


def _run_step(step: Step, progress: Progress, log: Path) -> None:
    """Try the step's commands in order until one succeeds, then its action."""
    for command in step.commands:
        if progress.run(command, cwd=ROOT) == 0:
            break
        progress.note(step.advice)
    else:
        if step.commands:
            raise SetupFailed(f"{step.title}\n{progress.tail()}\n\n{step.advice}\nThe whole output: {log}")
    if step.action is not None:
        step.action()


def _require_python() -> None:
    if sys.version_info < (3, 11):  # noqa: UP036 (the one place that an older Python reaches)
        found = f"{sys.version.split()[0]} ({sys.executable})"
        raise SetupFailed(f"Python 3.11 or newer is needed, this is {found}; try `make PYTHON=python3.11`")


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="setup.py", description="Make the virtual environments of Changeover."
    )
    parser.add_argument("environment", choices=("gateway", "engine", "browser"))
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu", help="what the engine runs on")
    parser.add_argument(
        "--with", dest="extra", choices=("training",), help="more for the engine's environment"
    )
    parser.add_argument("--without-tools", action="store_true", help="gateway: only what it needs to run")
    arguments = parser.parse_args()
    started = time.monotonic()
    try:
        _require_python()
        if arguments.environment == "browser":
            require_browser()
            return 0
        if arguments.environment == "gateway":
            plan = gateway_plan(ROOT, tools=not arguments.without_tools)
        else:
            plan = engine_plan(ROOT, arguments.device, training=arguments.extra == "training")
        with _alone(plan):
            _carry_out(plan)
    except SetupFailed as failure:
        print(f"\nset-up failed after {time.monotonic() - started:.0f} s: {failure}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("\ninterrupted; the next run goes on from here", file=sys.stderr)
        return 130
    return 0


if __name__ == "__main__":
    sys.exit(main())
