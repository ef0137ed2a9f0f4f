"""`python train.py --config config.yaml`: the command of training/train.py at the top of the project."""

from __future__ import annotations

import sys
from pathlib import Path

from training.train import main

if __name__ == "__main__":
    sys.exit(main(Path(__file__).resolve()))
