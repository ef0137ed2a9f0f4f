"""The loop as a user starts it: `training/train.py` with a section `rl`, against a scripted gateway."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from checkpoints.manifest import Manifest
from checkpoints.rollouts import Stage
from checkpoints.store.open import open_store
from tests.training.rl.gateway_fake import Gateway, promoting
from tests.training.runs import BIN, ROOT, done, free_port, require_trainer, run, train
from training.rl.record import LINES, TOTALS, Totals, Update

pytestmark = [pytest.mark.training, pytest.mark.timeout(600)]

STEPS = 3


def prepare(folder: Path, gateway: Gateway, **more: dict[str, object]) -> None:
    """Two prompts, groups of four, three steps."""
    require_trainer()
    prompts = [{"prompt": "abc"}, {"prompt": "xyz"}]
    (folder / "data.jsonl").write_bytes(b"\n".join(msgspec.json.encode(one) for one in prompts))
    sections: dict[str, dict[str, object]] = {
        "model": {"name": "tiny-llama"},
        "training": {"method": "grpo", "batch_size": 8, "max_steps": STEPS, "lr": 1e-3, "log_every": 1},
        "data": {"path": "data.jsonl"},
        "grpo": {"rewards": ["lower_case"], "generations": 4, "max_completion_length": 4},
        "logs": {"tensorboard": False},
        "metrics": {"port": None},
        "export": {"store": str(folder / "store"), "model": "policy", "probe": "off"},
        "rl": {"gateway": gateway.url},
    }
    for name, values in more.items():
        sections[name] = {**sections.get(name, {}), **values}
    (folder / "config.yaml").write_bytes(msgspec.json.encode(sections))


def lines(folder: Path) -> list[Update]:
    raw = (folder / "output" / LINES).read_bytes().splitlines()
    return [msgspec.json.decode(line, type=Update) for line in raw]


@pytest.mark.long
def test_every_update_is_served_before_it_is_sampled_from(tmp_path: Path) -> None:
    with promoting(str(tmp_path / "store"), "policy") as gateway:
        prepare(tmp_path, gateway)
        done(train(tmp_path))
    store = open_store(str(tmp_path / "store"), "policy")
    assert gateway.promoted == store.versions() == [1, 2, 3, 4]
    assert [asked.least for asked in gateway.asked] == ["1", "1", "2", "2", "3", "3"]
    assert {asked.count for asked in gateway.asked} == {4}
    assert [(one.version, one.step, one.samples) for one in lines(tmp_path)] == [
        (1, 0, 8), (2, 1, 8), (3, 2, 8), (4, 3, 0),
    ]  # fmt: skip
    totals = msgspec.json.decode((tmp_path / "output" / TOTALS).read_bytes(), type=Totals)
    assert (totals.updates, totals.retried, totals.stale_samples, totals.stale_used) == (3, 0, 0, 0)
    assert totals.alarms == STEPS  # the script's log-probabilities are not the model's
    log = (tmp_path / "logs" / "train.log").read_text()
    assert "trainer and engines differ on version 1" in log
    (run_name,) = store.files.names("trajectories")
    assert len(store.files.names(f"trajectories/{run_name}")) == STEPS
    assert trajectories(tmp_path) == {"rows": 24, "rewards": 1, "versions": [1, 2, 3]}


def trajectories(folder: Path) -> dict[str, object]:
    """Read where there is pyarrow."""
    script = (
        "import sys; sys.path.insert(0, sys.argv[1])\n"
        "from checkpoints.store.open import open_store\n"
        "from training.rl.trajectories import read\n"
        "import msgspec\n"
        "rows = read(open_store('store', 'policy').files)\n"
        "print(msgspec.json.encode({'rows': len(rows), 'rewards': len(rows[0]['rewards']),"
        " 'versions': sorted({row['version'] for row in rows})}).decode())\n"
    )
    result = run(folder, BIN / "python", "-c", script, str(ROOT))
    done(result)
    return msgspec.json.decode(result.stdout, type=dict[str, object])


@pytest.mark.long
def test_a_policy_that_is_refused_ends_the_run_and_is_named(tmp_path: Path) -> None:
    def fate(manifest: Manifest) -> tuple[Stage, str]:
        if manifest.version == 2:
            return Stage.ROLLED_BACK, "the probe found stale_head on backend-1"
        return Stage.PROMOTED, ""

    with promoting(str(tmp_path / "store"), "policy", fate) as gateway:
        prepare(tmp_path, gateway)
        result = train(tmp_path)
    assert result.returncode == 1
    errors = (tmp_path / "logs" / "error.log").read_text()
    assert "version 2 was rolled back: the probe found stale_head on backend-1" in errors
    assert {asked.least for asked in gateway.asked} == {"1"}


@pytest.mark.long
def test_drift_ends_a_run_that_is_told_to_stop_at_it(tmp_path: Path) -> None:
    with promoting(str(tmp_path / "store"), "policy") as gateway:
        prepare(tmp_path, gateway, rl={"gateway": gateway.url, "on_drift": "stop"})
        result = train(tmp_path)
    assert result.returncode == 1
    errors = (tmp_path / "logs" / "error.log").read_text()
    assert "trainer and engines differ on version 1" in errors
    assert "another tokenizer" in errors
    assert gateway.promoted == [1]


@pytest.mark.long
def test_two_processes_sample_from_the_same_version(tmp_path: Path) -> None:
    with promoting(str(tmp_path / "store"), "policy") as gateway:
        prepare(tmp_path, gateway, training={"batch_size": 4, "max_steps": 2})
        done(
            run(
                tmp_path,
                BIN / "torchrun",
                "--nproc_per_node=2",
                f"--master_port={free_port()}",
                ROOT / "training" / "train.py",
                "--config",
                "config.yaml",
            )
        )
    assert gateway.promoted == [1, 2, 3]
    files = open_store(str(tmp_path / "store"), "policy").files
    (run_name,) = files.names("trajectories")
    assert len(files.names(f"trajectories/{run_name}")) == 4  # two processes, two steps
    assert sorted(asked.least or "" for asked in gateway.asked) == ["1", "1", "2", "2"]


@pytest.mark.long
def test_a_loop_without_a_store_or_rewards_by_trl_is_refused(tmp_path: Path) -> None:
    with promoting(str(tmp_path / "store"), "policy") as gateway:
        prepare(tmp_path, gateway, training={"method": "sft"})
        result = train(tmp_path)
    assert result.returncode == 2
    assert "rl needs training.method: grpo" in result.stderr
