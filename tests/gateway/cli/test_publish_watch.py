"""`changeover publish --watch`: a run that one cannot touch, played by the test."""

from __future__ import annotations

import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import msgspec

from backends.models.tiny import write_tiny_llama
from checkpoints.finished import STATE
from checkpoints.store.open import open_store
from checkpoints.store.store import Store
from tests.drivers.waiting import eventually

LIMIT_S = 60


def checkpoint(output: Path, step: int, *, finished: bool = True) -> Path:
    """As a Trainer writes it: the state last."""
    folder = output / f"checkpoint-{step}"
    folder.mkdir(parents=True)
    write_tiny_llama(folder, seed=step)
    if finished:
        finish(folder, step)
    return folder


def finish(folder: Path, step: int) -> None:
    (folder / STATE).write_bytes(msgspec.json.encode({"global_step": step}))


def command(folder: Path, *more: str) -> list[str]:
    return [
        sys.executable, "-m", "gateway", "publish", str(folder / "output"), "--watch", "--store",
        str(folder / "store"), "--model", "m", "--run", "theirs", "--probe", "none", "--settle", "2", *more,
    ]  # fmt: skip


def ended(folder: Path, *more: str) -> subprocess.CompletedProcess[bytes]:
    return subprocess.run(command(folder, *more), capture_output=True, timeout=LIMIT_S, check=False)


def steps(store: Store) -> list[int]:
    return [store.manifest(version).step for version in store.versions()]


@contextmanager
def watching(folder: Path) -> Iterator[subprocess.Popen[bytes]]:
    process = subprocess.Popen(command(folder))
    try:
        yield process
    finally:
        if process.poll() is None:
            process.kill()
        process.wait()


async def test_only_finished_checkpoints_are_published_each_once(tmp_path: Path) -> None:
    store = open_store(str(tmp_path / "store"), "m")
    half = checkpoint(tmp_path / "output", 20, finished=False)
    (half / "model.safetensors").write_bytes(b"half")
    checkpoint(tmp_path / "output", 10)
    with watching(tmp_path) as process:
        await eventually(lambda: steps(store) == [10], within=LIMIT_S)
        shutil.rmtree(tmp_path / "output" / "checkpoint-10")
        shutil.rmtree(half)
        checkpoint(tmp_path / "output", 20)
        await eventually(lambda: steps(store) == [10, 20], within=LIMIT_S)
        process.send_signal(signal.SIGKILL)
        process.wait()
    done = ended(tmp_path, "--idle", "3")
    assert done.returncode == 0, done.stderr
    assert steps(store) == [10, 20]
    assert b"0 published" in done.stderr


def test_of_several_that_wait_the_newest_is_published(tmp_path: Path) -> None:
    for step in (10, 20, 30):
        checkpoint(tmp_path / "output", step)
    done = ended(tmp_path, "--idle", "3")
    assert done.returncode == 0, done.stderr
    assert steps(open_store(str(tmp_path / "store"), "m")) == [30]


def test_a_checkpoint_that_is_refused_does_not_end_the_watch(tmp_path: Path) -> None:
    checkpoint(tmp_path / "output", 10)
    (checkpoint(tmp_path / "output", 20) / "model.safetensors").write_bytes(b"no weights")
    done = ended(tmp_path, "--idle", "4")
    assert done.returncode == 0, done.stderr
    assert b"checkpoint-20" in done.stderr or b"model.safetensors" in done.stderr
    assert steps(open_store(str(tmp_path / "store"), "m")) == [10]


def test_the_run_that_is_named_must_be_there(tmp_path: Path) -> None:
    done = ended(tmp_path)
    assert done.returncode == 1
    assert b"output" in done.stderr
