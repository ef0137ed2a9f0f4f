"""`changeover verify`: does an engine compute what the trainer computed? Works without the rest."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, NoReturn

import typer

from checkpoints.errors import CheckpointError
from checkpoints.manifest import PROBE_FILE
from checkpoints.probe.contract import Probe, decode_probe
from checkpoints.probe.engine import Engine
from checkpoints.probe.judge import Report, judge
from checkpoints.probe.replay import observe
from checkpoints.probe.report import as_html, as_json, as_text, summary
from checkpoints.store.store import Store
from checkpoints.verify import verify_folder
from gateway.cli.options import fail
from gateway.cli.stores import DEFAULT_STORE, ModelOption, StoreOption, open_one

_GUARD_HEADER = "x-changeover-token"


CheckpointArgument = Annotated[
    str,
    typer.Argument(help="A version, an alias or latest of a store; a checkpoint's folder; a probe's file."),
]
AgainstOption = Annotated[
    str | None,
    typer.Option("--against", metavar="URL", help="The engine. Default: only check without one."),
]
ServedModelOption = Annotated[
    str | None, typer.Option("--served-model", help="The model's name at the engine. Default: its first.")
]
ApiKeyOption = Annotated[str | None, typer.Option("--api-key", envvar="CHANGEOVER_ENGINE_API_KEY")]
TokenOption = Annotated[
    str | None,
    typer.Option("--token", envvar="CHANGEOVER_TOKEN", help="For the engine's guard, to compare checksums."),
]
EngineDtypeOption = Annotated[
    str, typer.Option("--engine-dtype", help="What the engine computes in; decides the limits.")
]
LimitOption = Annotated[
    list[str] | None,
    typer.Option("--limit", metavar="NAME=NUMBER", help="Replace one limit, as mean=0.1."),
]
HtmlOption = Annotated[Path | None, typer.Option("--html", metavar="FILE", help="Write the page there.")]
JsonFileOption = Annotated[
    Path | None, typer.Option("--json", metavar="FILE", help="Write JSON there; - is stdout.")
]


def verify(
    checkpoint: CheckpointArgument,
    against: AgainstOption = None,
    store: StoreOption = DEFAULT_STORE,
    model: ModelOption = None,
    served_model: ServedModelOption = None,
    api_key: ApiKeyOption = None,
    token: TokenOption = None,
    engine_dtype: EngineDtypeOption = "bfloat16",
    limit: LimitOption = None,
    html: HtmlOption = None,
    json_file: JsonFileOption = None,
) -> None:
    """Replay a checkpoint's probe on an engine and say whether it computes the same, and if not, why.

    Ends with 0 if it does, 1 if it does not or cannot be asked.

    Example: changeover verify latest --against http://localhost:8000 --html report.html
    """
    try:
        if against is None:
            _without_engine(checkpoint)
        subject = _subject(checkpoint, store, model)
        headers = {_GUARD_HEADER: token} if token else {}
        with Engine(against, model=served_model, api_key=api_key, headers=headers) as engine:
            seen = observe(engine, subject.probe, subject.folder)
        report = judge(
            subject.probe,
            seen,
            engine_dtype=engine_dtype,
            changes=_limits(limit or []),
            subject=subject.name,
            engine=against,
        )
        if subject.store is not None:
            subject.store.journal.append(
                "verdict", version=subject.version, by="changeover verify", detail=summary(report)
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


@dataclass(frozen=True, slots=True)
class Subject:
    """What is verified; `folder` is there where its files are on this machine, `store` where it is of one."""

    probe: Probe
    name: str
    folder: Path | None = None
    store: Store | None = None
    version: int | None = None


def _subject(checkpoint: str, store: str, model: str | None) -> Subject:
    path = Path(checkpoint)
    if path.is_dir():
        file = path / PROBE_FILE
        if not file.is_file():
            fail(f"{checkpoint} has no probe: publish it, or make one with python -m checkpoints.probe.maker")
        return Subject(decode_probe(file.read_bytes(), str(file)), checkpoint, path)
    if path.is_file():
        return Subject(decode_probe(path.read_bytes(), str(path)), checkpoint)
    opened = open_one(store, model, None)
    manifest = opened.manifest(opened.resolve(checkpoint))
    if not manifest.has_probe():
        fail(f"{manifest.model} version {manifest.version} was published without a probe")
    return Subject(
        decode_probe(opened.small_file(manifest, PROBE_FILE), PROBE_FILE),
        f"{manifest.model} version {manifest.version}",
        opened.files.local(manifest.data),
        opened,
        manifest.version,
    )


def _limits(assignments: list[str]) -> dict[str, float]:
    changes: dict[str, float] = {}
    for assignment in assignments:
        name, _, value = assignment.partition("=")
        try:
            changes[name] = float(value)
        except ValueError:
            fail(f"--limit {assignment}: write NAME=NUMBER, as --limit mean=0.1", code=2)
    return changes
