"""What this process runs on and among how many. `detect` needs torch; the rest is plain data."""

from __future__ import annotations

import importlib.util
import os
from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Machine:
    """Facts that decide what can be done."""

    gpus: int = 0
    """That this process can see."""
    has_bf16: bool = True
    """Whether the GPU (or the CPU) computes in bfloat16."""
    world_size: int = 1
    rank: int = 0
    local_rank: int = 0
    has_deepspeed: bool = False


def ranks(environment: Mapping[str, str]) -> tuple[int, int, int]:
    """World size, rank and local rank as torchrun, accelerate and deepspeed set them."""
    world = int(environment.get("WORLD_SIZE", "1"))
    rank = int(environment.get("RANK", "0"))
    return world, rank, int(environment.get("LOCAL_RANK", "0"))


def detect() -> Machine:
    """This process, as it was launched."""
    import torch

    world, rank, local_rank = ranks(os.environ)  # noqa: TID251 (an entry point of the trainer)
    gpus = torch.cuda.device_count() if torch.cuda.is_available() else 0
    return Machine(
        gpus=gpus,
        has_bf16=torch.cuda.is_bf16_supported() if gpus else True,
        world_size=world,
        rank=rank,
        local_rank=local_rank,
        has_deepspeed=importlib.util.find_spec("deepspeed") is not None,
    )
