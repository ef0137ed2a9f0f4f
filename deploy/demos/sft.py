"""`make demo-sft`: trains a small model while it is served; the served text changes without a restart.

    python -m deploy.demos.sft [--model smollm2-135m-instruct] [--steps 24]

An engine and a gateway start with the untrained model. A run fine-tunes it on Python's language reference and
publishes each checkpoint; the gateway verifies, swaps and promotes it. The same prompt is asked before and
after. Ends with `loss_first=<x> loss_last=<y> versions=<n> promoted=<n>`; exit code 1 if the loss did not
fall, nothing was promoted, or the text stayed the same.
"""

from __future__ import annotations

import argparse
import signal
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

import msgspec

from checkpoints.errors import CheckpointError
from checkpoints.rollouts import ENDED, Stage
from checkpoints.store.open import open_store
from deploy.demos.serving import ROOT, DemoFailed, Serving, serving, write_settings

PROMPT = "The assert statement in Python is"
TOKENS = 40
PYTHON = ROOT / ".venv-engine" / "bin" / "python"
PROMOTION_LIMIT_S = 600.0
_ENDS = {f"rollout {stage.value.replace('_', ' ')}" for stage in ENDED}
_PROMOTED = f"rollout {Stage.PROMOTED.value}"


class Result(msgspec.Struct):
    """What the demonstration needs of the run's result.json."""

    loss_first: float
    loss_last: float


@dataclass(frozen=True)
class Published:
    """What the store says."""

    versions: int
    promoted: int
    decided: bool
    """The newest version's rollout has ended."""


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m deploy.demos.sft", description=__doc__)
    parser.add_argument("--model", default="smollm2-135m-instruct", help="a built-in model")
    parser.add_argument("--steps", type=int, default=24, help="optimizer steps, in three checkpoints")
    parser.add_argument("--replicas", type=int, default=1, help="engines")
    arguments = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    with tempfile.TemporaryDirectory(prefix="co-sft-", ignore_cleanup_errors=True) as name:
        try:
            return _show(Path(name), arguments.model, arguments.steps, arguments.replicas)
        except DemoFailed as failure:
            sys.stderr.write(f"demo-sft: {failure}\n")
            return 1


def _show(folder: Path, model: str, steps: int, replicas: int) -> int:
    store = folder / "store"
    store.mkdir()
    print(f"starting {replicas} engine(s) of {model} and a gateway", flush=True)
    with serving(write_settings(folder, model, replicas, store)) as gateway:
        before, version = gateway.complete(PROMPT, TOKENS)
        print(f"before, version {version}: {PROMPT}{before!r}", flush=True)
        _train(folder, model, steps, store)
        gateway.wait(
            lambda: _published(store, model).decided, PROMOTION_LIMIT_S, "the decision on the last version"
        )
        published = _published(store, model)
        after, version = _settled(gateway, version)
        print(f"after, version {version}: {PROMPT}{after!r}", flush=True)
    result = msgspec.json.decode((folder / "output" / "result.json").read_bytes(), type=Result)
    good = result.loss_last < result.loss_first and published.promoted > 0 and after != before
    if after == before:
        print("the served text did not change", file=sys.stderr)
    losses = f"loss_first={result.loss_first:.4f} loss_last={result.loss_last:.4f}"
    print(f"{losses} versions={published.versions} promoted={published.promoted}", flush=True)
    return 0 if good else 1


def _settled(gateway: Serving, old: str) -> tuple[str, str]:
    """The answer of the new weights: the promotion is written just before the last member is released."""
    found = ("", old)

    def changed() -> bool:
        nonlocal found
        found = gateway.complete(PROMPT, TOKENS)
        return found[1] != old

    gateway.wait(changed, PROMOTION_LIMIT_S, "an answer of a new version")
    return found


def _train(folder: Path, model: str, steps: int, store: Path) -> None:
    """A run as a user starts it; its log and progress bar are shown."""
    config = {
        "model": {"name": model},
        "training": {
            "batch_size": 4,
            "max_steps": steps,
            "save_every": max(1, steps // 3),
            "lr": 1e-4,
            "max_length": 128,
            "log_every": 2,
            "output_dir": str(folder / "output"),
        },
        "data": {"path": "builtin:python-reference"},
        "logs": {"folder": str(folder / "logs")},
        "metrics": {"port": 0},
        "export": {"store": str(store), "model": model, "on": "save"},
    }
    path = folder / "train_config.yaml"
    path.write_bytes(msgspec.json.encode(config))
    done = subprocess.run([PYTHON, ROOT / "train.py", "--config", path], cwd=ROOT, check=False)
    if done.returncode != 0:
        errors = (folder / "logs" / "error.log").read_text()
        raise DemoFailed(f"the training ended with {done.returncode}:\n{errors[-2000:]}")


def _published(store: Path, model: str) -> Published:
    try:
        opened = open_store(str(store), model)
        newest = opened.newest()
        entries = opened.journal.last(1000)
        versions = len(opened.versions())
    except CheckpointError as error:
        raise DemoFailed(f"the store cannot be read: {error}") from error
    promoted = {entry.version for entry in entries if entry.event == _PROMOTED}
    decided = {entry.version for entry in entries if entry.event in _ENDS}
    return Published(versions, len(promoted), newest is not None and newest.version in decided)


if __name__ == "__main__":
    sys.exit(main())
