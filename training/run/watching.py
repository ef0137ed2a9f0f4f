"""What is written and counted while a run trains: train.log, metrics, changes of configuration files.

A TrainerCallback of every process; all but the first only keep their own log. Nothing here may end the
training: it reads, and writes logs.
"""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Mapping
from typing import Any

from transformers import TrainerCallback

from training.run.config_watch import ConfigWatch
from training.run.epochs import Epoch, Epochs
from training.run.exposition import Metrics
from training.run.usage import Usage

log = logging.getLogger("training")
_GAUGES: Mapping[str, str] = {
    "loss": "loss",
    "grad_norm": "grad_norm",
    "learning_rate": "learning_rate",
    "reward": "reward",
}
"""From the trainer's names to ours."""
USAGE_EVERY_S = 2.0
_SHOWN = ("loss", "eval_loss", "reward", "grad_norm", "learning_rate", "mean_token_accuracy", "kl")


class Watcher(TrainerCallback):
    """Made for one run. `losses` and `tokens` are for the result at its end."""

    def __init__(self, metrics: Metrics, watch: ConfigWatch, usage: Usage) -> None:
        self._metrics = metrics
        self._watch = watch
        self._usage = usage
        self._epochs = Epochs()
        self._epoch_ends = False
        self._logged_step = 0
        self._tokens_at = (0.0, 0.0)
        self._next_usage = 0.0
        self.losses: list[float] = []
        """The first and the newest."""
        self.eval_loss: float | None = None
        self.tokens = 0.0

    def on_train_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """The trainer's event."""
        self._logged_step = state.global_step
        self._tokens_at = (0.0, time.monotonic())
        self._metrics.set("running", 1)
        self._metrics.set("steps_planned", state.max_steps)
        self._metrics.set("step", state.global_step)
        log.info("training from step %d to %d", state.global_step, state.max_steps)

    def on_train_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """The trainer's event."""
        if self._epoch_ends:
            self._close_epoch()
        self._metrics.set("running", 0)

    def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """The trainer's event: after each optimizer step."""
        now = time.monotonic()
        self._metrics.set("step", state.global_step)
        self._metrics.set("epoch", state.epoch or 0.0)
        self._metrics.set("last_step_timestamp_seconds", time.time_ns() / 1e9)
        for path in self._watch.look(now):
            log.warning("%s changed: the run goes on with what it read at its start", path)
            self._metrics.set("configuration_changed", 1)
        if now >= self._next_usage:
            self._next_usage = now + USAGE_EVERY_S
            for name, value in self._usage.read().items():
                self._metrics.set(name, value)

    def on_epoch_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> Any:
        """The trainer's event. The epoch's last steps are logged now, so that its mean is whole."""
        if self._logged_step == state.global_step:
            self._close_epoch()
        else:
            self._epoch_ends = True
            control.should_log = True
        return control

    def on_log(self, args: Any, state: Any, control: Any, logs: Any = None, **kwargs: Any) -> None:
        """The trainer's event: numbers for people, the mean since the last time."""
        logs = {key: float(value) for key, value in (logs or {}).items() if isinstance(value, int | float)}
        if "eval_loss" in logs:
            self.eval_loss = logs["eval_loss"]
        loss = logs.get("loss")
        if loss is not None:
            self._add_loss(loss, state.global_step)
        for theirs, ours in _GAUGES.items():
            if theirs in logs:
                self._metrics.set(ours, logs[theirs])
        rate = self._add_tokens(logs)
        shown = [f"{key}={logs[key]:.6g}" for key in _SHOWN if key in logs]
        if shown:
            speed = f" tokens_per_second={rate:.0f}" if rate is not None else ""
            step = f"step {state.global_step}/{state.max_steps} epoch {state.epoch or 0:.2f}"
            log.info("%s %s%s", step, " ".join(shown), speed)

    def on_save(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """The trainer's event: a checkpoint was written."""
        self._metrics.set("last_checkpoint_timestamp_seconds", time.time_ns() / 1e9)
        log.info("checkpoint-%d written", state.global_step)

    def _add_loss(self, loss: float, step: int) -> None:
        if not math.isfinite(loss):
            log.error("the loss is %s at step %d: lower training.lr, or look at the data", loss, step)
        self.losses = [*self.losses[:1], loss]
        self._epochs.add(loss, max(1, step - self._logged_step))
        self._logged_step = step
        if self._epoch_ends:
            self._close_epoch()

    def _close_epoch(self) -> None:
        self._epoch_ends = False
        epoch = self._epochs.end()
        if epoch is not None:
            self._show_epoch(epoch)

    def _show_epoch(self, epoch: Epoch) -> None:
        self._metrics.set("epoch_loss", epoch.mean_loss)
        self._metrics.set("epochs_moving", epoch.moving)
        change = ""
        if epoch.change_ratio is not None:
            self._metrics.set("epoch_loss_change_ratio", epoch.change_ratio)
            change = f", {epoch.change_ratio:.1%} from the one before ({epoch.moving} moving in a row)"
        log.info("epoch done: mean loss %.6g%s", epoch.mean_loss, change)

    def _add_tokens(self, logs: Mapping[str, float]) -> float | None:
        """Tokens per second since the last time; None if the trainer does not say how many it saw."""
        if "num_tokens" not in logs or "loss" not in logs:
            return None
        now = time.monotonic()
        before, since = self._tokens_at
        self._tokens_at = (logs["num_tokens"], now)
        new = max(0.0, logs["num_tokens"] - before)
        self.tokens += new
        self._metrics.add("tokens_total", new)
        rate = new / max(now - since, 1e-9)
        self._metrics.set("tokens_per_second", rate)
        return rate
