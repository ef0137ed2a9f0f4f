"""Puts a run's loop together from its configuration."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

from accelerate.utils import broadcast_object_list

from checkpoints.errors import StoreError
from checkpoints.feedback import FeedbackFiles
from checkpoints.store.open import open_store
from checkpoints.store.store import Store
from training.config.tree import TrainingConfig
from training.exporter.into_store import default_run, into_store
from training.exporter.publisher import Publisher, Sink
from training.exporter.settings import ExportSettings, ProbeIn
from training.rl.gateway import Gateway
from training.rl.loop import Loop
from training.rl.mismatch import Drift
from training.rl.pool import Pool, pool
from training.rl.rollouts import Rollouts
from training.rl.sampling import Sampling
from training.rl.trajectories import read

log = logging.getLogger("training.rl")


def build_loop(config: TrainingConfig, tokenizer: Any, sink: Sink, *, first: bool, resumed: bool) -> Loop:
    """For one process. `resumed`: the run goes on from a checkpoint, perhaps behind what it published."""
    rl, export = config.rl, for_loop(config.export)
    assert rl is not None
    output = Path(config.training.output_dir)
    output.mkdir(parents=True, exist_ok=True)
    run = _agreed(_run_name(export, output, resumed=resumed) if first else "")
    store = open_store(export.store, export.model)
    publisher = None
    if first:
        publisher = Publisher(export, run, output / "export", into_store(export), sink)
        publisher.start()
    gateway = Gateway(rl, export.model)
    sampling = Sampling(config.grpo.temperature, rl.top_p, config.grpo.max_completion_length)
    rollouts = Rollouts(
        gateway,
        encoder(tokenizer),
        sampling,
        parallel=rl.parallel,
        group_size=config.grpo.generations,
    )
    if config.data.mix is not None and config.data.mix.offline > 0:
        kept = _pool(store, tokenizer)
        log.info("%d groups of earlier samples can be trained on again", len(kept))
        rollouts.mix(kept, config.data.mix.offline)
    plain = config.grpo.temperature == 1.0 and rl.top_p == 1.0
    drift = Drift(rl.drift_k3, rl.drift_mean, plain_sampling=plain)
    return Loop(rl, run, output, gateway, rollouts, store, publisher, drift)


def _run_name(export: ExportSettings, output: Path, *, resumed: bool) -> str:
    """A resumed run may be behind what it published, and steps of one run only rise: it gets a new name."""
    if export.run is not None:
        return export.run
    name = default_run(output)
    return f"{name}-{os.urandom(2).hex()}" if resumed else name


def _agreed(name: str) -> str:
    """The first process's word, on every process."""
    told: list[str] = broadcast_object_list([name])
    return told[0]


def for_loop(export: ExportSettings | None) -> ExportSettings:
    """The run waits for each probe, so what nobody asked for is left out of it.

    Counterfactuals of single tensors are: the effect of one small step on one tensor lies within what bf16
    engines differ by anyway, and whether reloads in place are right was shown by `changeover qualify`.
    """
    assert export is not None
    given = export.model_fields_set
    quick: dict[str, object] = {"probe_seconds": 0.0, "probe": ProbeIn.THREAD}
    return export.model_copy(update={key: value for key, value in quick.items() if key not in given})


def encoder(tokenizer: Any) -> Callable[[Any], tuple[int, ...]]:
    """A prompt as TRL tokenises it: texts with special tokens, messages by the chat template."""

    def encode(prompt: Any) -> tuple[int, ...]:
        if isinstance(prompt, str):
            return tuple(tokenizer(prompt)["input_ids"])
        made = tokenizer.apply_chat_template(prompt, add_generation_prompt=True, return_dict=True)
        return tuple(made["input_ids"])

    return encode


def _pool(store: Store, tokenizer: Any) -> Pool:
    def answer(text: str) -> tuple[int, ...]:
        return (*tokenizer(text, add_special_tokens=False)["input_ids"], tokenizer.eos_token_id)

    try:
        rows, said = read(store.files), FeedbackFiles(store.files).read()
    except StoreError as error:
        log.warning("no earlier samples: %s", error)
        return Pool([])
    return pool(rows, said, encoder(tokenizer), answer)
