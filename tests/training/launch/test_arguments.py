"""What the machine cannot do is refused; what it can becomes TRL's arguments."""

from __future__ import annotations

import pytest

from training.config.tree import TrainingConfig
from training.launch.arguments import arguments_for
from training.launch.machine import Machine, ranks
from training.launch.refusals import refusals

CPU = Machine()
GPUS = Machine(gpus=8, world_size=8, has_deepspeed=True)


def config(**sections: object) -> TrainingConfig:
    return TrainingConfig.model_validate({"data": {"path": "x"}, **sections})


@pytest.mark.parametrize(
    ("sections", "machine", "said"),
    [
        ({"engine": {"type": "Megatron", "tensor_model_parallel": 4}}, GPUS, "changeover publish"),
        ({"engine": {"type": "FSDP", "tensor_model_parallel": 4}}, GPUS, "layers are not split"),
        ({"engine": {"type": "FSDP"}}, CPU, "torchrun --nproc_per_node=2"),
        ({"engine": {"type": "DeepSpeed"}}, GPUS, "--deepspeed_config ds_config.json"),
        ({"engine": {"type": "DDP", "deepspeed_config": "x"}}, GPUS, "--engine.type DeepSpeed"),
        (
            {"engine": {"type": "DeepSpeed", "deepspeed_config": "x"}},
            CPU,
            "make setup-training",
        ),
        ({"distributed": {"world_size": 8}}, CPU, "torchrun --nproc_per_node=8"),
        ({"distributed": {"backend": "nccl"}}, CPU, "--distributed.backend gloo"),
        ({"training": {"precision": "fp16"}}, CPU, "fp16 needs a GPU"),
        ({"training": {"precision": "bf16"}}, Machine(gpus=1, has_bf16=False), "has no bf16"),
        (
            {"training": {"method": "grpo", "batch_size": 3}, "grpo": {"rewards": ["x"], "generations": 2}},
            CPU,
            "does not divide the 3 samples",
        ),
    ],
)
def test_what_cannot_be_done_is_refused_with_what_to_do(
    sections: dict[str, object], machine: Machine, said: str
) -> None:
    assert any(said in problem for problem in refusals(config(**sections), machine))


def test_what_can_be_done_is_not_refused() -> None:
    assert refusals(config(), CPU) == []
    assert (
        refusals(config(engine={"type": "fsdp"}, distributed={"backend": "nccl", "world_size": 8}), GPUS)
        == []
    )
    assert refusals(config(training={"precision": "bf16"}), CPU) == []


def test_precision_and_backend_fit_the_machine_if_nobody_chose() -> None:
    on_cpu, on_gpus = arguments_for(config(), CPU, None), arguments_for(config(), GPUS, None)
    assert (on_cpu["bf16"], on_cpu["use_cpu"], on_cpu["ddp_backend"]) == (False, True, None)
    assert (on_gpus["bf16"], on_gpus["use_cpu"], on_gpus["ddp_backend"]) == (True, False, "nccl")


def test_a_run_without_steps_saves_each_epoch_and_evaluates_what_is_kept_apart() -> None:
    plain = arguments_for(config(), CPU, None)
    assert plain["save_strategy"] == "epoch"
    assert "eval_strategy" not in plain
    often = arguments_for(
        config(training={"save_every": 5}, data={"path": "x", "validation_share": 0.1}), CPU, None
    )
    assert (often["save_steps"], often["eval_strategy"], often["eval_steps"]) == (5, "steps", 5)


def test_order_and_clipping_are_as_configured() -> None:
    arguments = arguments_for(
        config(data={"path": "x", "shuffle": False}, training={"max_grad_norm": 0}), CPU, None
    )
    assert arguments["train_sampling_strategy"] == "sequential"
    assert arguments["max_grad_norm"] == 0


def test_deepspeeds_file_is_handed_on() -> None:
    chosen = config(
        engine={"type": "DeepSpeed", "deepspeed_config": "ds.json"}, training={"precision": "fp16"}
    )
    arguments = arguments_for(chosen, GPUS, {"fp16": {"enabled": True, "loss_scale": 0}})
    assert arguments["deepspeed"] == {
        "fp16": {"enabled": True, "loss_scale": 0},
        "train_micro_batch_size_per_gpu": "auto",
        "gradient_accumulation_steps": "auto",
        "gradient_clipping": "auto",
    }
    assert arguments["fp16"] is True


def test_ranks_are_those_of_the_launcher() -> None:
    assert ranks({}) == (1, 0, 0)
    assert ranks({"WORLD_SIZE": "8", "RANK": "5", "LOCAL_RANK": "1"}) == (8, 5, 1)
