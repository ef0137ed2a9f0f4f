"""What the processes of a run tell each other. Alone, each of these is nothing or the own value."""

from __future__ import annotations

from typing import Any

import torch


def _distributed() -> Any:
    """torch.distributed if several processes are joined, else None."""
    together = torch.distributed
    return together if together.is_available() and together.is_initialized() else None


def wait_for_all() -> None:
    """Until every process has come here."""
    together = _distributed()
    if together is not None:
        together.barrier()


def any_of(flag: bool, device: Any) -> bool:
    """Whether any process says so. Every process must ask, in the same order of all that they ask."""
    together = _distributed()
    if together is None:
        return flag
    votes = torch.tensor([1 if flag else 0], device=device)
    together.all_reduce(votes, op=together.ReduceOp.MAX)
    return bool(votes.item())


def gather_numbers(own: float, device: Any) -> list[float]:
    """Everyone's number, by rank."""
    together = _distributed()
    if together is None:
        return [own]
    numbers = [torch.zeros(1, dtype=torch.float64, device=device) for _ in range(together.get_world_size())]
    together.all_gather(numbers, torch.tensor([own], dtype=torch.float64, device=device))
    return [float(each.item()) for each in numbers]
