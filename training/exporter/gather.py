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
    for name, same, value in _whole(model, wanted, first=first):
        if not first:
            continue
        if same not in copies:  # tied weights stay one
            kind = dtype if dtype is not None and value.is_floating_point() else value.dtype
            copies[same] = value.detach().to(device="cpu", dtype=kind, copy=True)
        found[name] = copies[same]
    return found if first else None


def _whole(model: Any, wanted: Wanted, *, first: bool) -> Iterator[tuple[str, int, Any]]:
    """Name, what is equal for tied weights, and the whole tensor, which is valid until the next one."""
    plain = extract_model_from_parallel(model)
    if is_deepspeed_zero3_enabled():
        yield from _of_zero3(plain, wanted)
    elif _is_sharded(model):
        yield from _of_fsdp(model, wanted)
    elif first:
        yield from (
            (name, value.data_ptr(), value) for name, value in plain.state_dict().items() if wanted(name)
        )


def _is_sharded(model: Any) -> bool:
    from torch.distributed.fsdp import FSDPModule, FullyShardedDataParallel

    kinds = (FSDPModule, FullyShardedDataParallel)
    return torch.distributed.is_initialized() and any(isinstance(each, kinds) for each in model.modules())


def _of_fsdp(model: Any, wanted: Wanted) -> Iterator[tuple[str, int, Any]]:
    from torch.distributed.checkpoint.state_dict import StateDictOptions, get_model_state_dict

    options = StateDictOptions(full_state_dict=True, cpu_offload=True)
    whole = get_model_state_dict(model, options=options)
    yield from ((name, value.data_ptr(), value) for name, value in whole.items() if wanted(name))


def _of_zero3(plain: Any, wanted: Wanted) -> Iterator[tuple[str, int, Any]]:
    """Memory of a gathered parameter is used again for the next, so its own object says which are tied."""
    import deepspeed

    parameters = dict(plain.named_parameters(remove_duplicate=False))
    for name, parameter in parameters.items():
        if wanted(name):
            with deepspeed.zero.GatheredParameters([parameter]):
                yield name, id(parameter), parameter.data
    for name, value in plain.state_dict().items():
        if name not in parameters and wanted(name):
            yield name, id(value), value
