"""From a running model to a snapshot: which tensors are copied, and how they are written. Needs torch.

`take` is the only part of an export that the training waits for. Collective: every process calls it.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from accelerate.utils import extract_model_from_parallel

from training.exporter.folder import Surroundings, adapter_writer, surroundings, write_model
from training.exporter.gather import Tensors, copy_weights
from training.exporter.lora import is_adapter_tensor, merged, scalings
from training.exporter.settings import NumberType, Weights
from training.exporter.snapshot import Snapshot

_DTYPES = {
    NumberType.FLOAT32: torch.float32,
    NumberType.BFLOAT16: torch.bfloat16,
    NumberType.FLOAT16: torch.float16,
}


class Source:
    """One run's weights."""

    def __init__(self, model: Any, tokenizer: Any, wanted: Weights, dtype: NumberType) -> None:
        """Every process makes one, of the model as it is trained. Raises ValueError, CannotMerge."""
        plain = extract_model_from_parallel(model)
        self._adapted = _is_adapted(plain)
        if wanted is Weights.ADAPTER and not self._adapted:
            raise ValueError("export.weights is adapter, but this run trains no adapter")
        if wanted is Weights.FULL and self._adapted:
            raise ValueError("export.weights is full, but this run trains an adapter: say merged or adapter")
        self._alone = wanted is Weights.ADAPTER
        self._scaling = scalings(plain) if self._adapted and not self._alone else {}
        self._dtype = _DTYPES.get(dtype)
        base = plain.get_base_model() if self._adapted else plain
        self._around: Surroundings | None = (
            None if self._alone else surroundings(base, tokenizer, self._dtype)
        )

    def take(self, model: Any, step: int, metrics: Mapping[str, float], *, first: bool) -> Snapshot | None:
        """Copies of the weights as they are now, on the first process; None on the others."""
        plain = extract_model_from_parallel(model)
        if self._alone:
            tensors = copy_weights(model, self._dtype, is_adapter_tensor, first=first)
            if tensors is None:
                return None
            return Snapshot(step, "adapter", adapter_writer(plain, tensors), metrics)
        around = self._around
        assert around is not None
        dtype = torch.float32 if self._adapted else around.dtype
        tensors = copy_weights(model, dtype, lambda name: True, first=first)
        if tensors is None:
            return None
        write = functools.partial(_write, around, tensors, self._scaling, self._adapted)
        return Snapshot(step, "merged" if self._adapted else "full", write, metrics)


def _write(
    around: Surroundings, tensors: Tensors, scaling: Mapping[str, float], adapted: bool, folder: Path
) -> None:
    own = merged(tensors, scaling, around.dtype) if adapted else tensors
    write_model(around, own, folder)


def _is_adapted(plain: Any) -> bool:
    if "peft" not in sys.modules:
        return False
    from peft import PeftModel

    return isinstance(plain, PeftModel)
