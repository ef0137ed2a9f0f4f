"""How busy the machine is: CPU, memory, and the GPU where there is one."""

from __future__ import annotations

import logging

import psutil
import torch

log = logging.getLogger(__name__)


class Usage:
    """`read` gives values by the names of `training.metrics.TABLE`."""

    def __init__(self) -> None:
        self._process = psutil.Process()
        self._has_gpu = torch.cuda.is_available()
        self._knows_utilization = self._has_gpu
        psutil.cpu_percent(interval=None)

    def read(self) -> dict[str, float]:
        """Since the last call where it is a share of time."""
        values = {
            "cpu_ratio": psutil.cpu_percent(interval=None) / 100,
            "memory_bytes": float(self._process.memory_info().rss),
        }
        if self._has_gpu:
            free, total = torch.cuda.mem_get_info()
            values["gpu_memory_ratio"] = 1 - free / total
        if self._knows_utilization:
            try:
                values["gpu_utilization_ratio"] = torch.cuda.utilization() / 100
            except (ModuleNotFoundError, RuntimeError) as error:  # NVML is not there
                self._knows_utilization = False
                log.warning("GPU use is not measured: %s", error)
        return values
