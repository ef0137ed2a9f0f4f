"""How the mean loss moves from epoch to epoch. Pure.

Operators want to be woken when it moves by more than 5 % for three epochs running: here it is counted, an
alert on `changeover_training_epochs_moving` does the rest.
"""

from __future__ import annotations

from dataclasses import dataclass

from training.metrics import MOVING_RATIO


@dataclass(frozen=True, slots=True)
class Epoch:
    """What is known after a whole epoch."""

    mean_loss: float
    change_ratio: float | None
    """|L - L'| / |L'|; None for the first epoch, and where L' is 0."""
    moving: int
    """Epochs in a row, this one included, that changed by more than MOVING_RATIO."""


class Epochs:
    """Adds up losses until an epoch ends."""

    def __init__(self) -> None:
        self._sum = 0.0
        self._steps = 0
        self._last: Epoch | None = None

    def add(self, mean_loss: float, steps: int) -> None:
        """The mean loss of the last so many steps."""
        self._sum += mean_loss * steps
        self._steps += steps

    def end(self) -> Epoch | None:
        """The epoch is over; None if nothing was added since the last."""
        if not self._steps:
            return None
        mean = self._sum / self._steps
        self._sum, self._steps = 0.0, 0
        ratio, moving = None, 0
        if self._last is not None and self._last.mean_loss:
            ratio = abs(mean - self._last.mean_loss) / abs(self._last.mean_loss)
            moving = self._last.moving + 1 if ratio > MOVING_RATIO else 0
        self._last = Epoch(mean, ratio, moving)
        return self._last
