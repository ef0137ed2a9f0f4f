"""DeepSpeed's file and ours must say the same."""

from __future__ import annotations

from training.config.deepspeed import contradictions, for_trainer, implied

USERS = {"fp16": {"enabled": True, "loss_scale": 0}, "zero_optimization": {"stage": 3}}


def test_precision_and_rates_of_the_file_become_ours() -> None:
    file = {**USERS, "optimizer": {"type": "AdamW", "params": {"lr": 1e-5, "weight_decay": "auto"}}}
    assert implied(file) == {"training.precision": "fp16", "training.lr": 1e-5, "engine.type": "deepspeed"}


def test_the_trainer_decides_what_ours_says_and_the_rest_stays() -> None:
    file = {**USERS, "train_micro_batch_size_per_gpu": 4, "train_batch_size": 32, "gradient_clipping": 1.0}
    theirs = for_trainer(file, "fp16")
    assert theirs["train_micro_batch_size_per_gpu"] == "auto"
    assert "train_batch_size" not in theirs
    assert theirs["fp16"] == {"enabled": True, "loss_scale": 0}
    assert theirs["zero_optimization"] == {"stage": 3}
    assert file["train_micro_batch_size_per_gpu"] == 4, "the file's own content was changed"


def test_a_precision_given_elsewhere_wins_in_both() -> None:
    theirs = for_trainer(USERS, "bf16")
    assert theirs["fp16"] == {"enabled": False, "loss_scale": 0}
    assert theirs["bf16"] == {"enabled": True}


def test_what_cannot_be_is_told() -> None:
    assert contradictions({"fp16": {"enabled": True}, "bf16": {"enabled": True}})
    assert contradictions({"fp16": {"enabled": True, "loss_scale": "big"}})
    assert contradictions(USERS) == []
