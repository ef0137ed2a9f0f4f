"""Copies of a model's weights in main memory, whole, on the first process. Needs torch.

Collective: every process of the run calls it at the same step. Plain and DDP models are copied as they are;
FSDP's shards are gathered by torch's own state dict, as accelerate does; those of ZeRO-3 one parameter at a
time. The first process gets the copies, the others nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import torch
from accelerate.utils import extract_model_from_parallel
from transformers.integrations import is_deepspeed_zero3_enabled

Tensors = dict[str, Any]
Wanted = Callable[[str], bool]


def copy_weights(model: Any, dtype: Any, wanted: Wanted, *, first: bool) -> Tensors | None:
    """The tensors of the state dict whose names are wanted.

    Args:
        dtype: torch's number type that floating-point tensors are copied in; None: as they are.
        first: this is the first process, which gets them; the others get None.
    """
    copies: dict[int, Any] = {}
    found: Tensors = {}
    for name, value in _whole(model, wanted, first=first):
        if not first:
            continue
        place = value.data_ptr()
        if place not in copies:  # tied weights stay one
            kind = dtype if dtype is not None and value.is_floating_point() else value.dtype
            copies[place] = value.detach().to(device="cpu", dtype=kind, copy=True)
        found[name] = copies[place]
    return found if first else None


def _whole(model: Any, wanted: Wanted, *, first: bool) -> Iterator[tuple[str, Any]]:
    plain = extract_model_from_parallel(model)
    if is_deepspeed_zero3_enabled():
        yield from _of_zero3(plain, wanted)
    elif _is_sharded(model):
        yield from _of_fsdp(model, wanted)
    elif first:
        yield from ((name, value) for name, value in plain.state_dict().items() if wanted(name))


def _is_sharded(model: Any) -> bool:
    from torch.distributed.fsdp import FSDPModule, FullyShardedDataParallel

    kinds = (FSDPModule, FullyShardedDataParallel)
    return torch.distributed.is_initialized() and any(isinstance(each, kinds) for each in model.modules())


def _of_fsdp(model: Any, wanted: Wanted) -> Iterator[tuple[str, Any]]:
    from torch.distributed.checkpoint.state_dict import StateDictOptions, get_model_state_dict

    options = StateDictOptions(full_state_dict=True, cpu_offload=True)
    whole = get_model_state_dict(model, options=options)
    yield from ((name, value) for name, value in whole.items() if wanted(name))


def _of_zero3(plain: Any, wanted: Wanted) -> Iterator[tuple[str, Any]]:
    from deepspeed.zero import GatheredParameters

    for name, parameter in plain.named_parameters(remove_duplicate=False):
        if wanted(name):
            with GatheredParameters([parameter]):
                yield name, parameter.data
    names = {name for name, _ in plain.named_parameters(remove_duplicate=False)}
    yield from (
        (name, value) for name, value in plain.state_dict().items() if name not in names and wanted(name)
    )
