"""Qualifies tiny models of many architectures, then swaps each and compares it with a cold start.

    python -m tests.oracle [--only llama,qwen3-moe] [--tensor-parallel 1,2] [--compiled] [--store FOLDER]

For each model and degree of tensor parallelism: `changeover qualify`'s trial; then an engine on A, with warm
prefixes, takes weights C (never seen before) by the way that its record allows, and must answer bit for bit
like an engine that was started on C. Half an hour on two cores for everything.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

from backends.qualify.compare import Heard, compare
from backends.qualify.judge import passes
from backends.qualify.oracle import Trial, combination_for, in_words, qualify
from backends.qualify.questions import questions_for
from backends.qualify.record import Record
from backends.qualify.records import find
from backends.qualify.scratch import Scratch, scratch_engine
from backends.settings import EngineSettings
from backends.vllm.install import find_engine
from checkpoints.store.contract import Files
from checkpoints.store.open import open_files
from tests.oracle.models import CONTEXT, MODELS, Model

LIMIT_S = 3600.0
SEED_A, SEED_C = 1, 2


@dataclass
class Tally:
    """What the last line says."""

    models: set[str]
    qualified: int = 0
    restarted: int = 0
    equal: int = 0
    wrong: int = 0
    unexpected: int = 0

    def last_line(self) -> str:
        return (
            f"architectures={len(self.models)} qualified_in_place={self.qualified} "
            f"restarted={self.restarted} equal_to_cold={self.equal} wrong={self.wrong}"
        )


class Run:
    """All of it: one engine at a time while it qualifies, two at the swap."""

    def __init__(self, root: Path, files: Files, *, eager: bool) -> None:
        self._root, self._files, self._eager = root, files, eager
        self._environment = dict(os.environ)  # noqa: TID251 (engines inherit it)
        self._began = time.monotonic()
        self.tally = Tally(set())

    def say(self, line: str) -> None:
        print(f"{time.monotonic() - self._began:6.0f} s  {line}", flush=True)

    async def one(self, model: Model, tensor_parallel: int) -> None:
        """Qualify, swap, compare."""
        self.say(f"{model.name}, tensor parallel {tensor_parallel}")
        folders = [self._folder(model, seed, name) for seed, name in ((SEED_A, "a"), (SEED_C, "c"))]
        scratch = self._scratch(model, tensor_parallel)
        record = find(self._files, combination_for(folders[0], scratch)) or await qualify(
            folders[0], scratch.settings, environment=self._environment, files=self._files, report=self.say
        )
        self.say(f"{model.name}: {record.verdict}: {record.reason}")
        self._expect(model, record)
        await self._swap(model, scratch, record, *folders)

    async def _swap(self, model: Model, scratch: Scratch, record: Record, a: Path, c: Path) -> None:
        trial = Trial(scratch, questions_for(int(str(model.config["vocab_size"])), CONTEXT), self.say)
        async with asyncio.TaskGroup() as group:  # the two engines start beside each other
            swap = self._in_place(trial, a, c) if record.qualified else self._started(trial, c)
            swapped = group.create_task(swap, name="swapped")
            cold = group.create_task(self._started(trial, c), name="cold")
        difference = compare(swapped.result(), cold.result())
        right = passes(difference, record.floor)
        self.tally.models.add(model.name)
        self.tally.qualified += record.qualified
        self.tally.restarted += not record.qualified
        self.tally.equal += right
        self.tally.wrong += not right
        way = "in place" if record.qualified else "by a restart"
        self.say(f"{model.name}: swapped {way}, against a cold start: {in_words(difference)}")

    async def _in_place(self, trial: Trial, a: Path, c: Path) -> Heard:
        async with scratch_engine(trial.scratch, a) as running:
            await trial.listen(running)
            return await trial.reload(running, c)

    async def _started(self, trial: Trial, folder: Path) -> Heard:
        """A cold engine; a restart is one too: what it ran on before has left nothing."""
        async with scratch_engine(trial.scratch, folder) as running:
            return await trial.listen(running)

    def _expect(self, model: Model, record: Record) -> None:
        if model.trusted is not None and record.qualified is not model.trusted:
            self.tally.unexpected += 1
            self.say(f"UNEXPECTED: {model.name} was {'right' if model.trusted else 'wrong'} in place before")

    def _folder(self, model: Model, seed: int, name: str) -> Path:
        folder = self._root / model.name / name
        return folder if folder.exists() else model.write(folder, seed)

    def _scratch(self, model: Model, tensor_parallel: int) -> Scratch:
        settings = EngineSettings(
            model=str(self._root / model.name / "a"),
            served_name="oracle",
            replicas=1,
            tensor_parallel_size=tensor_parallel,
            kv_cache_gib=0.25,
            eager=self._eager,
        )
        return Scratch(settings, find_engine(self._environment, settings.device), self._environment)


async def run(arguments: argparse.Namespace, root: Path) -> Tally:
    """Every model that is asked for, with every degree of tensor parallelism."""
    names = arguments.only.split(",") if arguments.only else [model.name for model in MODELS]
    files = open_files(str(arguments.store or root / "store"), "oracle")
    oracle = Run(root, files, eager=not arguments.compiled)
    async with asyncio.timeout(LIMIT_S):
        for model in MODELS:
            for size in map(int, arguments.tensor_parallel.split(",")):
                if model.name in names:
                    await oracle.one(model, size)
    return oracle.tally


def main() -> int:
    """0 if every swap came out like a cold start, and every verdict as it was seen before."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument(
        "--only", metavar="NAMES", help="some of: " + ", ".join(model.name for model in MODELS)
    )
    parser.add_argument("--tensor-parallel", metavar="SIZES", default="1,2")
    parser.add_argument("--compiled", action="store_true")
    parser.add_argument("--store", type=Path, help="keep the records here, and use those that are here")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="co-oracle-") as name:
        tally = asyncio.run(run(arguments, Path(name)))
    print(tally.last_line())
    return 1 if tally.wrong or tally.unexpected else 0


if __name__ == "__main__":
    sys.exit(main())
