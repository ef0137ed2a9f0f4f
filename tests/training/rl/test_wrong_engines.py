"""The loop against engines that are wrong in a way that answers 200: noticed, named, and not served.

Real engines behind a real gateway, and a trainer as a user starts it. Each policy carries its probe; the
agent replays it before the engine may answer for it.
"""

from __future__ import annotations

import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec
import pytest

from backends.layout import places
from backends.settings import Checkpoints, EngineSettings
from checkpoints.errors import StoreError
from checkpoints.rollouts import Rollout, Stage
from checkpoints.store.open import open_store
from deploy.demos.serving import Serving, serving, write_settings
from tests.backends.agent.test_swap_engines import trust
from tests.engines import EngineUnderTest
from tests.training.runs import ROOT, require_trainer, train
from training.config.tree import Model
from training.launch.models import source_of

pytestmark = [pytest.mark.engine, pytest.mark.training, pytest.mark.timeout(1800)]

MODEL = "tiny-llama"


@contextmanager
def served_with(*arguments: str, trusted: bool) -> Iterator[tuple[Path, Serving, str]]:
    """A folder, a gateway in front of one engine with these arguments, and the version that it serves.

    `trusted`: reloads in place are allowed, as if they had been qualified.
    """
    require_trainer()
    with tempfile.TemporaryDirectory(prefix="co-wrong-", ignore_cleanup_errors=True) as name:
        folder = Path(name)
        engine: dict[str, Any] = {
            "model": MODEL,
            "kv_cache_gib": 0.25,
            "eager": True,
            "extra_args": list(arguments),
            "env": {"PYTHONPATH": str(ROOT)},
        }
        rollout = {"mode": "atomic", "probe": "required", "poll_s": 0.2}
        config = write_settings(folder, MODEL, 1, folder / "store", {"engine": engine, "rollout": rollout})
        if trusted:
            _trust(folder, engine)
        with serving(config) as gateway:
            _, version = gateway.complete("Hello", 4)
            yield folder, gateway, version


def _trust(folder: Path, engine: dict[str, Any]) -> None:
    (place,) = places(folder / "run", MODEL, 1)
    settings = EngineSettings(**{**engine, "replicas": 1})
    options = Checkpoints(store=str(folder / "store"), local=str(folder / "local"))
    store = open_store(str(folder / "store"), MODEL)
    with subprocess.Popen(["true"]) as agent:  # none runs yet, and none is needed
        trust(store, EngineUnderTest(place, folder / "run", agent), settings, options)


def learn(folder: Path, gateway: Serving) -> str:
    """Start a run of two steps; what it said of its end."""
    (folder / "data.jsonl").write_bytes(b'{"prompt": "abc"}')
    sections = {
        "model": {"name": MODEL},
        "training": {"method": "grpo", "batch_size": 4, "max_steps": 2, "lr": 1e-2, "log_every": 1},
        "data": {"path": "data.jsonl"},
        "grpo": {"rewards": ["lower_case"], "generations": 4, "max_completion_length": 8},
        "logs": {"tensorboard": False},
        "metrics": {"port": None},
        "export": {"store": str(folder / "store"), "model": MODEL},
        "rl": {"gateway": gateway.url},
    }
    (folder / "config.yaml").write_bytes(msgspec.json.encode(sections))
    result = train(folder)
    assert result.returncode == 1, result.stdout + result.stderr
    return (folder / "logs" / "error.log").read_text()


def last_rollout(folder: Path) -> Rollout:
    found = open_store(str(folder / "store"), MODEL).rollouts.read()
    if found is None:
        raise StoreError("no rollout")
    return found


def swap_two_tokens(source: Path, folder: Path) -> None:
    """A tokenizer that exchanges the ids of `a` and `e`: every text is still text."""
    folder.mkdir()
    for path in source.glob("*.json"):
        if path.name != "config.json":
            shutil.copyfile(path, folder / path.name)
    tokenizer = msgspec.json.decode((folder / "tokenizer.json").read_bytes())
    vocabulary = tokenizer["model"]["vocab"]
    vocabulary["a"], vocabulary["e"] = vocabulary["e"], vocabulary["a"]
    (folder / "tokenizer.json").write_bytes(msgspec.json.encode(tokenizer))


@pytest.mark.long
def test_an_engine_with_a_wrong_tokenizer_never_serves_the_policy(tmp_path: Path) -> None:
    swap_two_tokens(Path(source_of(Model(name=MODEL))), tmp_path / "tokenizer")
    with served_with("--tokenizer", str(tmp_path / "tokenizer"), trusted=True) as (folder, gateway, before):
        said = learn(folder, gateway)
        assert "tokenizer" in said
        assert last_rollout(folder).stage is Stage.ROLLED_BACK
        gateway.wait(gateway.ready, 300, "the return of the engine")
        assert gateway.complete("Hello", 4)[1] == before


@pytest.mark.long
def test_an_engine_that_keeps_its_prefix_cache_never_serves_a_new_policy() -> None:
    stale = "tests.training.rl.stale_cache.KeepsItsCache"
    with served_with("--middleware", stale, trusted=True) as (folder, gateway, before):
        said = learn(folder, gateway)
        assert "stale_prefix_cache" in said
        last = last_rollout(folder)
        assert last.stage is Stage.ROLLED_BACK
        gateway.wait(gateway.ready, 300, "the return of the engine")
        assert gateway.complete("Hello", 4)[1] == last.from_label
        assert last.version > 1 or last.from_label == before
