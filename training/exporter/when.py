"""When to publish. Pure: steps and numbers in, a decision out."""

from __future__ import annotations

import math
from collections.abc import Mapping

from training.exporter.settings import ExportSettings, Moment


class When:
    """Decides for one run; remembers the best metric and the step that was chosen last."""

    def __init__(self, settings: ExportSettings) -> None:
        self._moment = settings.on
        self._every = settings.every
        self._metric = settings.metric
        self._sign = 1.0 if settings.greater_is_better else -1.0
        self._best = -math.inf
        self._chosen: int | None = None

    def saved(self, step: int) -> bool:
        """A checkpoint was written after this optimizer step."""
        return self._moment is Moment.SAVE and self._choose(step)

    def stepped(self, step: int) -> bool:
        """This optimizer step is done."""
        return self._moment is Moment.STEPS and step % self._every == 0 and self._choose(step)

    def measured(self, step: int, metrics: Mapping[str, object]) -> bool:
        """The trainer tells numbers after this step. Numbers that are none never are the best."""
        value = metrics.get(self._metric)
        if self._moment is not Moment.BEST or not isinstance(value, int | float) or not math.isfinite(value):
            return False
        if self._sign * value <= self._best:
            return False
        self._best = self._sign * value
        return self._choose(step)

    def ended(self, step: int) -> bool:
        """The training is over: its last weights are published too, except where only the best are."""
        return self._moment is not Moment.BEST and step > 0 and self._choose(step)

    def _choose(self, step: int) -> bool:
        if self._chosen is not None and step <= self._chosen:
            return False
        self._chosen = step
        return True
