"""Marks checkpoints complete once every process has written its part."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

from transformers import TrainerCallback

from training.run.checkpoints import mark_complete
from training.run.processes import wait_for_all

log = logging.getLogger("training")


class Completer(TrainerCallback):
    """Comes before callbacks that read checkpoints, such as the exporter."""

    def on_save(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """The trainer's event, on every process: its own part of the checkpoint is written."""
        wait_for_all()
        if not state.is_world_process_zero:
            return
        checkpoint = Path(args.output_dir) / f"checkpoint-{state.global_step}"
        try:
            mark_complete(checkpoint)
        except OSError as error:
            log.error("%s cannot be completed and will not be resumed from: %s", checkpoint, error)  # noqa: TRY400
