"""What the exporter costs a training: `python -m training.exporter.bench MODEL_DIR`.

Two runs of the same steps, without and with the callback (which publishes nothing), in turns, so that a slow
moment of the machine hits both; then one that publishes every `--every` steps. Ends with
`step_s=<x> with_exporter=<x> overhead=<x>% stall_s=<x> copy_s=<x> published=<n>`, medians; `copy_s` is a bare
copy of all weights in memory. Says nothing on a machine that does other work as well.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer, Trainer, TrainerCallback, TrainingArguments

from training.exporter.callback import ExporterCallback
from training.exporter.settings import ExportSettings, Moment, NumberType, ProbeIn

ROUNDS = 3
WARM_STEPS = 2


class Clock(TrainerCallback):
    """Seconds of each step, callbacks included: from one step's beginning to the next one's."""

    def __init__(self) -> None:
        self.steps: list[float] = []
        self._last: float | None = None

    def on_step_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """The trainer's event."""
        now = time.perf_counter()
        if self._last is not None:
            self.steps.append(now - self._last)
        self._last = now


def steps_of(folder: Path, model: Any, tokenizer: Any, count: int, *more: TrainerCallback) -> list[float]:
    """Train, and return the seconds of each step after the first few."""
    ids = torch.randint(3, 250, (2 * count, 64))
    clock = Clock()
    trainer = Trainer(
        model=model,
        args=TrainingArguments(
            str(folder), max_steps=count, per_device_train_batch_size=2, learning_rate=1e-6, report_to="none",
            save_strategy="no", logging_strategy="no", disable_tqdm=True, dataloader_pin_memory=False,
        ),
        train_dataset=[{"input_ids": row, "labels": row} for row in ids],
        processing_class=tokenizer,
        callbacks=[clock, *more],
    )  # fmt: skip
    trainer.train()
    return clock.steps[WARM_STEPS:]


def copy_s(model: Any) -> float:
    """A bare copy of all weights to main memory, in the type of the model's folder; the median of three."""
    times = []
    for _ in range(ROUNDS):
        start = time.perf_counter()
        kept = [
            value.detach().to(device="cpu", dtype=torch.bfloat16, copy=True) for value in model.parameters()
        ]
        times.append(time.perf_counter() - start)
        del kept
    return statistics.median(times)


def main() -> int:
    """The command line."""
    parser = argparse.ArgumentParser(prog="python -m training.exporter.bench", description=__doc__)
    parser.add_argument("model", type=Path, help="a folder in the Hugging Face layout")
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--every", type=int, default=5, help="steps between two versions")
    arguments = parser.parse_args()
    model = AutoModelForCausalLM.from_pretrained(arguments.model, dtype=torch.float32)
    tokenizer = AutoTokenizer.from_pretrained(arguments.model)
    plain: list[float] = []
    silent: list[float] = []
    with tempfile.TemporaryDirectory(prefix="co-bench-") as name:
        folder = Path(name)
        settings = ExportSettings(
            store=str(folder / "store"), model="bench", on=Moment.STEPS, every=10**9, probe=ProbeIn.OFF,
            finish_s=600, dtype=NumberType.BFLOAT16,
        )  # fmt: skip
        best = settings.model_copy(update={"on": Moment.BEST, "metric": "none"})
        for _ in range(ROUNDS):
            plain += steps_of(folder / "out", model, tokenizer, arguments.steps)
            silent += steps_of(folder / "out", model, tokenizer, arguments.steps, ExporterCallback(best))
        callback = ExporterCallback(settings.model_copy(update={"every": arguments.every}))
        steps_of(folder / "out", model, tokenizer, arguments.steps, callback)
        without, having = statistics.median(plain), statistics.median(silent)
        stall = statistics.median(callback.stalls)
        print(  # noqa: T201
            f"step_s={without:.4f} with_exporter={having:.4f} overhead={100 * (having / without - 1):.2f}% "
            f"stall_s={stall:.4f} copy_s={copy_s(model):.4f} published={len(callback.stalls)}"
        )
    return 0


if __name__ == "__main__":
    sys.exit(main())
