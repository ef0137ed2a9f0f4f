"""One training run, in order: folder, processes, data, model, trainer, training, final weights."""

from __future__ import annotations

import logging
import signal
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from transformers import TrainerCallback

from training.config.kinds import Cache, Method
from training.config.load import Loaded
from training.config.problems import ConfigError
from training.config.tree import TrainingConfig
from training.data.memory import default_root, memory_folder
from training.data.prepare import Corpus, key_of, prepare_corpus
from training.data.sources import local_files
from training.launch.arguments import arguments_for
from training.launch.machine import Machine
from training.launch.models import (
    adapter,
    load_model,
    load_tokenizer,
    source_of,
    stay_offline_if_local,
)
from training.launch.refusals import refusals
from training.launch.trainers import Ingredients, make_trainer, trainer_arguments
from training.run.clock import skew, skew_report
from training.run.config_watch import ConfigWatch
from training.run.exposition import Exposition, Metrics
from training.run.final import store_as
from training.run.folder import is_finished, open_folder, save_facts
from training.run.logs import redirect_transformers
from training.run.processes import gather_numbers, wait_for_all
from training.run.result import Result, save_result
from training.run.saving import Completer
from training.run.stopping import Stopper
from training.run.usage import Usage
from training.run.watching import Watcher

log = logging.getLogger("training")
Outlet = Callable[[Any], tuple[list[TrainerCallback], Any]]
"""Given the tokenizer, makes the callbacks that publish, and the loop through the gateway or None."""


def run(loaded: Loaded, machine: Machine) -> int:
    """Train, and return the exit code: 0 done, 128 + N stopped in order by signal N.

    Raises ConfigError, LaunchError, DataError or RewardError for what keeps it from beginning.
    """
    config = loaded.config
    problems = refusals(config, machine)
    if problems:
        raise ConfigError(problems)
    redirect_transformers()
    output = Path(config.training.output_dir)
    if is_finished(output, config):
        log.info("%s holds this very run, finished; --training.resume never starts it anew", output)
        return 0
    sys.path.append(str(Path.cwd()))  # reward functions of the user's
    watch = ConfigWatch(loaded.files)
    began = time.monotonic()
    with ExitStack() as stack:
        metrics = Metrics()
        if machine.rank == 0 and config.metrics.port is not None:
            served = stack.enter_context(Exposition(metrics, config.metrics.host, config.metrics.port))
            log.info("metrics at http://localhost:%d/metrics", served.port)
        arguments = trainer_arguments(config, arguments_for(config, machine, loaded.deepspeed))
        checkpoint = _open_folder(config, machine)
        _check_clocks(config, arguments, metrics)
        stopper = Stopper()
        stopper.listen()
        watcher = Watcher(metrics, watch, Usage())
        own = [Completer(), watcher, stopper]
        resumed = checkpoint is not None
        trainer, dtype = _build(stack, config, arguments, own, _outlet(config, metrics, machine, resumed))
        metrics.set("processes", machine.world_size)
        if not _train(trainer, checkpoint, stopper):
            return 128 + (stopper.signal or signal.SIGTERM)
        _finish(trainer, output, dtype, watcher, time.monotonic() - began)
        return 0


def _outlet(config: TrainingConfig, metrics: Metrics, machine: Machine, resumed: bool) -> Outlet:
    """How weights get out of the run: not at all, by the exporter, or by the loop through the gateway."""

    def made(tokenizer: Any) -> tuple[list[TrainerCallback], Any]:
        if config.export is None:
            return [], None
        if config.rl is None:
            from training.exporter.callback import ExporterCallback  # needs what publishing needs

            return [ExporterCallback(config.export, metrics)], None
        from training.rl.build import build_loop
        from training.rl.callback import LoopCallback

        loop = build_loop(config, tokenizer, metrics, first=machine.rank == 0, resumed=resumed)
        return [LoopCallback(loop, config.export, metrics)], loop

    return made


def _open_folder(config: TrainingConfig, machine: Machine) -> Path | None:
    """The first process makes the folder ready, then all see the same checkpoint."""
    said: list[str] = []
    checkpoint = None
    if machine.rank == 0:
        checkpoint = open_folder(config, said)
        save_facts(Path(config.training.output_dir), config)
        for line in said:
            log.info("%s", line)
    wait_for_all()
    if machine.rank != 0:
        later = config if config.training.resume != "never" else None
        checkpoint = open_folder(later, []) if later is not None else None
    wait_for_all()
    if checkpoint is not None:
        log.info("going on from %s", checkpoint)
    return checkpoint


def _check_clocks(config: TrainingConfig, arguments: Any, metrics: Metrics) -> None:
    wait_for_all()
    readings = gather_numbers(time.time_ns() / 1e9, arguments.device)
    metrics.set("clock_skew_seconds", skew(readings))
    report = skew_report(readings, config.distributed.max_clock_skew_s)
    if report is not None:
        log.warning("%s", report)


def _build(
    stack: ExitStack,
    config: TrainingConfig,
    arguments: Any,
    callbacks: list[TrainerCallback],
    outlet: Outlet,
) -> tuple[Any, Any]:
    """The trainer, and the number type that the model came in."""
    with arguments.main_process_first(local=True, desc="preparing model and data"):
        source = source_of(config.model)
        corpus = _corpus(stack, config)
    log.info("%d records (%d skipped), model %s", corpus.records, corpus.skipped, source)
    stay_offline_if_local(source)
    model, dtype = load_model(source)
    tokenizer = load_tokenizer(config.model, source)
    more, loop = outlet(tokenizer)
    ingredients = Ingredients(
        model=model,
        dtype=dtype,
        tokenizer=tokenizer,
        adapter=adapter(config.model.lora),
        corpus=corpus.path,
        loop=loop,
    )
    # After our own callbacks: the outlet reads what they have settled.
    return make_trainer(config, arguments, ingredients, [*callbacks, *more]), dtype


def _corpus(stack: ExitStack, config: TrainingConfig) -> Corpus:
    """Prepared data, on disk or in memory; memory is held until the run ends."""
    disk = Path(config.training.output_dir) / "data"
    files = local_files(config.data.path, disk / "source", lambda line: log.info("%s", line))
    method = config.training.method
    place = stack.enter_context(_place(config, files, method, disk))
    return prepare_corpus(files, config.data, method, place, lambda line: log.info("%s", line))


@contextmanager
def _place(config: TrainingConfig, files: list[Path], method: Method, disk: Path) -> Iterator[Path]:
    if config.data.cache is Cache.DISK:
        yield disk
        return
    needed = 3 * sum(each.stat().st_size for each in files)  # texts, and their token ids
    key = key_of(files, config.data, method)
    with memory_folder(default_root(), key, needed, config.data.memory_gib) as memory:
        if memory is None:
            log.warning("data.cache: memory has no room for %d MiB; using the disk", needed >> 20)
        yield memory or disk


def _train(trainer: Any, checkpoint: Path | None, stopper: Stopper) -> bool:
    """Whether it came to its end; False: it was told to stop, and wrote a checkpoint."""
    trainer.train(resume_from_checkpoint=str(checkpoint) if checkpoint is not None else None)
    if stopper.signal is not None:
        log.info("stopped at step %d; the same command goes on from there", trainer.state.global_step)
        return False
    return True


def _finish(trainer: Any, output: Path, dtype: Any, watcher: Watcher, seconds: float) -> None:
    """The final weights, then the result, which says that the run is finished."""
    trainer.save_model(str(output))
    wait_for_all()
    if not trainer.is_world_process_zero():
        return
    store_as(output, dtype)
    result = Result(
        steps=trainer.state.global_step,
        epochs=float(trainer.state.epoch or 0),
        loss_first=watcher.losses[0] if watcher.losses else None,
        loss_last=watcher.losses[-1] if watcher.losses else None,
        eval_loss=watcher.eval_loss,
        seconds=seconds,
        tokens=watcher.tokens,
    )
    save_result(output, result)
    log.info("done: %d steps, weights in %s", result.steps, output)
