"""What a run leaves, and how it goes on after it was cut off. Real runs of the tiny model."""

from __future__ import annotations

import re
import signal
import urllib.request
from pathlib import Path

import msgspec
import pytest

from tests.training.runs import done, prepare, result, started, train, wait_for, weights

pytestmark = [pytest.mark.training, pytest.mark.timeout(600)]

LONG: dict[str, object] = {"max_steps": 400, "save_every": 2, "keep_checkpoints": 2}


def test_a_run_leaves_weights_logs_metrics_and_what_it_was(tmp_path: Path) -> None:
    prepare(tmp_path, training={"epochs": 2, "max_steps": None, "batch_size": 8}, logs={"tensorboard": True})
    ended = train(tmp_path, "--batch_size", "12", "--training.lr=2e-3")
    done(ended)

    output = tmp_path / "output"
    assert {"model.safetensors", "config.json", "tokenizer.json"} <= {each.name for each in output.iterdir()}
    assert list(output.glob("tensorboard/*tfevents*"))
    resolved = msgspec.json.decode((output / "resolved_config.json").read_bytes())
    assert resolved["training"]["batch_size"] == 12
    assert resolved["training"]["lr"] == 2e-3
    assert msgspec.json.decode((output / "versions.json").read_bytes())["packages"]["trl"]
    ended_at = result(output)
    assert ended_at.loss_first is not None
    assert ended_at.loss_last is not None
    assert ended_at.loss_last < ended_at.loss_first
    log = (tmp_path / "logs" / "train.log").read_text()
    assert "step 4/4" in log
    assert len(re.findall("epoch done: mean loss", log)) == 2
    assert (tmp_path / "logs" / "error.log").read_text() == ""
    assert "100%" in ended.stderr, "no progress bar was shown"

    again = train(tmp_path, "--batch_size", "12", "--training.lr=2e-3")
    done(again)
    assert "finished" in again.stderr


@pytest.mark.fault("S3")
def test_a_killed_run_goes_on_from_its_newest_complete_checkpoint_bit_for_bit(tmp_path: Path) -> None:
    whole, cut = tmp_path / "whole", tmp_path / "cut"
    for folder in (whole, cut):
        folder.mkdir()
        prepare(folder, training={"max_steps": 12, "save_every": 2})
    done(train(whole))

    with started(cut) as process:
        wait_for(process, cut / "logs" / "train.log", "checkpoint-4 written")
        process.kill()
        process.wait()
    broken = cut / "output" / "checkpoint-11"
    broken.mkdir()
    (broken / "model.safetensors").write_bytes(b"half")
    resumed = train(cut)

    done(resumed)
    assert re.search(r"going on from output/checkpoint-\d+", resumed.stderr)
    assert "checkpoint-11 was not written to its end" in resumed.stderr
    assert weights(cut / "output") == weights(whole / "output")


def test_a_run_that_is_told_to_end_writes_a_checkpoint_first(tmp_path: Path) -> None:
    prepare(tmp_path, training={**LONG, "save_every": 1000})
    with started(tmp_path) as process:
        wait_for(process, tmp_path / "logs" / "train.log", "step 2/400")
        process.send_signal(signal.SIGTERM)
        assert process.wait(60) == 128 + signal.SIGTERM

    (checkpoint,) = (tmp_path / "output").glob("checkpoint-*")
    assert (checkpoint / "complete.json").exists()
    assert (tmp_path / "logs" / "error.log").read_text() == ""
    step = int(checkpoint.name.split("-")[1])
    resumed = train(tmp_path, "--max_steps", str(step + 1))
    done(resumed)
    assert f"training from step {step} to {step + 1}" in resumed.stderr


@pytest.mark.long
def test_a_configuration_file_that_changes_is_reported_and_not_read(tmp_path: Path) -> None:
    path = prepare(tmp_path, training=LONG, metrics={"port": 0})
    log = tmp_path / "logs" / "train.log"
    with started(tmp_path) as process:
        wait_for(process, log, "step 2/400")
        address = re.search(r"metrics at (\S+)", log.read_text())
        assert address is not None
        path.write_text("training: {lr: 7}")
        wait_for(process, log, "config.yaml changed: the run goes on with what it read at its start")
        with urllib.request.urlopen(address[1]) as answer:
            shown = answer.read().decode()

    found = dict(re.findall(r"^(changeover_training_\w+) (\S+)$", shown, re.MULTILINE))
    assert float(found["changeover_training_configuration_changed"]) == 1
    assert float(found["changeover_training_step"]) >= 2
    assert float(found["changeover_training_loss"]) > 0
    assert float(found["changeover_training_grad_norm"]) > 0
    assert float(found["changeover_training_running"]) == 1


@pytest.mark.long
def test_another_configuration_does_not_go_on_in_the_same_folder(tmp_path: Path) -> None:
    prepare(tmp_path, training={"max_steps": 2, "save_every": 1})
    done(train(tmp_path))
    other = train(tmp_path, "--lr", "5e-4")
    assert other.returncode == 2
    assert "training.lr: 0.001 -> 0.0005" in other.stderr
    assert "5e-4" not in (tmp_path / "output" / "resolved_config.json").read_text()

    done(train(tmp_path, "--lr", "5e-4", "--resume", "never"))
    assert (tmp_path / "output.1" / "model.safetensors").exists()


@pytest.mark.long
def test_reinforcement_learning_uses_reward_functions_by_name_and_by_path(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(
        "def shorter(completions, **_):\n    return [-len(c) for c in completions]\n"
    )
    prepare(
        tmp_path,
        training={"method": "grpo", "batch_size": 4, "max_steps": 1},
        grpo={"rewards": ["lower_case", "mine:shorter"], "generations": 2, "max_completion_length": 4},
        data={"prompt_field": "text"},
    )
    ended = train(tmp_path)
    done(ended)
    assert "reward=" in (tmp_path / "logs" / "train.log").read_text()


@pytest.mark.long
def test_an_adapter_is_trained_in_bf16_on_data_in_memory(tmp_path: Path) -> None:
    prepare(
        tmp_path,
        model={"lora": {"rank": 4}},
        training={"precision": "bf16", "max_steps": 2},
        data={"cache": "memory", "validation_share": 0.25},
    )
    done(train(tmp_path))
    assert (tmp_path / "output" / "adapter_model.safetensors").exists()
    assert result(tmp_path / "output").eval_loss is not None
    assert not list((tmp_path / "output" / "data").glob("*.arrow"))


def test_a_failure_is_in_the_error_log(tmp_path: Path) -> None:
    prepare(tmp_path, grpo={"rewards": ["lower_case"]}, training={"method": "grpo", "batch_size": 4})
    (tmp_path / "data.jsonl").write_text('{"prompt": ""}\n')
    ended = train(tmp_path)
    assert ended.returncode == 2
    assert "data.jsonl line 1: prompt is empty" in (tmp_path / "logs" / "error.log").read_text()
