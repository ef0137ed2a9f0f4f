"""Where vLLM is installed on this machine, and what that build runs on."""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import msgspec

from backends.settings import Device

VENV_VARIABLE = "CHANGEOVER_ENGINE_VENV"
VENV_NAME = ".venv-engine"
STAMP = "changeover-setup.json"
"""Left in the environment by deploy/setup.py; says the device."""


class EngineMissing(RuntimeError):
    """vLLM is not installed; the message says how to install it."""


@dataclass(frozen=True, slots=True)
class Installation:
    vllm: Path
    python: Path
    device: Device
    """What the build runs on: CPU or CUDA."""


def find_engine(
    environment: Mapping[str, str], device: Device, *, source_root: Path | None = None
) -> Installation:
    """Find vLLM: `CHANGEOVER_ENGINE_VENV`, `.venv-engine` beside the sources or here, then the PATH.

    `device` as set; `auto` takes what the build is for. Raises EngineMissing.
    """
    root = source_root or Path(__file__).resolve().parents[2]
    configured = environment.get(VENV_VARIABLE)
    venvs = [Path(configured)] if configured else [root / VENV_NAME, Path.cwd() / VENV_NAME]
    for venv in venvs:
        if (venv / "bin" / "vllm").is_file():
            return _installation(venv / "bin" / "vllm", device, venv)
    on_path = None if configured else shutil.which("vllm", path=environment.get("PATH"))
    if on_path is None:
        raise EngineMissing(
            f"vLLM is not installed in {venvs[0]}: run `make setup-engine` (CPU) or "
            f"`make setup-engine ENGINE=cuda`, or set {VENV_VARIABLE} to the environment that has it"
        )
    return _installation(Path(on_path), device, Path(on_path).parent.parent)


def _installation(vllm: Path, device: Device, venv: Path) -> Installation:
    python = vllm.with_name("python")
    found = device if device is not Device.AUTO else _built_for(venv)
    return Installation(vllm, python if python.exists() else vllm.with_name("python3"), found)


def _built_for(venv: Path) -> Device:
    try:
        stamp = msgspec.json.decode((venv / STAMP).read_bytes(), type=dict[str, object])
    except (OSError, msgspec.DecodeError):
        return Device.CUDA if Path("/dev/nvidiactl").exists() else Device.CPU
    return Device.CUDA if stamp.get("device") == "cuda" else Device.CPU
