"""A transformers run with the exporter's line added to it: what comes to lie in the store."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from checkpoints.manifest import PROBE_FILE
from checkpoints.probe.contract import decode_probe
from checkpoints.store.open import open_store
from checkpoints.store.store import Store
from checkpoints.tensors import read_header
from tests.training.runs import BIN, ROOT, SCRIPT, done, free_port, prepare, require_trainer, run
from training.config.tree import Model
from training.launch.models import source_of

pytestmark = [pytest.mark.training, pytest.mark.timeout(600)]

RUN = Path(__file__).with_name("a_foreign_run.py")


def exported(folder: Path, **settings: object) -> dict[str, object]:
    """Train four steps in a process; returns what it printed at its end."""
    require_trainer()
    settings = {"store": str(folder / "store"), "model": "policy", "probe": "thread", **settings}
    encoded = msgspec.json.encode(settings).decode()
    result = run(folder, BIN / "python", RUN, str(ROOT), encoded)
    done(result)
    return msgspec.json.decode(result.stdout.strip().splitlines()[-1], type=dict[str, object])


def store(folder: Path) -> Store:
    return open_store(str(folder / "store"), "policy")


def test_versions_are_the_weights_in_memory_in_the_type_of_the_source(tmp_path: Path) -> None:
    said = exported(tmp_path, on="steps", every=2, probe_seconds=5)
    found = [store(tmp_path).manifest(version) for version in store(tmp_path).versions()]
    assert [one.step for one in found] == [2, 4]
    assert found[-1].dtype == "BF16"
    assert found[0].digests == found[1].digests
    assert said["same_files"] == ["config.json", "tokenizer.json", "tokenizer_config.json"]
    assert float(str(said["difference"])) < 0.2
    probe = decode_probe(store(tmp_path).small_file(found[1], PROBE_FILE), "probe")
    assert {other.cause for other in probe.counterfactuals} >= {"unchanged", "head"}
    assert not list((tmp_path / "output" / "export").iterdir())


@pytest.mark.long
def test_an_adapter_is_published_merged_without_touching_the_run(tmp_path: Path) -> None:
    said = exported(tmp_path, on="steps", every=4, weights="merged", probe="off", dtype="float32")
    assert [store(tmp_path).manifest(one).kind for one in store(tmp_path).versions()] == ["merged"]
    assert float(str(said["difference"])) < 1e-3


@pytest.mark.long
def test_an_adapter_is_published_alone(tmp_path: Path) -> None:
    exported(tmp_path, on="steps", every=4, weights="adapter")
    newest = store(tmp_path).newest()
    assert newest is not None and newest.kind == "adapter"
    assert {entry.path for entry in newest.files} >= {"adapter_config.json", "adapter_model.safetensors"}


@pytest.mark.long
def test_a_store_that_cannot_be_written_does_not_end_the_training(tmp_path: Path) -> None:
    (tmp_path / "store").write_text("a file, no folder")
    said = exported(tmp_path, on="steps", every=2, probe="off", finish_s=1)
    assert said["steps"] == 4


@pytest.mark.long
def test_shards_of_two_processes_become_one_version(tmp_path: Path) -> None:
    require_trainer()
    settings = {
        "store": str(tmp_path / "store"),
        "model": "policy",
        "on": "steps",
        "every": 2,
        "probe": "off",
    }
    prepare(tmp_path, training={"max_steps": 2}, export={**settings, "probe": "off"}, engine={"type": "FSDP"})
    port = f"--master_port={free_port()}"
    done(run(tmp_path, BIN / "torchrun", "--nproc_per_node=2", port, SCRIPT, "--config", "config.yaml"))
    (version,) = store(tmp_path).versions()
    store(tmp_path).fetch(version, tmp_path / "fetched")
    ours, theirs = (read_file(tmp_path / name / "model.safetensors") for name in ("fetched", "output"))
    assert ours == theirs


def read_file(path: Path) -> dict[str, tuple[str, bytes]]:
    """Type and bytes of each tensor."""
    header = read_header(path)
    raw = path.read_bytes()
    return {one.name: (one.dtype, raw[one.start : one.end]) for one in header.tensors}


@pytest.mark.long
def test_shards_of_zero_3_become_one_version(tmp_path: Path) -> None:
    """DeepSpeed runs on a CPU too; the kernels that it compiles are not needed for this."""
    require_trainer()
    settings = {"store": str(tmp_path / "store"), "model": "policy", "on": "steps", "every": 2}
    zero = {"train_micro_batch_size_per_gpu": 2, "zero_optimization": {"stage": 3}}
    (tmp_path / "ds.json").write_bytes(msgspec.json.encode({**zero, "zero_allow_untested_optimizer": True}))
    engine: dict[str, object] = {"type": "DeepSpeed", "deepspeed_config": "ds.json"}
    prepare(
        tmp_path, training={"max_steps": 2, "lr": 1e-2}, export={**settings, "probe": "off"}, engine=engine
    )
    port = f"--master_port={free_port()}"
    done(run(tmp_path, BIN / "torchrun", "--nproc_per_node=2", port, SCRIPT, "--config", "config.yaml"))
    (version,) = store(tmp_path).versions()
    store(tmp_path).fetch(version, tmp_path / "fetched")
    trained = read_file(tmp_path / "fetched" / "model.safetensors")
    before = read_file(Path(source_of(Model(name="tiny-llama"))) / "model.safetensors")
    assert {name: kind for name, (kind, _) in trained.items()} == {
        name: kind for name, (kind, _) in before.items()
    }
    assert [name for name in trained if trained[name] == before[name]] == []
    assert len({raw for _, raw in trained.values()}) == len(trained)
