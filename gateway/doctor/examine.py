"""The whole examination, in order: environments, machine, configuration, what it names."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

from backends.models.builtin import BUILTIN
from backends.models.resolve import served_name
from gateway.doctor import gather, reach, rules, tokenizers
from gateway.doctor.finding import Finding, ok
from gateway.flow.cache.build import redis_url
from gateway.settings.tree import CacheType, Model, QuotaStore, Settings

ROOT = Path(__file__).resolve().parents[2]
ENGINE_PYTHON = ROOT / ".venv-engine" / "bin" / "python"
CONSTRAINTS = ROOT / "deploy" / "constraints"


def examine(
    settings: Settings, environment: Mapping[str, str], cache: Path, trainer: Path | None
) -> Iterator[Finding]:
    """Findings as they are made.

    Args:
        cache: changeover's cache folder, with built-in models and copies of checkpoints.
        trainer: the folder that a training begins with, to compare its tokenizer.
    """
    yield ok("Python", f"{sys.version.split()[0]} at {sys.executable}")
    yield rules.packages("the gateway's environment", gather.pip_check(Path(sys.executable)), "make setup")
    starts_engines = [model for model in settings.served_models() if model.engine is not None]
    if starts_engines:
        yield from _engines(starts_engines, environment)
    yield from _machine(settings, cache, starts_engines)
    if settings.cache.type in (CacheType.REDIS, CacheType.TIERED) or settings.auth.quotas is QuotaStore.REDIS:
        yield from reach.redis(redis_url(settings.cache))
    if settings.checkpoints.store is not None:
        yield from reach.store(settings.checkpoints.store)
    for model in starts_engines:
        folder = _folder(model, cache)
        if folder is not None:
            name = settings.checkpoints.model or model.name
            yield from tokenizers.check(folder, trainer, settings.checkpoints.store, name)


def _engines(models: list[Model], environment: Mapping[str, str]) -> Iterator[Finding]:
    facts = gather.ask_engine(ENGINE_PYTHON)
    yield from rules.engine(facts, gather.gpus(), environment.get("CUDA_VISIBLE_DEVICES"))
    wanted = sum(
        model.engine.replicas * model.engine.tensor_parallel_size
        for model in models
        if model.engine is not None
    )
    yield from rules.needs_gpus(wanted, facts)
    if facts is None:
        return
    yield rules.packages(".venv-engine", gather.pip_check(ENGINE_PYTHON), "make setup-engine")
    if facts.cuda is None:
        tested = gather.pinned(CONSTRAINTS / "engine-cpu.txt") | gather.pinned(CONSTRAINTS / "training.txt")
        yield rules.pins(".venv-engine", facts.versions, tested, "make setup-engine setup-training")


def _machine(settings: Settings, cache: Path, models: list[Model]) -> Iterator[Finding]:
    server = settings.server
    yield rules.port("server.port", server.port, gather.port_taken(server.host, server.port))
    folders = [_folder(model, cache) for model in models]
    size = sum(gather.size_gib(folder) for folder in folders if folder is not None)
    local = Path(settings.checkpoints.local) if settings.checkpoints.local is not None else cache
    copies = settings.checkpoints.keep_local if settings.checkpoints.store is not None else 0
    yield rules.disk(str(local), gather.free_gib(local), size * copies)
    store = settings.checkpoints.store
    if store is not None and "://" not in store:
        yield rules.disk(store, gather.free_gib(Path(store)), size)
    yield from rules.synchronised(gather.ntp_synchronised())
    yield rules.open_files(gather.file_limit(), 2 * server.max_connections)


def _folder(model: Model, cache: Path) -> Path | None:
    """Where the model's files lie, if they are on this disk already; nothing is made or fetched."""
    assert model.engine is not None
    name = model.engine.model
    if name in BUILTIN:
        made = sorted((cache / "models").glob(f"{served_name(model.engine)}*"))
        return made[-1] if made else None
    folder = Path(name).expanduser()
    return folder if (folder / "config.json").is_file() else None
