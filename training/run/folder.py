"""The run's folder (`training.output_dir`): what is kept of a run, and whether another may go on in it.

resolved_config.json   the configuration with every default
versions.json          versions of Python and packages, the machine
result.json            written at the end: steps, losses; its presence means that the run is finished
checkpoint-N/          see training.run.checkpoints
tensorboard/  data/    and the final weights at its top
"""

from __future__ import annotations

import platform
import sys
from collections.abc import Mapping
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import msgspec

from training.config.load import differences, resolved
from training.config.tree import TrainingConfig
from training.launch.errors import LaunchError
from training.run.checkpoints import is_complete, newest_complete, remove_incomplete
from training.run.result import RESULT

CONFIG, VERSIONS = "resolved_config.json", "versions.json"
PACKAGES = (
    "changeover",
    "torch",
    "transformers",
    "trl",
    "accelerate",
    "peft",
    "datasets",
    "tokenizers",
    "safetensors",
    "deepspeed",
    "numpy",
    "pyarrow",
)
MAY_DIFFER = (
    "logs",
    "metrics",
    "export",
    "distributed",
    "training.resume",
    "training.output_dir",
    "training.log_every",
    "training.save_every",
    "training.keep_checkpoints",
    "training.epochs",
    "training.max_steps",
    "data.cache",
    "data.memory_gib",
)
"""What a resumed run may have otherwise. A longer run is the same run, going on."""


def open_folder(config: TrainingConfig, say: list[str]) -> Path | None:
    """Make the folder ready and return the checkpoint to go on from, None to begin. First process only.

    say: gets a line for each thing that people should know.
    Raises LaunchError if the folder holds another run.
    """
    output = Path(config.training.output_dir)
    wanted = config.training.resume
    if wanted == "never" and output.exists() and any(output.iterdir()):
        aside = _free_name(output)
        output.rename(aside)
        say.append(f"{output} held a run; it is now {aside}")
    output.mkdir(parents=True, exist_ok=True)
    if wanted not in ("auto", "never"):
        return _chosen(Path(wanted))
    _refuse_other_run(output, config)
    checkpoint = newest_complete(output)
    for name in remove_incomplete(output):
        say.append(f"{name} was not written to its end and is removed")
    return checkpoint


def is_finished(output: Path, config: TrainingConfig) -> bool:
    """Whether this very run reached its end before."""
    if config.training.resume != "auto" or not (output / RESULT).exists():
        return False
    return not differences(_read(output / CONFIG), resolved(config), ("logs", "metrics", "export"))


def save_facts(output: Path, config: TrainingConfig) -> None:
    """The resolved configuration, and what the run runs on."""
    (output / RESULT).unlink(missing_ok=True)
    _write(output / CONFIG, resolved(config))
    _write(output / VERSIONS, versions())


def versions() -> dict[str, object]:
    """Python, machine, packages."""
    return {
        "python": sys.version.split()[0],
        "platform": platform.platform(),
        "packages": {name: _version(name) for name in PACKAGES},
    }


def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None


def _chosen(checkpoint: Path) -> Path:
    if not checkpoint.is_dir():
        raise LaunchError(
            f"training.resume: {checkpoint}: there is no such folder; auto, never or a checkpoint"
        )
    if not is_complete(checkpoint):
        raise LaunchError(f"training.resume: {checkpoint} was not written to its end; take an older one")
    return checkpoint


def _refuse_other_run(output: Path, config: TrainingConfig) -> None:
    if not (output / CONFIG).exists():
        if newest_complete(output) is not None:
            raise LaunchError(
                f"{output} holds checkpoints of an unknown run: give another training.output_dir"
            )
        return
    changes = differences(_read(output / CONFIG), resolved(config), MAY_DIFFER)
    if changes and newest_complete(output) is not None:
        listed = "\n  ".join(changes[:10])
        raise LaunchError(
            f"{output} holds checkpoints of a run with another configuration:\n  {listed}\n"
            "give another training.output_dir, or --training.resume never to start anew there"
        )


def _free_name(folder: Path) -> Path:
    number = 1
    while (aside := folder.with_name(f"{folder.name}.{number}")).exists():
        number += 1
    return aside


def _read(path: Path) -> Mapping[str, object]:
    return msgspec.json.decode(path.read_bytes(), type=dict[str, object])


def _write(path: Path, content: object) -> None:
    partial = path.with_name(f".{path.name}.partial")
    partial.write_bytes(msgspec.json.format(msgspec.json.encode(content)) + b"\n")
    partial.replace(path)
