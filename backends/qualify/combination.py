"""What the verdict on a reload may depend on, as one value: two engines with equal ones behave alike. Pure.

Rather too much than too little goes in: a combination that is told apart without need costs one more
qualification, one that is not told apart may serve wrong answers.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping

import msgspec

from backends.settings import EngineSettings
from checkpoints.architecture import architecture
from checkpoints.tensors import Tensor

KEY_DIGITS = 24
"""Hex digits of a combination's key: a folder's name in the store."""
MULTIPROCESSING = "VLLM_ENABLE_V1_MULTIPROCESSING"
_CONFIG_WITHOUT = frozenset(
    {
        "transformers_version", "_name_or_path", "dtype", "torch_dtype", "use_cache",
        "bos_token_id", "eos_token_id", "pad_token_id",
    }
)  # fmt: skip
"""Who wrote it, what has a field of its own here, and what concerns sampling only."""
_TELLING_PREFIXES = ("VLLM_", "TORCH", "ONEDNN_", "DNNL_")
_VARIABLES_WITHOUT = frozenset(
    {
        MULTIPROCESSING, "VLLM_SERVER_DEV_MODE", "VLLM_HTTP_TIMEOUT_KEEP_ALIVE", "VLLM_NO_USAGE_STATS",
        "VLLM_LOGGING_COLOR", "VLLM_LOGGING_LEVEL", "VLLM_CPU_OMP_THREADS_BIND", "VLLM_CPU_KVCACHE_SPACE",
        "VLLM_CACHE_ROOT", "VLLM_HOST_IP", "VLLM_PORT", "TORCHINDUCTOR_CACHE_DIR", "TORCH_HOME",
    }
)  # fmt: skip
"""Logging, addresses, sizes, caches."""


class Surroundings(msgspec.Struct, frozen=True):
    """What one machine's engines have in common."""

    engine: str
    """Names and versions of the packages that compute."""
    device: str
    """Down to what chooses other kernels: `cpu x86_64 amx_bf16 avx512f`, `cuda NVIDIA H200`."""


class Combination(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """All of it in words and digests; equal values mean that one verdict holds for both."""

    architecture: str
    config: str
    """Digest of config.json without what does not matter."""
    tensors: str
    """Digest of names, dtypes and shapes: how a checkpoint is cut decides how it is loaded."""
    engine: str
    device: str
    dtype: str
    quantization: str
    tensor_parallel: int
    compiled: bool
    multiprocessing: bool
    """False: the only worker runs inside the engine's core (V1 multiprocessing off)."""
    options: str
    """Digest of other arguments and variables of the engine; empty where there are none."""

    @property
    def key(self) -> str:
        return hashlib.sha256(msgspec.json.encode(self)).hexdigest()[:KEY_DIGITS]


def combine(
    settings: EngineSettings,
    environment: Mapping[str, str],
    surroundings: Surroundings,
    *,
    config: Mapping[str, object],
    tensors: Iterable[Tensor],
) -> Combination:
    """The combination of an engine, by its settings and variables, with a checkpoint."""
    return Combination(
        architecture=architecture(config) or "unknown",
        config=_digest({key: config[key] for key in config.keys() - _CONFIG_WITHOUT}),
        tensors=_digest(sorted((tensor.name, tensor.dtype, tensor.shape) for tensor in tensors)),
        engine=surroundings.engine,
        device=surroundings.device,
        dtype=_dtype(settings, config),
        quantization=_quantization(config),
        tensor_parallel=settings.tensor_parallel_size,
        compiled=not settings.eager,
        multiprocessing=environment.get(MULTIPROCESSING, "1") != "0",
        options=_options(settings, environment),
    )


def differences(one: Combination, other: Combination) -> list[str]:
    """What sets two combinations apart, for people: `tensor_parallel 2 instead of 1`."""
    found = []
    for name in Combination.__struct_fields__:
        here, there = getattr(one, name), getattr(other, name)
        if here != there:
            found.append(f"another {name}" if _is_digest(name) else f"{name} {here} instead of {there}")
    return found


def _is_digest(name: str) -> bool:
    return name in ("config", "tensors", "options")


def _dtype(settings: EngineSettings, config: Mapping[str, object]) -> str:
    if settings.dtype != "auto":
        return settings.dtype
    return f"auto {config.get('dtype', config.get('torch_dtype', 'unknown'))}"


def _quantization(config: Mapping[str, object]) -> str:
    found = config.get("quantization_config")
    return str(found.get("quant_method", "unknown")) if isinstance(found, dict) else "none"


def _options(settings: EngineSettings, environment: Mapping[str, str]) -> str:
    variables = {name: value for name, value in environment.items() if name.startswith(_TELLING_PREFIXES)}
    variables |= settings.env
    kept = {name: value for name, value in variables.items() if name not in _VARIABLES_WITHOUT}
    if not kept and not settings.extra_args and not settings.enable_lora:
        return ""
    return _digest([kept, settings.extra_args, settings.enable_lora])


def _digest(value: object) -> str:
    return hashlib.sha256(msgspec.json.encode(value, order="deterministic")).hexdigest()[:16]
