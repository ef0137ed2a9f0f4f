"""An adapter merged into its model, from gathered tensors: pure arithmetic on a state dict of peft's names.

W' = W + s * B A, as `peft.tuners.lora.Linear.get_delta_weight`. The running model is not touched, so merging
costs it no precision. What is not a plain low-rank adapter of linear layers is refused.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

ADAPTER = "default"
_PREFIX, _BASE = "base_model.model.", ".base_layer"
_UNKNOWN = ("lora_embedding_", "lora_magnitude_vector", "modules_to_save", "lora_bias")


class CannotMerge(ValueError):
    """This kind of adapter is published alone (`export.weights: adapter`), not merged."""


def scalings(model: Any) -> dict[str, float]:
    """Of each module with an adapter, by its name. `model`: peft's. Raises CannotMerge."""
    from peft.tuners.lora import Linear, LoraLayer

    found = {}
    for name, module in model.named_modules():
        if isinstance(module, Linear) and module.fan_in_fan_out:
            raise CannotMerge(f"{name} keeps its weights transposed: set export.weights to adapter")
        if isinstance(module, LoraLayer):
            found[name] = float(module.scaling[ADAPTER])
    return found


def is_adapter_tensor(name: str) -> bool:
    """Whether it belongs to the adapter rather than to the model."""
    return ".lora_" in name or "modules_to_save" in name


def merged(tensors: Mapping[str, Any], scaling: Mapping[str, float], dtype: Any) -> dict[str, Any]:
    """The model's own state dict with the adapter in it.

    Args:
        tensors: all of peft's model, in float32.
        scaling: `scalings` of the model.
        dtype: torch's number type of the result.

    Raises:
        CannotMerge: an adapter of another kind.
    """
    odd = next((name for name in tensors if any(part in name for part in _UNKNOWN)), None)
    if odd is not None:
        raise CannotMerge(f"{odd} cannot be merged: set export.weights to adapter")
    result = {}
    for name, value in tensors.items():
        if is_adapter_tensor(name):
            continue
        module = name.removesuffix(f"{_BASE}.weight")
        if name != module and module in scaling:
            low = tensors[f"{module}.lora_A.{ADAPTER}.weight"]
            high = tensors[f"{module}.lora_B.{ADAPTER}.weight"]
            value = value + scaling[module] * (high @ low)
        own = name.removeprefix(_PREFIX).replace(f"{_BASE}.", ".")
        result[own] = value.to(dtype) if value.is_floating_point() else value
    return result
