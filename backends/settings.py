"""What can be set about an engine. Read by the gateway's settings tree and by `changeover backend`.

Frozen and validated; nothing here reads a file or the environment.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field


class Section(BaseModel):
    """One mapping of the configuration: unknown keys are errors, values never change."""

    model_config = ConfigDict(
        frozen=True,
        extra="forbid",
        use_attribute_docstrings=True,
        allow_inf_nan=False,
        hide_input_in_errors=True,
    )


class EngineType(StrEnum):
    VLLM = "vllm"


class Device(StrEnum):
    AUTO = "auto"
    CPU = "cpu"
    CUDA = "cuda"


def _lower(value: object) -> object:
    return value.lower() if isinstance(value, str) else value


class EngineSettings(Section):
    """The engines that this machine starts, all alike."""

    type: Annotated[EngineType, BeforeValidator(_lower)] = EngineType.VLLM
    """The engine. Only vLLM."""
    model: str = "smollm2-135m-instruct"
    """A built-in model (`smollm2-135m-instruct`, `tiny-llama`), a folder in the Hugging Face layout, or a
    hub id."""
    served_name: str | None = None
    """The model name that clients use. Default: the last part of `model`."""
    replicas: int = Field(default=2, ge=0, le=64)
    """How many engines `changeover serve` starts."""
    tensor_parallel_size: int = Field(default=1, ge=1)
    """Devices (on CPU: processes) that share one engine. Must divide the model's attention and KV heads."""
    max_batch_size: int = Field(default=32, ge=1)
    """Sequences an engine computes at a time (vLLM's `--max-num-seqs`), and the most prompts in one batched
    call."""
    max_model_len: int | None = Field(default=None, ge=16)
    """Longest prompt plus answer, in tokens. Default: the model's own limit."""
    device: Annotated[Device, BeforeValidator(_lower)] = Device.AUTO
    """Which build of the engine runs."""
    dtype: str = "auto"
    """Number type of the weights and activations (vLLM's `--dtype`)."""
    eager: bool = True
    """Start without compilation: seconds instead of a minute, a little slower after that."""
    kv_cache_gib: float = Field(default=1.0, gt=0)
    """KV cache for each engine on CPU, in GiB."""
    gpu_memory_utilization: float = Field(default=0.9, gt=0, le=1)
    """Share of the GPU's memory that an engine takes."""
    enable_lora: bool = False
    """Let adapters be loaded while the engine runs."""
    start_timeout_s: float = Field(default=600, gt=0)
    """Time an engine has to become ready, loading and compilation included."""
    shutdown_timeout_s: float = Field(default=30, ge=0)
    """Time an engine has to finish what runs when it is told to end."""
    extra_args: tuple[str, ...] = ()
    """More arguments for `vllm serve`, as they would stand on its command line."""
    env: dict[str, str] = Field(default_factory=dict, repr=False)
    """More environment variables for the engine."""


class Checkpoints(Section):
    """Where new weights come from. Read by the gateway and by each backend."""

    store: str | None = None
    """A folder, `s3://bucket/prefix` or `hdfs://host:port/path`. None: weights are never changed."""
    model: str | None = None
    """The model's name in the store. Default: the name that clients use."""
    trusted_keys: tuple[str, ...] = ()
    """Files with public keys (Ed25519): only versions signed by one of them are served. None: any."""
    local: str | None = None
    """Folder for copies on this machine. Default: `checkpoints` in changeover's cache folder."""
    keep_local: int = Field(default=3, ge=2)
    """Copies that are kept, the served one included."""
    qualify: bool = False
    """Qualify in-place reloads in the background where there is no record yet."""
