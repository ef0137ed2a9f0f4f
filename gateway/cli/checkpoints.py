"""`changeover publish`, `changeover checkpoints …`, `changeover verify`: the store and the probe for people.

Needs neither a web framework nor torch, so a trainer's environment can publish. Every command has
`--json` for programs. Ends with 1 and the reasons where a checkpoint is refused or a store fails.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

import msgspec
import typer
from rich.console import Console
from rich.progress import BarColumn, DownloadColumn, Progress, TransferSpeedColumn

from checkpoints.draft import Metrics, Request
from checkpoints.errors import CheckpointError
from checkpoints.manifest import Manifest, TensorEntry
from checkpoints.publish import publish as publish_folder
from checkpoints.scan import Scan
from checkpoints.store.open import models, open_store
from checkpoints.store.store import Store
from checkpoints.verify import verify_folder
from gateway.cli import checkpoints_view as view
from gateway.cli.options import fail
from gateway.cli.parity import verify

app = typer.Typer(add_completion=False, rich_markup_mode=None, pretty_exceptions_enable=False)
checkpoints_app = typer.Typer(
    help="List and manage the checkpoints of a store.", no_args_is_help=True, rich_markup_mode=None
)
app.add_typer(checkpoints_app, name="checkpoints")
app.command("verify")(verify)

StoreOption = Annotated[
    str,
    typer.Option(
        "--store", envvar="CHANGEOVER_STORE", metavar="URL", help="A folder, s3://…, or webhdfs://…"
    ),
]
ModelOption = Annotated[
    str | None, typer.Option("--model", help="Default: the store's only model, or the folder's name.")
]
JsonOption = Annotated[bool, typer.Option("--json", help="Print JSON.")]
TrustOption = Annotated[
    list[Path] | None,
    typer.Option("--trust", metavar="FILE", help="Accept only versions signed by this public key (PEM)."),
]
_STORE = "checkpoint-store"


@contextmanager
def sentences() -> Iterator[None]:
    """End with 1 and a sentence instead of a traceback."""
    try:
        yield
    except CheckpointError as error:
        fail(str(error))
    except OSError as error:
        fail(f"{error.filename}: {error.strerror}" if error.filename else str(error))
    except ModuleNotFoundError as error:
        fail(f"this needs the package {error.name!r}: pip install 'changeover[signatures]'")


@app.command("publish")
def publish(
    folder: Annotated[
        Path, typer.Argument(metavar="DIR", help="The checkpoint, in the Hugging Face layout.")
    ],
    store: StoreOption = _STORE,
    model: ModelOption = None,
    run: Annotated[
        str | None, typer.Option(help="The training run. Default: the name of DIR's parent.")
    ] = None,
    step: Annotated[
        int | None, typer.Option(min=0, help="Default: the number at the end of DIR's name.")
    ] = None,
    metrics: Annotated[
        list[str] | None, typer.Option(metavar="KEY=NUMBER", help="Training metrics; may be repeated.")
    ] = None,
    probe: Annotated[
        Path | None, typer.Option(metavar="FILE", help="The probe made of these weights.")
    ] = None,
    untie: Annotated[
        bool | None, typer.Option("--untie/--as-is", help="Write a tied model's output head out.")
    ] = None,
    restart_allowed: Annotated[
        bool, typer.Option("--restart-allowed", help="Configuration, tokenizer or template may differ.")
    ] = False,
    take_over: Annotated[
        bool, typer.Option("--take-over", help="Publish although another run has superseded this one.")
    ] = False,
    base: Annotated[int | None, typer.Option(help="Adapters: the version that they rest on.")] = None,
    max_rate: Annotated[
        float | None, typer.Option(min=0.001, metavar="MB/S", help="Copy no faster than this.")
    ] = None,
    sign: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Sign with this private key (PEM).")
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Publish a checkpoint into a store, whole or not at all.

    Example: changeover publish out/checkpoint-50 --store /mnt/store --run r1 --metrics reward=0.4
    """
    with sentences():
        opened = open_store(store, model or _publishing_model(store, folder))
        request = Request(
            run=run or _safe(folder.resolve().parent.name),
            step=_step(folder) if step is None else step,
            untie=untie,
            base=base,
            metrics=_metrics(metrics or []),
            probe=probe.read_bytes() if probe is not None else None,
            golden=view.golden_of(probe),
            restart_allowed=restart_allowed,
            take_over=take_over,
            bytes_per_s=None if max_rate is None else max_rate * 1e6,
        )
        signing = None
        if sign is not None:
            from checkpoints.signatures import signer

            signing = signer(sign)
        start = time.monotonic()
        with _bar(shown=not as_json) as report:
            made = publish_folder(folder, opened, request, progress=report, sign=signing)
        seconds = time.monotonic() - start
    if as_json:
        view.print_json({**view.summary(made.manifest), "existing": made.existing, "seconds": seconds})
    else:
        print(view.published_text(made, seconds))


@checkpoints_app.command("list")
def list_versions(
    store: StoreOption = _STORE,
    model: ModelOption = None,
    limit: Annotated[int, typer.Option(min=1, help="The newest so many.")] = 50,
    as_json: JsonOption = False,
    trust: TrustOption = None,
) -> None:
    """List versions, newest last, with their aliases."""
    with sentences():
        opened = _open(store, model, trust)
        manifests = [opened.manifest(version) for version in opened.versions()[-limit:]]
        aliases = opened.aliases.all()
        pinned = opened.holds.pinned()
    view.show_list(manifests, aliases, pinned, as_json=as_json)


@checkpoints_app.command("show")
def show(
    version: Annotated[str, typer.Argument(help="A number, an alias, or latest.")],
    store: StoreOption = _STORE,
    model: ModelOption = None,
    as_json: JsonOption = False,
    trust: TrustOption = None,
) -> None:
    """Show everything the manifest says."""
    with sentences():
        opened = _open(store, model, trust)
        manifest = opened.manifest(opened.resolve(version))
    view.show_manifest(manifest, as_json=as_json)


@checkpoints_app.command("verify")
def verify_version(
    version: Annotated[str, typer.Argument(help="A number, an alias, latest, or a folder.")],
    store: StoreOption = _STORE,
    model: ModelOption = None,
    against: Annotated[
        str | None, typer.Option(help="Compare with this version. Default: the one served, if any.")
    ] = None,
    scan: Annotated[Scan, typer.Option(help="How much of the weights is read.")] = Scan.FULL,
    restart_allowed: Annotated[bool, typer.Option("--restart-allowed")] = False,
    as_json: JsonOption = False,
    trust: TrustOption = None,
) -> None:
    """Check a version, or a trainer's folder, without an engine."""
    with sentences():
        if Path(version).is_dir():
            verdict = verify_folder(Path(version), scan=scan)
        else:
            opened = _open(store, model, trust)
            number = opened.resolve(version)
            served = opened.resolve(against) if against else opened.aliases.read("serving").version
            with view.on_disk(opened, number) as folder:
                verdict = verify_folder(
                    folder,
                    manifest=opened.manifest(number),
                    served=opened.served(served) if served not in (None, number) else None,
                    scan=scan,
                    restart_allowed=restart_allowed,
                )
    if as_json:
        view.print_json({"refused": verdict.refused, **msgspec.to_builtins(verdict)})
    else:
        print(verdict.text())
    raise typer.Exit(1 if verdict.refused else 0)


@checkpoints_app.command("pin")
def pin(
    version: str,
    store: StoreOption = _STORE,
    model: ModelOption = None,
    remove: Annotated[bool, typer.Option("--remove", help="Let it go again.")] = False,
    reason: Annotated[str, typer.Option(help="Shown to others.")] = "",
) -> None:
    """Keep a version whatever retention says."""
    with sentences():
        opened = _open(store, model, None)
        number = opened.resolve(version)
        if remove:
            opened.holds.unpin(number)
        else:
            opened.holds.pin(number, reason)
        opened.journal.append("unpinned" if remove else "pinned", version=number, detail={"reason": reason})
    print(f"version {number} {'may go' if remove else 'stays'}")


@checkpoints_app.command("gc")
def collect(
    store: StoreOption = _STORE,
    model: ModelOption = None,
    keep: Annotated[int, typer.Option(min=1, help="The newest so many stay.")] = 10,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only say what would go.")] = False,
    as_json: JsonOption = False,
) -> None:
    """Remove versions that nothing needs: neither new, nor aliased, pinned or being copied."""
    with sentences():
        opened = _open(store, model, None)
        plan = opened.plan_removal(keep) if dry_run else opened.collect(keep)
    if as_json:
        view.print_json(msgspec.to_builtins(plan, str_keys=True))
    else:
        view.show_plan(plan, dry_run=dry_run)


@checkpoints_app.command("diff")
def diff(
    a: Annotated[str, typer.Argument(metavar="A")],
    b: Annotated[str, typer.Argument(metavar="B")],
    store: StoreOption = _STORE,
    model: ModelOption = None,
    as_json: JsonOption = False,
) -> None:
    """What changed from one version to another: tensors, files, launch facts, and the swap it allows."""
    with sentences():
        opened = _open(store, model, None)
        left, right = (_with_tensors(opened, name) for name in (a, b))
    view.show_diff(left, right, as_json=as_json)


def _with_tensors(store: Store, name: str) -> tuple[Manifest, tuple[TensorEntry, ...]]:
    manifest = store.manifest(store.resolve(name))
    return manifest, store.tensors(manifest)


def _open(store: str, model: str | None, trust: list[Path] | None) -> Store:
    check = None
    if trust:
        from checkpoints.signatures import checker

        check = checker(trust)
    return open_store(store, model or _only_model(store), check=check)


def _only_model(store: str) -> str:
    found = models(store)
    if not found:
        fail(f"{store}: has no checkpoints")
    if len(found) > 1:
        fail(f"{store}: has several models, name one with --model: {', '.join(found)}")
    return found[0]


def _publishing_model(store: str, folder: Path) -> str:
    found = models(store)
    if len(found) == 1:
        return found[0]
    name = folder.resolve().name
    return _safe(folder.resolve().parent.name if re.fullmatch(r"(checkpoint|step)[-_]?\d+", name) else name)


def _safe(name: str) -> str:
    return re.sub(r"[^A-Za-z0-9_.-]", "-", name).lstrip(".-")[:128] or "model"


def _step(folder: Path) -> int:
    found = re.search(r"(\d+)$", folder.resolve().name)
    if found is None:
        fail(f"{folder}: which training step is this? Say --step N")
    return int(found[1])


def _metrics(assignments: list[str]) -> Metrics:
    metrics: Metrics = {}
    for assignment in assignments:
        key, equals, value = assignment.partition("=")
        if not equals or not key:
            fail(f"--metrics {assignment}: write KEY=VALUE, as --metrics reward=0.4", code=2)
        try:
            metrics[key] = float(value)
        except ValueError:
            metrics[key] = value
    return metrics


@contextmanager
def _bar(*, shown: bool) -> Iterator[Callable[[int, int], None] | None]:
    console = Console(stderr=True)
    if not shown or not console.is_terminal:
        yield None
        return
    columns = (BarColumn(), DownloadColumn(), TransferSpeedColumn())
    with Progress(*columns, console=console, transient=True) as bar:
        task = bar.add_task("publish")
        yield lambda done, total: bar.update(task, completed=done, total=total)
