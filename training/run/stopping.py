"""Ends a run in order on SIGTERM or SIGINT: the step is finished, a checkpoint written, then it stops.

Spot instances and schedulers send SIGTERM some seconds before they kill. The same command goes on later.
A second signal ends at once.
"""

from __future__ import annotations

import logging
import signal
from types import FrameType
from typing import Any

from transformers import TrainerCallback

from training.run.processes import any_of

log = logging.getLogger("training")
_SIGNALS = (signal.SIGTERM, signal.SIGINT)


class Stopper(TrainerCallback):
    """`signal` is the one that ended the run, None if it ended by itself."""

    def __init__(self) -> None:
        self.signal: int | None = None
        self._received: int | None = None

    def listen(self) -> None:
        """From now on; to be called from the main thread."""
        for number in _SIGNALS:
            signal.signal(number, self._on_signal)

    def _on_signal(self, number: int, frame: FrameType | None) -> None:
        if self._received is not None:
            signal.signal(number, signal.SIG_DFL)
            signal.raise_signal(number)
        self._received = number

    def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> Any:
        """The trainer's event. All processes stop at the same step, whichever got the signal."""
        if any_of(self._received is not None, args.device):
            self.signal = self._received or signal.SIGTERM
            log.info("stopping at step %d by signal %d; writing a checkpoint", state.global_step, self.signal)
            control.should_save = True
            control.should_training_stop = True
        return control
