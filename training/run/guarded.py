"""Runs a session and turns whatever ends it into log lines and an exit code."""

from __future__ import annotations

import logging
import os
import sys
from pathlib import Path

from training.config.load import Loaded
from training.config.problems import ConfigError
from training.data.errors import DataError
from training.launch.errors import LaunchError
from training.launch.machine import detect, ranks
from training.rewards import RewardError
from training.run.logs import start_logs

log = logging.getLogger("training")
FAILED, REFUSED = 1, 2


def run_guarded(loaded: Loaded) -> int:
    """The exit code; see `training.train`."""
    _, rank, _ = ranks(os.environ)  # noqa: TID251 (an entry point)
    try:
        start_logs(Path(loaded.config.logs.folder), rank)
    except OSError as error:
        sys.stderr.write(f"logs.folder: {loaded.config.logs.folder} cannot be written: {error.strerror}\n")
        return REFUSED
    try:
        # Only now: importing the trainer takes seconds, and its warnings belong into the log.
        from training.run.session import run

        return run(loaded, detect())
    except (ConfigError, LaunchError, DataError, RewardError) as error:
        log.error("%s", error)  # noqa: TRY400 (people need the sentence, not the trace)
        return REFUSED
    except Exception:
        log.exception("the training failed")
        return FAILED
    finally:
        _leave()


def _leave() -> None:
    """Leave the group of processes, if one was joined, as torch asks."""
    torch = sys.modules.get("torch")
    if torch is not None and torch.distributed.is_available() and torch.distributed.is_initialized():
        torch.distributed.destroy_process_group()
