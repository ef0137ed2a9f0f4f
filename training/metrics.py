"""Every metric that a training run shows, in one table.

All are of the first process of the run (rank 0), served over HTTP by `training.run.exposition` at
`metrics.port` of the training configuration. Alerts and dashboards are built on these names, so a
change here is a change for operators. To add one, add a row and set it in `training.run.watching`.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

PREFIX = "changeover_training_"
DEFAULT_PORT = 9410
"""Where `/metrics` of a run is by default."""
MOVING_RATIO = 0.05
"""An epoch is moving if its mean loss differs by more than this from the epoch's before: |L - L'| / L'.
Operators want to be woken when three epochs running do."""


class Kind(StrEnum):
    GAUGE = "gauge"
    COUNTER = "counter"


@dataclass(frozen=True, slots=True)
class Metric:
    """`name` is without the prefix; a counter's ends in `_total`, as it is exposed."""

    name: str
    kind: Kind
    help: str

    @property
    def full_name(self) -> str:
        return PREFIX + self.name


def _gauge(name: str, text: str) -> Metric:
    return Metric(name, Kind.GAUGE, text)


def _counter(name: str, text: str) -> Metric:
    return Metric(name, Kind.COUNTER, text)


TABLE: tuple[Metric, ...] = (
    _gauge("loss", "Training loss, as last logged"),
    _gauge("grad_norm", "Norm of the gradient before clipping, as last logged"),
    _gauge("learning_rate", "Learning rate, as last logged"),
    _gauge("reward", "Mean reward of the last batch (GRPO)"),
    _gauge("tokens_per_second", "Tokens trained on per second, all processes, since the last log"),
    _counter("tokens_total", "Tokens trained on, all processes"),
    _gauge("step", "Optimizer steps done"),
    _gauge("steps_planned", "Optimizer steps that the run will have at its end"),
    _gauge("epoch", "Epochs done, with the part of the current one"),
    _gauge("epoch_loss", "Mean training loss of the last whole epoch"),
    _gauge("epoch_loss_change_ratio", "|L - L'| / L' of the last two whole epochs' mean losses"),
    _gauge("epochs_moving", "Consecutive epochs whose mean loss moved by more than 5 %"),
    _gauge("last_step_timestamp_seconds", "Unix time of the last optimizer step"),
    _gauge("last_checkpoint_timestamp_seconds", "Unix time of the last complete checkpoint; 0: none yet"),
    _gauge("running", "1 while the run trains, 0 before and after"),
    _gauge("processes", "Processes of the run (world size)"),
    _gauge("cpu_ratio", "Share of the machine's CPU time in use, 0 to 1"),
    _gauge("memory_bytes", "Resident memory of the first process"),
    _gauge("gpu_utilization_ratio", "Share of time the GPU computed, 0 to 1; absent without a GPU"),
    _gauge("gpu_memory_ratio", "Share of the GPU's memory in use, 0 to 1; absent without a GPU"),
    _gauge("clock_skew_seconds", "Largest difference between the processes' clocks, at the start"),
    _gauge("configuration_changed", "1 if a configuration file changed since the run read it"),
    _gauge("exporter_pending", "Checkpoints that wait to be published"),
    _gauge("exporter_last_version", "Number of the version published last; absent before the first"),
    _counter("exporter_published_total", "Versions published"),
    _counter("exporter_failures_total", "Attempts to publish that failed"),
    _gauge("rl_version", "Version of the store that the last samples are of (RL through the gateway)"),
    _gauge("rl_swap_seconds", "From the published version until every engine served it, the last one"),
    _gauge("rl_k3", "k3 between trainer and engines on the last samples"),
    _gauge("rl_logp_difference", "Mean difference of log-probabilities between trainer and engines"),
    _gauge("rl_importance_ratio", "Mean importance ratio of trainer to engines"),
    _counter("rl_alarms_total", "Steps at which trainer and engines differed by more than rl.drift_* allow"),
)
