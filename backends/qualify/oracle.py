"""The trial itself: two or three scratch engines, one after the other, and what is compared between them.

Started on A: cold answers; A again in place; B in place; A in place. Started on B: cold answers; A in place.
Each question is asked twice, so that prefixes are warm whenever weights change. Where a number differs, a
third engine, started on B as well, shows how far two cold starts lie apart.
"""

from __future__ import annotations

import asyncio
import getpass
import socket
import tempfile
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path

import msgspec

from backends.models.resolve import check_folder
from backends.qualify.combination import Combination
from backends.qualify.compare import Difference, Heard, compare, compare_batches
from backends.qualify.judge import Check, Verdict, checked, checked_batches, judge, passes
from backends.qualify.perturb import write_perturbed
from backends.qualify.questions import Questions, listen_to, questions_for, read_vocabulary
from backends.qualify.record import SCHEMA, Record
from backends.qualify.records import keep
from backends.qualify.scratch import Running, Scratch, ScratchFailed, scratch_engine
from backends.qualify.surroundings import combination_of, surroundings_of
from backends.settings import EngineSettings
from backends.vllm.install import Installation, find_engine
from backends.vllm.reload import ReloadFailed, ReloadTimings, reload_in_place
from checkpoints.probe.engine import Engine, EngineError
from checkpoints.store.contract import Files

RELOAD_TIMEOUT_S = 900.0
"""For the largest models from slow disks."""
Report = Callable[[str], None]


@dataclass(slots=True)
class Trial:
    """What is known so far."""

    scratch: Scratch
    questions: Questions
    report: Report
    differences: list[tuple[str, Difference]] = field(default_factory=list)
    batches: list[tuple[str, Difference]] = field(default_factory=list)
    timings: list[ReloadTimings] = field(default_factory=list)

    async def listen(self, running: Running) -> Heard:
        """Ask everything. Raises EngineError."""

        def ask() -> Heard:
            with Engine(running.url) as engine:
                return listen_to(engine, self.questions)

        return await asyncio.to_thread(ask)

    async def reload(self, running: Running, folder: Path) -> Heard:
        """Change the weights in place and ask everything. Raises ReloadFailed, EngineError."""
        took = await reload_in_place(
            running.control, folder, label=folder.name, timeout_s=RELOAD_TIMEOUT_S, wait_s=0.5
        )
        self.timings.append(took)
        return await self.listen(running)

    def note(self, name: str, warm: Heard, cold: Heard) -> None:
        """Compare a reloaded engine with a cold one."""
        difference = compare(warm, cold)
        self.differences.append((name, difference))
        self.batches.append((f"{name}, in a batch", compare_batches(warm, cold)))
        self.report(f"  {name}: {in_words(difference)}")


async def qualify(
    folder: Path,
    settings: EngineSettings,
    *,
    environment: Mapping[str, str],
    files: Files | None = None,
    report: Report = lambda line: None,
) -> Record:
    """Try reloads of the model in `folder` on scratch engines started with `settings`; keep what was found.

    Takes two or three engine starts, one engine at a time: memory for one more engine is needed beside
    what runs. `files`: the model's store, which gets the record (None: it is only returned). A reload that
    kills the engine is a verdict; an engine that does not even start is not.

    Raises EngineMissing, ModelUnusable, ScratchFailed, CheckpointError, OSError. Cancelling ends the engine
    and keeps nothing.
    """
    folder = await asyncio.to_thread(folder.resolve)
    check_folder(folder, settings)
    engine = find_engine(environment, settings.device)
    scratch = Scratch(settings, engine, environment)
    began = time.monotonic()
    combination = await asyncio.to_thread(combination_for, folder, scratch)
    with tempfile.TemporaryDirectory(prefix="co-qualify-") as name:
        other = Path(name) / "perturbed"
        report(f"making perturbed weights of {folder.name}")
        await asyncio.to_thread(write_perturbed, folder, other)
        findings = await _try(scratch, folder, other, report)
    record = _record(combination, findings, time.monotonic() - began)
    return record if files is None else await asyncio.to_thread(keep, files, record)


def combination_for(folder: Path, scratch: Scratch) -> Combination:
    """The combination that engines started so have with the checkpoint in `folder`. Raises OSError."""
    environment = scratch.command(folder, Path()).environment
    return combination_of(folder, scratch.settings, environment, surroundings_of(scratch.engine))


def combination_with(
    folder: Path, settings: EngineSettings, engine: Installation, environment: Mapping[str, str]
) -> Combination:
    """What to look a record up by: for a backend with these settings, before it reloads `folder`.

    `environment`: of the process that starts the engine. Raises OSError.
    """
    return combination_for(folder, Scratch(settings, engine, environment))


@dataclass(frozen=True, slots=True)
class Findings:
    verdict: Verdict
    reason: str
    checks: tuple[Check, ...] = ()
    moved: Difference | None = None
    floor: Difference | None = None
    reload_s: float = 0.0


async def _try(scratch: Scratch, a: Path, b: Path, report: Report) -> Findings:
    """All engines, all comparisons."""
    trial = Trial(scratch, _questions(a, scratch.settings), report)
    floor = None
    try:
        cold_a, warm_b = await _started_on_a(trial, a, b)
        cold_b = await _started_on_b(trial, a, b, cold_a)
        trial.note("A->B against cold B", warm_b, cold_b)
        if not all(passes(difference, None) for _, difference in trial.differences):
            report("starting another engine on B: how far do two cold starts lie apart?")
            async with scratch_engine(scratch, b) as running:
                floor = compare(await trial.listen(running), cold_b)
            report(f"  cold B against cold B: {in_words(floor)}")
    except (ReloadFailed, EngineError) as error:
        return Findings(
            Verdict.WRONG, f"a reload ended the engine: {error}", checked(trial.differences, None)
        )
    moved = compare(cold_a, cold_b)
    checks = checked(trial.differences, floor) + checked_batches(trial.batches, moved)
    verdict, reason = judge(checks, moved, floor)
    return Findings(verdict, reason, checks, moved, floor, max(took.load for took in trial.timings))


async def _started_on_a(trial: Trial, a: Path, b: Path) -> tuple[Heard, Heard]:
    """Cold A, and what the same engine says after A->A->B; A->B->A is compared at once."""
    trial.report("starting an engine on A")
    async with scratch_engine(trial.scratch, a) as running:
        cold = await _cold(trial, running)
        trial.note("A->A against cold A", await trial.reload(running, a), cold)
        warm_b = await trial.reload(running, b)
        trial.note("A->B->A against cold A", await trial.reload(running, a), cold)
    return cold, warm_b


async def _started_on_b(trial: Trial, a: Path, b: Path, cold_a: Heard) -> Heard:
    trial.report("starting an engine on B")
    async with scratch_engine(trial.scratch, b) as running:
        cold = await _cold(trial, running)
        trial.note("B->A against cold A", await trial.reload(running, a), cold_a)
    return cold


async def _cold(trial: Trial, running: Running) -> Heard:
    """What a fresh engine says. One that cannot be asked is no verdict on reloads: raises ScratchFailed."""
    try:
        return await trial.listen(running)
    except EngineError as error:
        raise ScratchFailed(f"the scratch engine does not answer: {error}") from error


def _questions(folder: Path, settings: EngineSettings) -> Questions:
    config = msgspec.json.decode((folder / "config.json").read_bytes(), type=dict[str, object])
    text = config.get("text_config")
    longest = (text if isinstance(text, dict) else config).get("max_position_embeddings")
    context = settings.max_model_len or (longest if isinstance(longest, int) else 1024)
    return questions_for(read_vocabulary(folder), context)


def _record(combination: Combination, findings: Findings, seconds: float) -> Record:
    return Record(
        schema=SCHEMA,
        combination=combination,
        verdict=findings.verdict,
        reason=findings.reason,
        checks=findings.checks,
        moved=findings.moved,
        floor=findings.floor,
        reload_s=round(findings.reload_s, 3),
        seconds=round(seconds, 1),
        at=datetime.now(UTC).isoformat(timespec="microseconds"),
        by=f"{getpass.getuser()}@{socket.gethostname()}",
    )


def in_words(difference: Difference) -> str:
    """For people: how far two engines lie apart."""
    if difference.equal:
        return "bit for bit"
    return (
        f"{difference.texts} of {difference.of} texts differ, |dlogp| up to {difference.max:.3g}, "
        f"mean {difference.mean:.2g}"
    )
