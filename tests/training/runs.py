"""Training runs for tests: the command as a user starts it, in a folder of its own, on the tiny model.

The test process lives in .venv and starts the Python of .venv-engine. Such tests are marked `training`;
where the trainer is not installed they fail, and do not skip.
"""

from __future__ import annotations

import hashlib
import os
import signal
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import msgspec
import pytest

from backends.leash import leashed
from training.run.result import Result, read_result

ROOT = Path(__file__).resolve().parents[2]
BIN = ROOT / ".venv-engine" / "bin"
SCRIPT = ROOT / "training" / "train.py"
LIMIT_S = 280
WORDS = ("the cat sat", "a dog ran far", "one sun rose", "two birds sang", "rain fell down", "we went home")


def require_trainer() -> None:
    """A green run must mean that it was tested."""
    packages = list((ROOT / ".venv-engine" / "lib").glob("python*/site-packages/trl"))
    if not packages:
        pytest.fail("the trainer is not installed: make setup-training", pytrace=False)


def records(count: int = 24) -> bytes:
    """JSON lines with short texts, no two alike."""
    texts = [f"{WORDS[i % len(WORDS)]} {i} times" for i in range(count)]
    return b"\n".join(msgspec.json.encode({"text": text}) for text in texts)


def config(**sections: dict[str, object]) -> dict[str, object]:
    """A configuration of few, small steps, with sections added to."""
    base: dict[str, dict[str, object]] = {
        "model": {"name": "tiny-llama"},
        "training": {"batch_size": 2, "max_steps": 4, "lr": 1e-3, "max_length": 16, "log_every": 1},
        "data": {"path": "data.jsonl"},
        "logs": {"tensorboard": False},
        "metrics": {"port": None},
    }
    for name, values in sections.items():
        base[name] = {**base.get(name, {}), **values}
    return dict(base)


def prepare(folder: Path, **sections: dict[str, object]) -> Path:
    """data.jsonl and config.yaml in the folder; returns the latter."""
    (folder / "data.jsonl").write_bytes(records())
    path = folder / "config.yaml"
    path.write_bytes(msgspec.json.encode(config(**sections)))
    return path


def environment(**more: str) -> dict[str, str]:
    """One thread for each process: two cores, and other tests beside."""
    return {**os.environ, "OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1", **more}  # noqa: TID251 (passed on)


def run(folder: Path, *command: str | Path, **more: str) -> subprocess.CompletedProcess[str]:
    """Run a command there to its end; on a leash, as launchers that are killed leave processes behind."""
    words = leashed(tuple(str(word) for word in command), grace_s=5)
    with subprocess.Popen(
        words,
        cwd=folder,
        env=environment(**more),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        try:
            out, err = process.communicate(timeout=LIMIT_S)
        except BaseException:
            process.terminate()
            raise
    return subprocess.CompletedProcess(words, process.returncode, out, err)


def free_port() -> int:
    """For a launcher's processes to meet."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def train(folder: Path, *arguments: str, **more: str) -> subprocess.CompletedProcess[str]:
    """`python training/train.py --config config.yaml …` to its end."""
    return run(folder, BIN / "python", SCRIPT, "--config", "config.yaml", *arguments, **more)


@contextmanager
def started(folder: Path, *arguments: str) -> Iterator[subprocess.Popen[bytes]]:
    """The same, running; killed at the end if it is not over."""
    with (folder / "printed").open("wb") as out:
        process = subprocess.Popen(
            [BIN / "python", SCRIPT, "--config", "config.yaml", *arguments],
            cwd=folder,
            env=environment(),
            stdout=out,
            stderr=subprocess.STDOUT,
        )
        try:
            yield process
        finally:
            if process.poll() is None:
                process.send_signal(signal.SIGKILL)
            process.wait()


def wait_for(process: subprocess.Popen[bytes], log: Path, text: str) -> None:
    """Until the log says so."""
    deadline = time.monotonic() + LIMIT_S
    while time.monotonic() < deadline:
        if log.exists() and text in log.read_text():
            return
        assert process.poll() is None, f"ended before {text!r}:\n{log.read_text() if log.exists() else ''}"
        time.sleep(0.02)
    raise AssertionError(f"{text!r} did not come")


def done(result: subprocess.CompletedProcess[str]) -> None:
    """It ended well; else all that it said."""
    assert result.returncode == 0, f"{result.returncode}\n{result.stdout[-3000:]}\n{result.stderr[-6000:]}"


def weights(output: Path) -> str:
    """Digest of the final weights."""
    return hashlib.sha256((output / "model.safetensors").read_bytes()).hexdigest()


def result(output: Path) -> Result:
    """How the run ended."""
    found = read_result(output)
    assert found is not None
    return found
