"""The commands that people start training with, as they stand in their guides."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.training.runs import BIN, ROOT, SCRIPT, done, free_port, prepare, result, run, train

pytestmark = [pytest.mark.training, pytest.mark.timeout(600)]

TWO: dict[str, object] = {"max_steps": 2, "save_every": 1}


def torchrun(folder: Path, *arguments: str) -> None:
    """Two processes on this machine."""
    launcher = ("--nproc_per_node=2", "--nnodes=1", "--node_rank=0", f"--master_port={free_port()}")
    done(run(folder, BIN / "torchrun", *launcher, SCRIPT, "--config", "config.yaml", *arguments))


@pytest.mark.parametrize("engine", ["DDP", pytest.param("FSDP", marks=pytest.mark.long)])
def test_two_processes_train_one_model(tmp_path: Path, engine: str) -> None:
    prepare(tmp_path, training=TWO, distributed={"backend": "gloo", "world_size": 2}, engine={"type": engine})
    torchrun(tmp_path)
    output = tmp_path / "output"
    assert result(output).steps == 2
    assert (output / "model.safetensors").stat().st_size > 2_000_000
    assert (output / "checkpoint-2" / "complete.json").exists()
    assert (tmp_path / "logs" / "error.log").read_text() == ""

    torchrun(tmp_path, "--max_steps", "3")
    assert "training from step 2 to 3" in (tmp_path / "logs" / "train.log").read_text()


@pytest.mark.long
def test_accelerate_launches_it(tmp_path: Path) -> None:
    prepare(tmp_path, training=TWO)
    launcher = (
        "--cpu",
        "--num_processes=2",
        "--num_machines=1",
        "--mixed_precision=no",
        "--dynamo_backend=no",
    )
    done(
        run(
            tmp_path,
            BIN / "accelerate",
            "launch",
            *launcher,
            f"--main_process_port={free_port()}",
            SCRIPT,
            "--config",
            "config.yaml",
        )
    )
    assert result(tmp_path / "output").steps == 2


@pytest.mark.long
def test_deepspeed_launches_it_sharded(tmp_path: Path) -> None:
    prepare(tmp_path, training={**TWO, "batch_size": 8})
    (tmp_path / "ds_config.json").write_text(
        '{"bf16": {"enabled": true}, "zero_optimization": {"stage": 2}, "train_micro_batch_size_per_gpu": 2}'
    )
    words = ("--deepspeed_config", "ds_config.json", "--train_config", "config.yaml")
    launcher = ("--num_gpus=2", f"--master_port={free_port()}")
    done(run(tmp_path, BIN / "deepspeed", *launcher, SCRIPT, *words, DS_ACCELERATOR="cpu"))
    output = tmp_path / "output"
    assert result(output).steps == 2
    assert len(list(output.glob("checkpoint-2/global_step2/*optim_states.pt"))) == 2, "ZeRO did not shard"


def test_the_plain_file_works_with_any_python(tmp_path: Path) -> None:
    prepare(tmp_path)
    (tmp_path / "config.yaml").write_text(
        'model: {name: "gpt2-medium", pretrained_path: "${MODEL}"}\n'
        "training: {batch_size: 32, epochs: 1, lr: 5e-5}     # a comment\n"
        'data: {path: "${DATA_PATH}", shuffle: true}\n'
    )
    where = run(tmp_path, BIN / "python", "-m", "backends.models", "tiny-llama", PYTHONPATH=str(ROOT))
    done(where)
    ended = run(
        tmp_path,
        "python3",
        ROOT / "train.py",
        "--config",
        "config.yaml",
        "--batch_size",
        "64",
        DATA_PATH=str(tmp_path / "data.jsonl"),
        MODEL=where.stdout.strip(),
    )
    done(ended)
    assert (tmp_path / "output" / "model.safetensors").exists()


def test_the_file_for_scale_is_refused_with_what_to_do(tmp_path: Path) -> None:
    prepare(tmp_path)
    (tmp_path / "train_config.yaml").write_text(
        "distributed: {backend: nccl, world_size: 8}\n"
        "optimizer: {type: AdamW, lr: 1e-5}\n"
        "engine: {type: Megatron, tensor_model_parallel: 4}\n"
    )
    (tmp_path / "ds_config.json").write_text('{"fp16": {"enabled": true, "loss_scale": 0}}')
    ended = train(
        tmp_path,
        "--deepspeed_config",
        "ds_config.json",
        "--train_config",
        "train_config.yaml",
        "--local_rank=0",
    )
    assert ended.returncode == 2
    for word in (
        "Megatron",
        "--engine.type FSDP",
        "torchrun --nproc_per_node=8",
        "nccl needs GPUs",
        "fp16 needs",
    ):
        assert word in ended.stderr


@pytest.mark.long
def test_a_sweep_compares_its_runs_and_names_the_best(tmp_path: Path) -> None:
    prepare(tmp_path, training={"max_steps": 2})
    (tmp_path / "sweep.yaml").write_text("lr: [1e-3, 1e-6]\n")
    ended = train(tmp_path, "--sweep", "sweep.yaml", "--batch_size", "4")
    done(ended)
    output = tmp_path / "output"
    assert "best: lr=0.001" in ended.stdout
    assert (output / "sweep.csv").read_text().count("\n") == 3
    assert (output / "sweep.png").read_bytes().startswith(b"\x89PNG")

    again = train(tmp_path, "--sweep", "sweep.yaml", "--batch_size", "4")
    assert again.stderr.count("finished;") == 2
