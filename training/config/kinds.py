"""The closed sets of values that options of a training run take."""

from __future__ import annotations

from enum import StrEnum


class Method(StrEnum):
    SFT = "sft"
    GRPO = "grpo"


class Precision(StrEnum):
    AUTO = "auto"
    BF16 = "bf16"
    FP16 = "fp16"
    FP32 = "fp32"


class Schedule(StrEnum):
    LINEAR = "linear"
    COSINE = "cosine"
    CONSTANT = "constant"


class Optimizer(StrEnum):
    ADAMW = "adamw"
    ADAFACTOR = "adafactor"
    SGD = "sgd"


class Backend(StrEnum):
    AUTO = "auto"
    NCCL = "nccl"
    GLOO = "gloo"


class EngineKind(StrEnum):
    DDP = "ddp"
    FSDP = "fsdp"
    DEEPSPEED = "deepspeed"
    MEGATRON = "megatron"


class TextUnit(StrEnum):
    LINE = "line"
    PARAGRAPH = "paragraph"
    FILE = "file"


class BadRecords(StrEnum):
    ERROR = "error"
    SKIP = "skip"


class Cache(StrEnum):
    DISK = "disk"
    MEMORY = "memory"
