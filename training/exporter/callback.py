"""The one line to add to a TRL or transformers run: `trainer.add_callback(ExporterCallback(settings))`.

On every process, as gathering shards is collective; the first one publishes. An exception in a callback
ends a training, so whatever fails here is logged and counted, and the training goes on.
"""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from transformers import TrainerCallback

from training.exporter.into_store import default_run, into_store
from training.exporter.publisher import Nowhere, Publisher, Sink
from training.exporter.settings import ExportSettings
from training.exporter.weights import Source
from training.exporter.when import When

log = logging.getLogger("training.exporter")


class ExporterCallback(TrainerCallback):
    """Publishes as `ExportSettings` say. Made for one run."""

    def __init__(self, settings: ExportSettings, sink: Sink | None = None) -> None:
        self._settings = settings
        self._sink = sink or Nowhere()
        self._when = When(settings)
        self._source: Source | None = None
        self._publisher: Publisher | None = None
        self._metrics: dict[str, float] = {}
        self.stalls: list[float] = []
        """Seconds that the training waited for each of the last copies."""

    def on_train_begin(self, args: Any, state: Any, control: Any, model: Any = None, **kwargs: Any) -> None:
        """The trainer's event."""
        settings = self._settings
        try:
            self._source = Source(model, kwargs.get("processing_class"), settings.weights, settings.dtype)
            if state.is_world_process_zero:
                self._publisher = _publisher(settings, Path(args.output_dir), self._sink)
                self._publisher.start()
                log.info("publishing to %s as %s, on %s", settings.store, settings.model, settings.on.value)
        except Exception:
            log.exception("nothing will be published by this run")
            self._sink.add("exporter_failures_total")
            self._source = None

    def on_save(self, args: Any, state: Any, control: Any, model: Any = None, **kwargs: Any) -> None:
        """The trainer's event: a checkpoint was written. Its weights are those in memory."""
        if self._when.saved(state.global_step):
            self._export(model, state)

    def on_step_end(self, args: Any, state: Any, control: Any, model: Any = None, **kwargs: Any) -> None:
        """The trainer's event."""
        if self._when.stepped(state.global_step):
            self._export(model, state)

    def on_log(
        self, args: Any, state: Any, control: Any, model: Any = None, logs: Any = None, **kwargs: Any
    ) -> None:
        """The trainer's event: numbers of training and evaluation, on every process."""
        numbers = _numbers(logs or {})
        self._metrics.update(numbers)
        if self._when.measured(state.global_step, numbers):
            self._export(model, state)

    def on_train_end(self, args: Any, state: Any, control: Any, model: Any = None, **kwargs: Any) -> None:
        """The trainer's event: the last weights, then a bounded wait for what is under way."""
        if self._when.ended(state.global_step):
            self._export(model, state)
        if self._publisher is not None:
            self._publisher.close(self._settings.finish_s)
            self._publisher = None

    def _export(self, model: Any, state: Any) -> None:
        if self._source is None:
            return
        start = time.monotonic()
        try:
            if self._publisher is not None:
                self._publisher.make_room()
            shown = {key: value for key, value in self._metrics.items() if "/" not in key}
            snapshot = self._source.take(
                model, state.global_step, shown, first=bool(state.is_world_process_zero)
            )
            if self._publisher is not None and snapshot is not None:
                self._publisher.put(snapshot)
        except Exception:
            log.exception("the weights of step %d cannot be copied", state.global_step)
            self._sink.add("exporter_failures_total")
        self.stalls = [*self.stalls[-99:], time.monotonic() - start]


def _publisher(settings: ExportSettings, output: Path, sink: Sink) -> Publisher:
    staging = Path(settings.staging) if settings.staging is not None else output / "export"
    return Publisher(settings, settings.run or default_run(output), staging, into_store(settings), sink)


def _numbers(logs: Mapping[str, object]) -> dict[str, float]:
    return {
        key: float(value)
        for key, value in logs.items()
        if isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
    }
