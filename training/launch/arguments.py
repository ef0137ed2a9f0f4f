"""Our configuration as arguments of TRL's SFTConfig and GRPOConfig (names of TRL 1.16). Pure."""

from __future__ import annotations

from collections.abc import Mapping

from training.config.deepspeed import Json, for_trainer
from training.config.kinds import Backend, EngineKind, Method, Optimizer, Precision, Schedule
from training.config.tree import TrainingConfig
from training.launch.machine import Machine
from training.launch.refusals import chosen_precision

Arguments = dict[str, object]

_OPTIMIZERS: Mapping[Optimizer, str] = {
    Optimizer.ADAMW: "adamw_torch",
    Optimizer.ADAFACTOR: "adafactor",
    Optimizer.SGD: "sgd",
}
_SCHEDULES: Mapping[Schedule, str] = {
    Schedule.LINEAR: "linear",
    Schedule.COSINE: "cosine",
    Schedule.CONSTANT: "constant_with_warmup",
}


def arguments_for(config: TrainingConfig, machine: Machine, deepspeed: Json | None) -> Arguments:
    """What SFTConfig or GRPOConfig is made with, by `training.method`."""
    precision = chosen_precision(config, machine)
    arguments = _common(config, machine, precision) | _optimizer(config) | _saving(config)
    match config.engine.type:
        case EngineKind.FSDP:
            arguments["fsdp"] = True
            arguments["fsdp_config"] = {"version": 2, "cpu_offload": config.engine.cpu_offload}
        case EngineKind.DEEPSPEED if deepspeed is not None:
            arguments["deepspeed"] = for_trainer(deepspeed, precision.value)
        case _:
            pass
    return arguments | (_sft(config) if config.training.method is Method.SFT else _grpo(config))


def _common(config: TrainingConfig, machine: Machine, precision: Precision) -> Arguments:
    training = config.training
    backend = config.distributed.backend
    if backend is Backend.AUTO:
        backend = Backend.NCCL if machine.gpus else Backend.GLOO
    return {
        "output_dir": training.output_dir,
        "per_device_train_batch_size": training.batch_size,
        "per_device_eval_batch_size": training.batch_size,
        "gradient_accumulation_steps": training.gradient_accumulation,
        "num_train_epochs": training.epochs,
        "max_steps": training.max_steps or -1,
        "max_grad_norm": training.max_grad_norm,
        "bf16": precision is Precision.BF16,
        "fp16": precision is Precision.FP16,
        "gradient_checkpointing": training.gradient_checkpointing,
        "seed": training.seed,
        "data_seed": training.seed,
        "full_determinism": training.deterministic,
        "use_cpu": machine.gpus == 0,
        "ddp_backend": backend.value if machine.world_size > 1 else None,
        "ddp_timeout": config.distributed.timeout_s,
        "ddp_find_unused_parameters": False,
        "dataloader_pin_memory": machine.gpus > 0,
        "report_to": "none",
        "logging_steps": training.log_every,
        "logging_first_step": True,
        "logging_nan_inf_filter": False,  # a loss that is no number is to be seen
    }


def _optimizer(config: TrainingConfig) -> Arguments:
    return {
        "optim": _OPTIMIZERS[config.optimizer.type],
        "learning_rate": config.training.lr,
        "lr_scheduler_type": _SCHEDULES[config.training.schedule],
        "warmup_steps": config.training.warmup_steps,
        "weight_decay": config.optimizer.weight_decay,
        "adam_beta1": config.optimizer.beta1,
        "adam_beta2": config.optimizer.beta2,
        "adam_epsilon": config.optimizer.eps,
    }


def _saving(config: TrainingConfig) -> Arguments:
    """Checkpoints, and beside each, where records are kept apart for it, an evaluation."""
    every = config.training.save_every
    strategy = "epoch" if every is None else "steps"
    arguments: Arguments = {"save_strategy": strategy, "save_total_limit": config.training.keep_checkpoints}
    if every is not None:
        arguments["save_steps"] = every
    if config.data.validation_share:
        arguments["eval_strategy"] = strategy
        if every is not None:
            arguments["eval_steps"] = every
    return arguments


def _sft(config: TrainingConfig) -> Arguments:
    return {
        "max_length": config.training.max_length,
        "packing": config.training.packing,
        "packing_strategy": "wrapped",
        "dataset_text_field": "text",
        "train_sampling_strategy": "random" if config.data.shuffle else "sequential",
    }


def _grpo(config: TrainingConfig) -> Arguments:
    grpo = config.grpo
    return {
        "num_generations": grpo.generations,
        "max_completion_length": grpo.max_completion_length,
        "temperature": grpo.temperature,
        "beta": grpo.beta,
        "reward_weights": list(grpo.reward_weights) if grpo.reward_weights is not None else None,
        "shuffle_dataset": config.data.shuffle,
    }
