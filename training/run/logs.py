"""`logs/train.log` and `logs/error.log`.

train.log has everything from INFO on, libraries and their warnings included, and is bounded; error.log
has errors only, so it stays empty in a good run. What an earlier run left in it is moved to error.log.1.
"""

from __future__ import annotations

import logging
import sys
from logging.handlers import RotatingFileHandler
from pathlib import Path

TRAIN, ERROR = "train.log", "error.log"
MAX_BYTES = 50 * 1024 * 1024
KEPT = 3
"""Older parts of train.log."""
FORMAT = "%(asctime)s %(levelname)s %(name)s rank=%(rank)d %(message)s"


class _Rank(logging.Filter):
    """Puts the process's rank into each record."""

    def __init__(self, rank: int) -> None:
        super().__init__()
        self._rank = rank

    def filter(self, record: logging.LogRecord) -> bool:
        record.rank = self._rank
        return True


def start_logs(folder: Path, rank: int) -> None:
    """Send this process's log to the files, and what concerns people to standard error. Raises OSError."""
    folder.mkdir(parents=True, exist_ok=True)
    error_log = folder / ERROR
    if rank == 0 and error_log.exists() and error_log.stat().st_size:
        error_log.replace(folder / f"{ERROR}.1")
    train: logging.Handler = (
        RotatingFileHandler(folder / TRAIN, maxBytes=MAX_BYTES, backupCount=KEPT)
        if rank == 0
        else logging.FileHandler(folder / f"train-{rank}.log", mode="w")
    )
    errors = logging.FileHandler(error_log)
    errors.setLevel(logging.ERROR)
    screen = logging.StreamHandler(sys.stderr)
    screen.setLevel(logging.INFO if rank == 0 else logging.ERROR)
    screen.addFilter(lambda record: record.name.startswith("training") or record.levelno >= logging.ERROR)
    root = logging.getLogger()
    root.setLevel(logging.INFO)
    for handler in (train, errors, screen):
        handler.addFilter(_Rank(rank))
        handler.setFormatter(logging.Formatter("%(message)s" if handler is screen else FORMAT))
        root.addHandler(handler)
    logging.captureWarnings(True)
    for noisy in ("httpx", "httpcore", "urllib3", "fsspec", "matplotlib"):
        logging.getLogger(noisy).setLevel(logging.WARNING)


def redirect_transformers() -> None:
    """Let transformers and TRL log to our files instead of to the screen. Needs transformers."""
    from transformers.utils import logging as theirs

    theirs.disable_default_handler()
    theirs.enable_propagation()
