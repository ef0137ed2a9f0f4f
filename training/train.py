"""The command that trains: `python training/train.py --config config.yaml` (also as `python train.py`).

Alone, or under torchrun, accelerate launch or deepspeed. Exit codes: 0 trained to the end; 1 the training
failed; 2 the configuration, the data or this machine do not allow it; 128 + N stopped by signal N, with a
checkpoint from which the same command goes on.
"""

from __future__ import annotations

import logging
import os
import sys
from pathlib import Path

if __package__ in (
    None,
    "",
):  # run as a script: its folder is first on the path, and its files are no modules
    sys.path[0] = str(Path(__file__).resolve().parents[1])

from training.interpreter import require_trainer

log = logging.getLogger("training")
REFUSED = 2


def main(script: Path = Path(__file__)) -> int:
    """Read the command line, do it, and return the exit code."""
    require_trainer(script)
    import msgspec

    from training.config.command_line import help_text, parse_arguments
    from training.config.load import load, resolved
    from training.config.problems import ConfigError

    try:
        line = parse_arguments(sys.argv[1:])
        if line.help:
            sys.stdout.write(help_text())
            return 0
        environment = dict(os.environ)  # noqa: TID251 (the entry point)
        if line.sweep is not None:
            from training.sweep.run import sweep

            return sweep(line, environment, script)
        loaded = load(line, environment)
    except ConfigError as error:
        sys.stderr.write(f"{error}\n")
        return REFUSED
    if line.check:
        sys.stdout.write(msgspec.json.format(msgspec.json.encode(resolved(loaded.config))).decode() + "\n")
        return 0
    from training.run.guarded import run_guarded

    return run_guarded(loaded)


if __name__ == "__main__":
    sys.exit(main())
