"""How commands name a store and a model, and how a store's failures become sentences."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

import typer

from checkpoints.errors import CheckpointError
from checkpoints.store.open import models, open_store
from checkpoints.store.store import Store
from gateway.cli.options import fail

DEFAULT_STORE = "checkpoint-store"
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


def open_one(store: str, model: str | None, trust: list[Path] | None) -> Store:
    """The store of that model, or of its only one; ends with 1 where that is not clear."""
    check = None
    if trust:
        from checkpoints.signatures import checker

        check = checker(trust)
    return open_store(store, model or only_model(store), check=check)


def only_model(store: str) -> str:
    """The store's model, if it has one only; ends with 1 otherwise."""
    found = models(store)
    if not found:
        fail(f"{store}: has no checkpoints")
    if len(found) > 1:
        fail(f"{store}: has several models, name one with --model: {', '.join(found)}")
    return found[0]
