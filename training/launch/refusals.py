"""What a configuration asks for that cannot be done, each with a word on what to do instead. Pure."""

from __future__ import annotations

from training.config.kinds import Backend, EngineKind, Method, Precision
from training.config.tree import TrainingConfig
from training.launch.machine import Machine

MEGATRON = (
    "engine.type: Megatron does not train here: TRL has no such engine. Use engine.type FSDP (or DeepSpeed) "
    "for large models, on the command line --engine.type FSDP --engine.tensor_model_parallel 1; a model that "
    "Megatron trained is converted to the Hugging Face layout with Megatron Bridge "
    "(AutoBridge.export_ckpt) and then published with `changeover publish`"
)


def refusals(config: TrainingConfig, machine: Machine) -> list[str]:
    """Every reason not to begin; empty: none."""
    return [*_engine(config, machine), *_processes(config, machine), *_precision(config, machine)]


def _engine(config: TrainingConfig, machine: Machine) -> list[str]:
    engine = config.engine
    if engine.type is EngineKind.MEGATRON:
        return [MEGATRON]
    problems = []
    if engine.tensor_model_parallel > 1:
        problems.append(
            f"engine.tensor_model_parallel: {engine.tensor_model_parallel}: layers are not split "
            "in training; use engine.type FSDP, which shards them, and set it to 1"
        )
    if engine.type is EngineKind.DEEPSPEED:
        problems += _deepspeed(config, machine)
    elif engine.deepspeed_config is not None:
        problems.append(
            f"engine.deepspeed_config is given, but engine.type is {engine.type}: --engine.type DeepSpeed"
        )
    if engine.type is EngineKind.FSDP and machine.world_size == 1:
        problems.append(
            "engine.type: FSDP shards over several processes, and this is one: "
            "torchrun --nproc_per_node=2 train.py …, or --engine.type DDP"
        )
    return problems


def _deepspeed(config: TrainingConfig, machine: Machine) -> list[str]:
    problems = []
    if config.engine.deepspeed_config is None:
        problems.append("engine.type: DeepSpeed needs its file: --deepspeed_config ds_config.json")
    if not machine.has_deepspeed:
        problems.append("engine.type: DeepSpeed is not installed: make setup-training, or --engine.type FSDP")
    return problems


def _processes(config: TrainingConfig, machine: Machine) -> list[str]:
    problems = []
    wanted, found = config.distributed.world_size, machine.world_size
    if wanted is not None and wanted != found:
        problems.append(
            f"distributed.world_size is {wanted}, but {found} process{'es' if found > 1 else ''} started: "
            f"torchrun --nproc_per_node={wanted} train.py … (all machines together, with --nnodes), "
            f"or --distributed.world_size {found}"
        )
    if config.distributed.backend is Backend.NCCL and not machine.gpus:
        problems.append(
            "distributed.backend: nccl needs GPUs, and there is none: --distributed.backend gloo (or auto)"
        )
    if config.training.method is Method.GRPO:
        batch = config.training.batch_size * config.training.gradient_accumulation * found
        if batch % config.grpo.generations:
            problems.append(
                f"grpo.generations: {config.grpo.generations} does not divide the {batch} samples of a step "
                "(training.batch_size × gradient_accumulation × processes)"
            )
    return problems


def _precision(config: TrainingConfig, machine: Machine) -> list[str]:
    precision = config.training.precision
    if precision is Precision.FP16 and not machine.gpus:
        return ["training.precision: fp16 needs a GPU, and there is none: bf16 or fp32"]
    if precision is Precision.BF16 and not machine.has_bf16:
        return ["training.precision: this GPU has no bf16: fp16 or fp32"]
    return []


def chosen_precision(config: TrainingConfig, machine: Machine) -> Precision:
    """What `auto` comes to."""
    if config.training.precision is not Precision.AUTO:
        return config.training.precision
    return Precision.BF16 if machine.gpus and machine.has_bf16 else Precision.FP32
