"""The ends of a loop that only TRL's events show: the prepared model, metrics, and the last weights."""

from __future__ import annotations

import logging
from typing import Any

from transformers import TrainerCallback

from training.exporter.publisher import Sink
from training.exporter.settings import ExportSettings
from training.exporter.weights import Source
from training.rl.loop import Loop

log = logging.getLogger("training.rl")
_GAUGES = {
    "sampling/k3": "rl_k3",
    "sampling/sampling_logp_difference/mean": "rl_logp_difference",
    "sampling/importance_sampling_ratio/mean": "rl_importance_ratio",
    "policy/version": "rl_version",
    "policy/swap_s": "rl_swap_seconds",
}


class LoopCallback(TrainerCallback):
    """Made for one process of one run."""

    def __init__(self, loop: Loop, settings: ExportSettings, sink: Sink) -> None:
        self._loop = loop
        self._settings = settings
        self._sink = sink
        self._alarms = 0

    def on_train_begin(self, args: Any, state: Any, control: Any, model: Any = None, **kwargs: Any) -> None:
        """The trainer's event: the model is as it will be trained. Raises what forbids to publish it."""
        tokenizer = kwargs.get("processing_class")
        self._loop.source = Source(model, tokenizer, self._settings.weights, self._settings.dtype)

    def on_log(self, args: Any, state: Any, control: Any, logs: Any = None, **kwargs: Any) -> None:
        """The trainer's event."""
        for theirs, ours in _GAUGES.items():
            value = (logs or {}).get(theirs)
            if isinstance(value, int | float):
                self._sink.set(ours, float(value))
        alarms = self._loop.totals().alarms
        for _ in range(alarms - self._alarms):
            self._sink.add("rl_alarms_total")
        self._alarms = alarms

    def on_train_end(self, args: Any, state: Any, control: Any, model: Any = None, **kwargs: Any) -> None:
        """The trainer's event: the last weights are served too. Raises PolicyRefused."""
        first = bool(state.is_world_process_zero)
        try:
            if self._loop.swapped is None or self._loop.swapped.step < state.global_step:
                self._loop.bring(model, state.global_step, first=first)
        finally:
            self._loop.close(first=first)
