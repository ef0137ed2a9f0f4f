"""train.log has everything, error.log only errors, also those of other processes and libraries."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

PROGRAM = """
import logging, warnings
from pathlib import Path
from training.run.logs import start_logs
for rank in (0, 1):
    start_logs(Path("logs"), rank)
    logging.getLogger("training").info("going on as %d", rank)
logging.getLogger("library").info("chatter")
warnings.warn("careful")
"""


def program(folder: Path, more: str = "") -> str:
    ended = subprocess.run(
        [sys.executable, "-c", PROGRAM + more],
        cwd=folder,
        env={"PYTHONPATH": str(Path(__file__).parents[3])},
        capture_output=True,
        text=True,
        check=True,
    )
    return ended.stderr


def test_a_good_run_leaves_the_error_log_empty(tmp_path: Path) -> None:
    shown = program(tmp_path)
    train = (tmp_path / "logs" / "train.log").read_text()
    assert "INFO training rank=0 going on as 0" in train
    assert "chatter" in train
    assert "careful" in train
    assert (tmp_path / "logs" / "error.log").read_text() == ""
    assert "going on as 0" in shown
    assert "chatter" not in shown


def test_errors_are_in_their_own_log_and_earlier_ones_are_moved_aside(tmp_path: Path) -> None:
    program(tmp_path, "logging.getLogger('library').error('bad')")
    assert "bad" in (tmp_path / "logs" / "error.log").read_text()
    program(tmp_path)
    assert (tmp_path / "logs" / "error.log").read_text() == ""
    assert "bad" in (tmp_path / "logs" / "error.log.1").read_text()
