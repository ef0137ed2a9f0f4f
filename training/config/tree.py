"""Everything that can be set about a training run. Frozen and validated; nothing here reads a file.

The docstring of a field is its line in `--help`. What other trainers call an option is translated in
`training.config.names`; contradictions with the machine are found by `training.launch.refusals`.
"""

from __future__ import annotations

from typing import Annotated, Self

from pydantic import BeforeValidator, Field, model_validator

from training.config.kinds import (
    Backend,
    BadRecords,
    Cache,
    EngineKind,
    Method,
    Optimizer,
    Precision,
    Schedule,
    TextUnit,
)
from training.config.section import Section, lower
from training.exporter.settings import ExportSettings
from training.metrics import DEFAULT_PORT
from training.rl.settings import Mix, RlSettings


class Lora(Section):
    """Train a low-rank adapter instead of all weights."""

    rank: int = Field(default=16, ge=1, le=512)
    """Rank of the adapter's matrices."""
    alpha: float = Field(default=32, gt=0)
    """Scale of the adapter; its effect is alpha / rank."""
    dropout: float = Field(default=0.0, ge=0, lt=1)
    """Dropout on the adapter's input."""
    target_modules: tuple[str, ...] = ("all-linear",)
    """Names of the modules that get an adapter."""


class Model(Section):
    """What is trained."""

    name: str = Field(default="smollm2-135m-instruct", min_length=1)
    """A built-in model (`smollm2-135m-instruct`, `tiny-llama`) or a hub id; with `pretrained_path` just a
    name."""
    pretrained_path: str | None = None
    """Folder with the weights to begin with, in the Hugging Face layout."""
    tokenizer_path: str | None = None
    """Folder or hub id of the tokenizer. Default: the model's."""
    lora: Lora | None = None
    """Train an adapter (LoRA) instead of all weights."""


class Training(Section):
    """How it is trained, and what is left behind."""

    method: Annotated[Method, BeforeValidator(lower)] = Method.SFT
    """`sft`: on texts; `grpo`: on rewards."""
    batch_size: int = Field(default=8, ge=1)
    """Records that each process works on at a time."""
    gradient_accumulation: int = Field(default=1, ge=1)
    """Batches that make one optimizer step."""
    epochs: float = Field(default=1.0, gt=0)
    """Times that the whole data is gone through."""
    max_steps: int | None = Field(default=None, ge=1)
    """Optimizer steps after which to end, whatever `epochs` says."""
    lr: float = Field(default=5e-5, gt=0)
    """Learning rate after warm-up."""
    schedule: Annotated[Schedule, BeforeValidator(lower)] = Schedule.LINEAR
    """How the learning rate falls."""
    warmup_steps: int = Field(default=0, ge=0)
    """Optimizer steps in which the learning rate rises from 0."""
    max_grad_norm: float = Field(default=1.0, ge=0)
    """Gradients are clipped to this norm; 0: not clipped."""
    precision: Annotated[Precision, BeforeValidator(lower)] = Precision.AUTO
    """`bf16`, `fp16` (GPU only) or `fp32`. `auto`: bf16 on a GPU that has it, else fp32."""
    max_length: int = Field(default=1024, ge=8)
    """Tokens of a record; what is longer is cut off."""
    packing: bool = False
    """Put several short records into one sequence."""
    gradient_checkpointing: bool = False
    """Compute activations twice instead of keeping them: less memory, slower."""
    seed: int = Field(default=42, ge=0)
    """Of shuffling, sampling and new weights."""
    deterministic: bool = False
    """Only deterministic kernels, so that two runs agree bit for bit; slower on a GPU."""
    output_dir: str = Field(default="output", min_length=1)
    """Where checkpoints and, at the end, the weights go."""
    save_every: int | None = Field(default=None, ge=1)
    """Optimizer steps between two checkpoints. Default: one for each epoch."""
    keep_checkpoints: int = Field(default=3, ge=2)
    """Checkpoints kept in `output_dir`. At least 2: one may be incomplete when the machine goes away."""
    log_every: int = Field(default=10, ge=1)
    """Optimizer steps between two log lines. The end of an epoch is always logged."""
    resume: str = "auto"
    """`auto`: go on from the newest complete checkpoint in `output_dir`; `never`: start anew, the old folder
    is moved aside; or a checkpoint's folder."""


class Data(Section):
    """What it is trained on."""

    path: str = Field(min_length=1)
    """A file, a folder of files, `s3://bucket/prefix`, `webhdfs://host:port/path`, or
    `builtin:python-reference`."""
    shuffle: bool = True
    """Another order in each epoch, decided by `training.seed`."""
    text_field: str | None = None
    """Field of a record that holds its text. Default: `text`, or what the records show."""
    prompt_field: str | None = None
    """Field with the prompt. Default: found out from the records."""
    completion_field: str | None = None
    """Field with the answer to the prompt. Default: found out from the records."""
    text_unit: Annotated[TextUnit, BeforeValidator(lower)] = TextUnit.PARAGRAPH
    """What one record is in a plain text file."""
    on_bad_record: Annotated[BadRecords, BeforeValidator(lower)] = BadRecords.ERROR
    """Empty or odd records: `error` names the first and ends, `skip` leaves them out and counts them."""
    limit: int | None = Field(default=None, ge=1)
    """Use the first so many records only."""
    validation_share: float = Field(default=0.0, ge=0, le=0.5)
    """Share of the records that is kept apart, to measure `eval_loss` at each checkpoint."""
    cache: Annotated[Cache, BeforeValidator(lower)] = Cache.DISK
    """Where prepared data lies: `disk` (in `output_dir`) or `memory` (/dev/shm)."""
    memory_gib: float = Field(default=4.0, gt=0)
    """The most that prepared data of all runs may take in memory; the oldest makes way."""
    mix: Mix | None = None
    """RL through the gateway: new samples and earlier ones in one run."""


class Grpo(Section):
    """Reinforcement learning by group-relative policy optimisation (`training.method: grpo`)."""

    rewards: tuple[str, ...] = ()
    """Built-in reward functions by name, others as `package.module:function`."""
    reward_weights: tuple[float, ...] | None = None
    """A weight for each reward. Default: all 1."""
    generations: int = Field(default=4, ge=2)
    """Samples for each prompt."""
    max_completion_length: int = Field(default=64, ge=1)
    """Tokens of a sample."""
    temperature: float = Field(default=1.0, gt=0)
    """Of sampling."""
    beta: float = Field(default=0.0, ge=0)
    """Weight of the KL term to the first weights; 0 keeps no copy of them."""


class OptimizerSection(Section):
    """The optimizer; its learning rate is `training.lr`."""

    type: Annotated[Optimizer, BeforeValidator(lower)] = Optimizer.ADAMW
    """`AdamW`, `Adafactor` (less memory) or `SGD`."""
    weight_decay: float = Field(default=0.0, ge=0)
    """Decoupled weight decay."""
    beta1: float = Field(default=0.9, ge=0, lt=1)
    """AdamW's decay of the mean."""
    beta2: float = Field(default=0.999, ge=0, lt=1)
    """AdamW's decay of the variance."""
    eps: float = Field(default=1e-8, gt=0)
    """AdamW's epsilon."""


class Distributed(Section):
    """Several processes; how many is said to the launcher (`torchrun`, `accelerate launch`, `deepspeed`)."""

    backend: Annotated[Backend, BeforeValidator(lower)] = Backend.AUTO
    """`nccl` (GPU) or `gloo` (CPU). `auto`: what fits the machine."""
    world_size: int | None = Field(default=None, ge=1)
    """Processes that there should be; another number is an error."""
    timeout_s: int = Field(default=1800, ge=10)
    """Longest wait of the processes for each other."""
    max_clock_skew_s: float = Field(default=2.0, gt=0)
    """Clocks of two processes that differ by more are reported at the start."""


class Engine(Section):
    """How the model is spread over the processes."""

    type: Annotated[EngineKind, BeforeValidator(lower)] = EngineKind.DDP
    """`DDP`: whole in each; `FSDP`: sharded; `DeepSpeed`: as `deepspeed_config` says (GPU)."""
    tensor_model_parallel: int = Field(default=1, ge=1)
    """Parts that a layer is split into. Only Megatron does that; here it must be 1."""
    deepspeed_config: str | None = None
    """DeepSpeed's own JSON file (also `--deepspeed_config`)."""
    cpu_offload: bool = False
    """FSDP: keep parameters in main memory."""


class Logs(Section):
    """What can be read while it runs."""

    folder: str = Field(default="logs", min_length=1)
    """Holds train.log and error.log."""
    tensorboard: bool = True
    """Write TensorBoard's files to `output_dir/tensorboard`."""


class MetricsSection(Section):
    """Prometheus metrics of the first process."""

    port: int | None = Field(default=DEFAULT_PORT, ge=0, le=65535)
    """TCP port of `/metrics`; 0: any free one; null: none."""
    host: str = "0.0.0.0"
    """Address that it listens on."""


class TrainingConfig(Section):
    """The whole of it."""

    model: Model = Model()
    training: Training = Training()
    data: Data
    grpo: Grpo = Grpo()
    optimizer: OptimizerSection = OptimizerSection()
    distributed: Distributed = Distributed()
    engine: Engine = Engine()
    logs: Logs = Logs()
    metrics: MetricsSection = MetricsSection()
    export: ExportSettings | None = None
    """Publish checkpoints as the run goes (docs/training.md)."""
    rl: RlSettings | None = None
    """Take GRPO's samples from the gateway and swap each update in (docs/rl.md)."""

    @model_validator(mode="after")
    def _agrees(self) -> Self:
        weights, rewards = self.grpo.reward_weights, self.grpo.rewards
        if self.training.method is Method.GRPO and not rewards:
            raise ValueError("training.method is grpo: name at least one reward function in grpo.rewards")
        if weights is not None and len(weights) != len(rewards):
            raise ValueError(f"grpo.reward_weights: {len(weights)} for {len(rewards)} grpo.rewards")
        if self.rl is not None and (self.training.method is not Method.GRPO or self.export is None):
            raise ValueError(
                "rl needs training.method: grpo, and export with the store that the gateway serves"
            )
        if self.data.mix is not None and self.rl is None:
            raise ValueError("data.mix is for runs whose samples come from the gateway: add the section rl")
        if self.data.completion_field and not self.data.prompt_field:
            raise ValueError("data.completion_field is given without data.prompt_field")
        return self
