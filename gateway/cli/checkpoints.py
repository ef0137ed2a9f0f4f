"""`changeover publish`, `changeover checkpoints …`, `changeover verify`: the store and the probe for people.

Needs neither a web framework nor torch, so a trainer's environment can publish. Every command has
`--json` for programs. Ends with 1 and the reasons where a checkpoint is refused or a store fails.
"""

from __future__ import annotations

import time
from pathlib import Path
from typing import Annotated

import msgspec
import typer

from checkpoints.manifest import Manifest, TensorEntry
from checkpoints.scan import Scan
from checkpoints.store.store import Store
from checkpoints.verify import verify_folder
from gateway.cli import checkpoints_view as view
from gateway.cli.parity import verify
from gateway.cli.publishing import publish
from gateway.cli.stores import (
    DEFAULT_STORE,
    JsonOption,
    ModelOption,
    StoreOption,
    TrustOption,
    open_one,
    sentences,
)

app = typer.Typer(add_completion=False, rich_markup_mode=None, pretty_exceptions_enable=False)
checkpoints_app = typer.Typer(
    help="List and manage the checkpoints of a store.", no_args_is_help=True, rich_markup_mode=None
)
app.add_typer(checkpoints_app, name="checkpoints")
app.command("publish")(publish)
app.command("verify")(verify)


@checkpoints_app.command("list")
def list_versions(
    store: StoreOption = DEFAULT_STORE,
    model: ModelOption = None,
    limit: Annotated[int, typer.Option(min=1, help="The newest so many.")] = 50,
    as_json: JsonOption = False,
    trust: TrustOption = None,
) -> None:
    """List versions, newest last, with their aliases."""
    with sentences():
        opened = open_one(store, model, trust)
        manifests = [opened.manifest(version) for version in opened.versions()[-limit:]]
        aliases = opened.aliases.all()
        pinned = opened.holds.pinned()
    view.show_list(manifests, aliases, pinned, as_json=as_json)


@checkpoints_app.command("show")
def show(
    version: Annotated[str, typer.Argument(help="A number, an alias, or latest.")],
    store: StoreOption = DEFAULT_STORE,
    model: ModelOption = None,
    as_json: JsonOption = False,
    trust: TrustOption = None,
) -> None:
    """Show everything the manifest says."""
    with sentences():
        opened = open_one(store, model, trust)
        manifest = opened.manifest(opened.resolve(version))
    view.show_manifest(manifest, as_json=as_json)


@checkpoints_app.command("verify")
def verify_version(
    version: Annotated[str, typer.Argument(help="A number, an alias, latest, or a folder.")],
    store: StoreOption = DEFAULT_STORE,
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
    start = time.monotonic()
    with sentences():
        if Path(version).is_dir():
            verdict = verify_folder(Path(version), scan=scan)
        else:
            opened = open_one(store, model, trust)
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
        seconds = time.monotonic() - start
        view.print_json({"refused": verdict.refused, **msgspec.to_builtins(verdict), "seconds": seconds})
    else:
        print(verdict.text())
    raise typer.Exit(1 if verdict.refused else 0)


@checkpoints_app.command("pin")
def pin(
    version: str,
    store: StoreOption = DEFAULT_STORE,
    model: ModelOption = None,
    remove: Annotated[bool, typer.Option("--remove", help="Let it go again.")] = False,
    reason: Annotated[str, typer.Option(help="Shown to others.")] = "",
) -> None:
    """Keep a version whatever retention says."""
    with sentences():
        opened = open_one(store, model, None)
        number = opened.resolve(version)
        if remove:
            opened.holds.unpin(number)
        else:
            opened.holds.pin(number, reason)
        opened.journal.append("unpinned" if remove else "pinned", version=number, detail={"reason": reason})
    print(f"version {number} {'may go' if remove else 'stays'}")


@checkpoints_app.command("gc")
def collect(
    store: StoreOption = DEFAULT_STORE,
    model: ModelOption = None,
    keep: Annotated[int, typer.Option(min=1, help="The newest so many stay.")] = 10,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only say what would go.")] = False,
    as_json: JsonOption = False,
) -> None:
    """Remove versions that nothing needs: neither new, nor aliased, pinned or being copied."""
    with sentences():
        opened = open_one(store, model, None)
        plan = opened.plan_removal(keep) if dry_run else opened.collect(keep)
    if as_json:
        view.print_json(msgspec.to_builtins(plan, str_keys=True))
    else:
        view.show_plan(plan, dry_run=dry_run)


@checkpoints_app.command("diff")
def diff(
    a: Annotated[str, typer.Argument(metavar="A")],
    b: Annotated[str, typer.Argument(metavar="B")],
    store: StoreOption = DEFAULT_STORE,
    model: ModelOption = None,
    as_json: JsonOption = False,
) -> None:
    """What changed from one version to another: tensors, files, launch facts, and the swap it allows."""
    with sentences():
        opened = open_one(store, model, None)
        left, right = (_with_tensors(opened, name) for name in (a, b))
    view.show_diff(left, right, as_json=as_json)


def _with_tensors(store: Store, name: str) -> tuple[Manifest, tuple[TensorEntry, ...]]:
    manifest = store.manifest(store.resolve(name))
    return manifest, store.tensors(manifest)
