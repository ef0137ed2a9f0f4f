"""How a run ended, as `result.json` in its folder: its presence means that the run is finished."""

from __future__ import annotations

from pathlib import Path

import msgspec

RESULT = "result.json"


class Result(msgspec.Struct, frozen=True):
    """Losses are means over the steps between two log lines."""

    steps: int
    epochs: float
    loss_first: float | None
    loss_last: float | None
    eval_loss: float | None
    """On the records kept apart; None without any."""
    seconds: float
    tokens: float
    """Trained on since the run began or went on."""


def save_result(output: Path, result: Result) -> None:
    """Whole or not at all."""
    partial = output / f".{RESULT}.partial"
    partial.write_bytes(msgspec.json.format(msgspec.json.encode(result)) + b"\n")
    partial.replace(output / RESULT)


def read_result(output: Path) -> Result | None:
    """None: the run did not finish."""
    try:
        return msgspec.json.decode((output / RESULT).read_bytes(), type=Result)
    except (OSError, msgspec.DecodeError):
        return None
