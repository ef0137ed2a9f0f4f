"""`changeover qualify`: shows on scratch engines whether weights may be changed in a running engine here.

Needs vLLM and memory for one more engine. The record goes into the model's store, where backends look for it
before they reload anything in place.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import msgspec
import typer
from rich.console import Console
from rich.table import Table

from backends.models.builtin import ModelNotMade
from backends.models.cache import cache_folder
from backends.models.resolve import ModelUnusable, resolve_model, served_name
from backends.qualify.judge import Check
from backends.qualify.oracle import in_words
from backends.qualify.oracle import qualify as try_reloads
from backends.qualify.record import Record
from backends.qualify.records import every
from backends.qualify.scratch import ScratchFailed
from backends.settings import EngineSettings
from backends.vllm.install import EngineMissing, find_engine
from checkpoints.errors import CheckpointError
from checkpoints.store.open import open_store
from gateway.cli.checkpoints_view import on_disk
from gateway.cli.options import ConfigOption, SetOption, fail, load_or_exit
from gateway.cli.stores import DEFAULT_STORE, JsonOption, sentences
from gateway.settings.environment import process_environment

if TYPE_CHECKING:
    from checkpoints.store.store import Store
    from gateway.settings.tree import Settings

CANNOT_TRY = (CheckpointError, EngineMissing, ModelNotMade, ModelUnusable, ScratchFailed, OSError)
"""What ends the command with a sentence and no verdict."""
INTERRUPTED = 130


def qualify(
    model: Annotated[
        str | None,
        typer.Argument(
            metavar="MODEL", help="A built-in model or a folder; default: the configuration's first."
        ),
    ] = None,
    config: ConfigOption = None,
    assignments: SetOption = None,
    store: Annotated[
        str | None,
        typer.Option(
            envvar="CHANGEOVER_STORE",
            metavar="URL",
            help="Default: checkpoints.store, else checkpoint-store.",
        ),
    ] = None,
    name: Annotated[
        str | None, typer.Option("--name", help="The model's name in the store. Default: as clients call it.")
    ] = None,
    tensor_parallel: Annotated[
        int | None, typer.Option("--tensor-parallel", min=1, help="As engine.tensor_parallel_size.")
    ] = None,
    eager: Annotated[bool | None, typer.Option("--eager/--compiled", help="As engine.eager.")] = None,
    version: Annotated[
        str | None,
        typer.Option(metavar="VERSION", help="A version of the store, by number or alias, instead of MODEL."),
    ] = None,
    list_records: Annotated[bool, typer.Option("--list", help="Only list the records of the store.")] = False,
    as_json: JsonOption = False,
) -> None:
    """Compare reloads in place with cold starts on scratch engines, and keep what was found.

    The engine is started exactly as the configuration says, two or three times, one after the other. Ends
    with 0 if in place may be used, with 1 if not, or if it could not be tried.

    Example: changeover qualify --config infer_config.yaml --store s3://models/checkpoints
    """
    settings = load_or_exit(config, assignments).settings
    engine = _engine(settings, model, tensor_parallel, eager)
    target = store or settings.checkpoints.store or DEFAULT_STORE
    with sentences():
        opened = open_store(target, name or settings.checkpoints.model or served_name(engine))
        if list_records:
            _show_list(list(every(opened.files)), as_json)
            return
    record = _try(engine, opened, version, Console(stderr=True, highlight=False))
    if as_json:
        print(msgspec.json.encode(record).decode())
    else:
        _show(record)
    raise typer.Exit(0 if record.qualified else 1)


def _engine(
    settings: Settings, model: str | None, tensor_parallel: int | None, eager: bool | None
) -> EngineSettings:
    """The engine of the configuration that is meant, with what the command line says instead."""
    engines = [served.engine for served in settings.served_models() if served.engine is not None]
    if not engines:
        fail("the configuration starts no engine on this machine: there is nothing to qualify here", code=2)
    chosen = next((engine for engine in engines if model in (engine.model, served_name(engine))), engines[0])
    if model is not None and model not in (chosen.model, served_name(chosen)):
        chosen = chosen.model_copy(update={"model": model, "served_name": None})
    changes = {"tensor_parallel_size": tensor_parallel, "eager": eager}
    return chosen.model_copy(update={key: value for key, value in changes.items() if value is not None})


def _try(engine: EngineSettings, store: Store, version: str | None, console: Console) -> Record:
    """Run the oracle and tell the journal; ends with 1 and a sentence where it could not be tried."""
    environment = process_environment()

    def report(line: str) -> None:
        console.print(line)

    try:
        with _folder(engine, store, version, environment, report) as folder:
            trial = try_reloads(folder, engine, environment=environment, files=store.files, report=report)
            record = asyncio.run(trial)
        store.journal.append("qualification", by=record.by, detail=_for_journal(record))
    except CANNOT_TRY as error:
        fail(str(error))
    except KeyboardInterrupt:
        fail("stopped: nothing was kept", code=INTERRUPTED)
    return record


@contextmanager
def _folder(
    engine: EngineSettings,
    store: Store,
    version: str | None,
    environment: Mapping[str, str],
    report: Callable[[str], None],
) -> Iterator[Path]:
    """The weights that are tried: those of a version, or the engine's own model."""
    if version is not None:
        with on_disk(store, store.resolve(version)) as folder:
            yield folder
        return
    installation = find_engine(environment, engine.device)
    cache = cache_folder(environment, Path.home())
    resolved = resolve_model(engine, cache=cache, engine_python=installation.python, report=report)
    if not resolved.local:
        fail(f"{engine.model}: give a folder with its files, so that a perturbed copy can be made", code=2)
    yield Path(resolved.source)


def _for_journal(record: Record) -> dict[str, object]:
    return {"verdict": record.verdict.value, "reason": record.reason, "key": record.combination.key}


def _show(record: Record) -> None:
    table = Table(box=None, pad_edge=False)
    for heading in ("comparison", "result", ""):
        table.add_column(heading)
    for check in record.checks:
        table.add_row(check.name, in_words(check.difference), _outcome(check))
    if record.moved is not None:
        table.add_row("A against B (both cold)", in_words(record.moved), "must differ")
    if record.floor is not None:
        table.add_row("cold against cold", in_words(record.floor), "the noise floor")
    Console(width=None if sys.stdout.isatty() else 140, highlight=False).print(table)
    combination = record.combination
    print(f"{combination.architecture}, {_mode(record)}, on {combination.device}, {combination.engine}")
    print(f"{record.verdict}: {record.reason} (record {combination.key}, {record.seconds:.0f} s)")


def _outcome(check: Check) -> str:
    return "ok" if check.passed else "WRONG"


def _mode(record: Record) -> str:
    found = record.combination
    parts = [
        f"tensor parallel {found.tensor_parallel}",
        "compiled" if found.compiled else "eager",
        found.dtype,
    ]
    if found.quantization != "none":
        parts.append(found.quantization)
    return ", ".join([*parts, "multiprocessing" if found.multiprocessing else "no multiprocessing"])


def _show_list(records: list[Record], as_json: bool) -> None:
    if as_json:
        print(msgspec.json.encode(records).decode())
        return
    if not records:
        print("nothing was qualified yet: changeover qualify MODEL")
    for record in records:
        combination = record.combination
        print(f"{combination.key}  {record.verdict:12}  {combination.architecture}, {_mode(record)}")
        print(f"  {record.reason}; {record.at[:19]}Z by {record.by}, on {combination.device}")
