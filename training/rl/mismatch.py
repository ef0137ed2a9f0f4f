"""How far the trainer's log-probabilities of a batch are from those that the engines sampled with. Pure.

The numbers are those of the probe (`checkpoints.probe.parity`): k3 estimates KL(engine || trainer) on the
engine's own samples, as they were drawn from it. An alarm names what usually is behind it.
"""

from __future__ import annotations

from collections.abc import Sequence

from checkpoints.probe.parity import Numbers, numbers

Row = Sequence[float | None]
CERTAIN = 10.0
"""Times the limit from which one step is enough for an alarm to be an error."""


def compare(trainer: Sequence[Row], engine: Sequence[Row]) -> Numbers | None:
    """Over all tokens that both have a number for; None: there are none."""
    pairs = [
        (ours, theirs)
        for mine, other in zip(trainer, engine, strict=True)
        for ours, theirs in zip(mine, other, strict=True)
        if ours is not None and theirs is not None
    ]
    if not pairs:
        return None
    return numbers([[ours for ours, _ in pairs]], [[theirs for _, theirs in pairs]])


class Drift:
    """Watches one run. A single step above the limits is told, a second in a row is drift."""

    def __init__(self, k3: float, mean: float, *, plain_sampling: bool) -> None:
        """`plain_sampling`: temperature and top_p are 1, so raw and processed log-probabilities agree."""
        self._k3 = k3
        self._mean = mean
        self._plain = plain_sampling
        self._in_a_row = 0
        self.alarms = 0

    @property
    def drifts(self) -> bool:
        """Two steps in a row were above the limits."""
        return self._in_a_row >= 2

    def judge(self, found: Numbers, version: int) -> str | None:
        """What to tell of this step; None: all is well."""
        worst = max(found.k3 / self._k3, found.mean / self._mean)
        if worst <= 1.0 and not found.not_finite:
            self._in_a_row = 0
            return None
        self._in_a_row += 2 if worst > CERTAIN else 1
        self.alarms += 1
        return (
            f"trainer and engines differ on version {version}: k3 {found.k3:.4g} (limit {self._k3:g}), "
            f"mean |dlogp| {found.mean:.4g} (limit {self._mean:g}), max {found.max:.3g}, {found.not_finite} "
            f"not finite. {self._hint(worst)}"
        )

    def _hint(self, worst: float) -> str:
        if not self._plain:
            return (
                "Sampling has a temperature or top_p other than 1: do the engines run with "
                "--logprobs-mode processed_logprobs?"
            )
        if worst > CERTAIN:
            return (
                "So much is no rounding: other weights, a stale cache or another tokenizer. "
                "`changeover verify VERSION --against URL` names the cause."
            )
        return "Engines of lower precision (engine.dtype, quantisation) or a stale tensor look like this."
