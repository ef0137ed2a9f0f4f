"""`changeover verify`: does an engine compute what the trainer computed? Works without the rest."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated, NoReturn

import typer

from checkpoints.errors import CheckpointError
from checkpoints.manifest import PROBE_FILE
from checkpoints.probe.contract import Probe, decode_probe
from checkpoints.probe.engine import Engine
from checkpoints.probe.judge import Report, judge
from checkpoints.probe.replay import observe
from checkpoints.probe.report import as_html, as_json, as_text
from checkpoints.store.open import models, open_store
from checkpoints.verify import verify_folder
from gateway.cli.options import fail

_GUARD_HEADER = "x-changeover-token"


def verify(
    checkpoint: Annotated[
        str,
        typer.Argument(
            help="A version, an alias or latest of a store; a checkpoint's folder; a probe's file."
        ),
    ],
    against: Annotated[
        str | None,
        typer.Option("--against", metavar="URL", help="The engine. Default: only check without one."),
    ] = None,
    store: Annotated[
        str, typer.Option("--store", envvar="CHANGEOVER_STORE", metavar="URL")
    ] = "checkpoint-store",
    model: Annotated[str | None, typer.Option("--model", help="The model in the store.")] = None,
    served_model: Annotated[
        str | None, typer.Option("--served-model", help="The model's name at the engine. Default: its first.")
    ] = None,
    api_key: Annotated[str | None, typer.Option("--api-key", envvar="CHANGEOVER_ENGINE_API_KEY")] = None,
    token: Annotated[
        str | None,
        typer.Option(
            "--token", envvar="CHANGEOVER_TOKEN", help="For the engine's guard, to compare checksums."
        ),
    ] = None,
    engine_dtype: Annotated[
        str, typer.Option("--engine-dtype", help="What the engine computes in; decides the limits.")
    ] = "bfloat16",
    limit: Annotated[
        list[str] | None,
        typer.Option("--limit", metavar="NAME=NUMBER", help="Replace one limit, as mean=0.1."),
    ] = None,
    html: Annotated[Path | None, typer.Option("--html", metavar="FILE", help="Write the page there.")] = None,
    json_file: Annotated[
        Path | None, typer.Option("--json", metavar="FILE", help="Write JSON there; - is stdout.")
    ] = None,
) -> None:
    """Replay a checkpoint's probe on an engine and say whether it computes the same, and if not, why.

    Ends with 0 if it does, 1 if it does not or cannot be asked.

    Example: changeover verify latest --against http://localhost:8000 --html report.html
    """
    try:
        if against is None:
            _without_engine(checkpoint)
        probe, subject, folder = _probe(checkpoint, store, model)
        headers = {_GUARD_HEADER: token} if token else {}
        with Engine(against, model=served_model, api_key=api_key, headers=headers) as engine:
            seen = observe(engine, probe, folder)
        report = judge(
            probe,
            seen,
            engine_dtype=engine_dtype,
            changes=_limits(limit or []),
            subject=subject,
            engine=against,
        )
    except CheckpointError as error:
        fail(str(error))
    except OSError as error:
        fail(f"{error.filename}: {error.strerror}")
    _show(report, html, json_file)
    raise typer.Exit(0 if report.passed else 1)


def _show(report: Report, html: Path | None, json_file: Path | None) -> None:
    if json_file == Path("-"):
        sys.stdout.buffer.write(as_json(report) + b"\n")
    else:
        print(as_text(report))
    if json_file not in (None, Path("-")):
        json_file.write_bytes(as_json(report))
    if html is not None:
        html.write_text(as_html(report), encoding="utf-8")


def _without_engine(checkpoint: str) -> NoReturn:
    folder = Path(checkpoint)
    if not folder.is_dir():
        fail(
            f"{checkpoint}: say --against URL, or `changeover checkpoints verify` to check without an engine"
        )
    verdict = verify_folder(folder)
    print(verdict.text())
    raise typer.Exit(1 if verdict.refused else 0)


def _probe(checkpoint: str, store: str, model: str | None) -> tuple[Probe, str, Path | None]:
    """The probe, its subject's name, and the version's folder where it is on this machine."""
    path = Path(checkpoint)
    folder = path if path.is_dir() else None
    if path.is_dir():
        path = path / PROBE_FILE
        if not path.is_file():
            fail(f"{checkpoint} has no probe: publish it, or make one with python -m checkpoints.probe.maker")
    if path.is_file():
        return decode_probe(path.read_bytes(), str(path)), checkpoint, folder
    found = [model] if model else models(store)
    if len(found) != 1:
        fail(
            f"{store}: name the model with --model" + (f": {', '.join(found)}" if found else " (it has none)")
        )
    opened = open_store(store, found[0])
    manifest = opened.manifest(opened.resolve(checkpoint))
    if not manifest.has_probe():
        fail(f"{manifest.model} version {manifest.version} was published without a probe")
    raw = opened.small_file(manifest, PROBE_FILE)
    subject = f"{manifest.model} version {manifest.version}"
    return decode_probe(raw, PROBE_FILE), subject, opened.files.local(manifest.data)


def _limits(assignments: list[str]) -> dict[str, float]:
    changes: dict[str, float] = {}
    for assignment in assignments:
        name, _, value = assignment.partition("=")
        try:
            changes[name] = float(value)
        except ValueError:
            fail(f"--limit {assignment}: write NAME=NUMBER, as --limit mean=0.1", code=2)
    return changes
