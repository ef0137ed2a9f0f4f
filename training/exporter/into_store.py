"""How the exporter's thread makes a folder a version: store, probe, signature. No torch is imported here
unless the probe is made in the thread."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from pathlib import Path

from checkpoints.contents import ADAPTER_CONFIG
from checkpoints.draft import Request
from checkpoints.manifest import Manifest
from checkpoints.probe.contract import encode_probe
from checkpoints.probe.making import make_probe_with
from checkpoints.publish import publish
from checkpoints.store.open import open_store
from training.exporter.publisher import Publish
from training.exporter.settings import ExportSettings, ProbeIn

MakeProbe = Callable[[Path, Path | None], bytes]


def into_store(settings: ExportSettings) -> Publish:
    """The store is opened at each call, so that one that is down at the start does no harm."""

    def bring(folder: Path, request: Request) -> Manifest:
        opened = open_store(settings.store, settings.model)
        made = publish(
            folder,
            opened,
            request,
            sign=_signer(settings.sign),
            make_probe=None if (folder / ADAPTER_CONFIG).exists() else _maker(settings),
        )
        return made.manifest

    return bring


def _signer(key: str | None) -> Callable[[Manifest], Manifest] | None:
    if key is None:
        return None
    from checkpoints.signatures import signer

    return signer(Path(key))


def _maker(settings: ExportSettings) -> MakeProbe | None:
    seconds = settings.probe_seconds
    if settings.probe is ProbeIn.OFF:
        return None
    if settings.probe is ProbeIn.PROCESS:
        return lambda folder, parent: make_probe_with(
            folder, parent, python=Path(sys.executable), seconds=seconds, polite=True
        )
    return lambda folder, parent: _made_here(folder, parent, seconds)


def _made_here(folder: Path, parent: Path | None, seconds: float) -> bytes:
    from checkpoints.probe.maker import make_probe

    return encode_probe(make_probe(folder, parent=parent, seconds=seconds))


def default_run(output: Path) -> str:
    """The run's name, made up once and kept in its output folder, so that a resumed run goes by the same.

    A training that starts anew in an empty folder is another run, whose steps begin at 0 again.
    """
    kept = output / "export-run"
    try:
        return kept.read_text().strip()
    except FileNotFoundError:
        stem = "".join(one if one.isalnum() or one in "_.-" else "-" for one in output.resolve().name)
        name = f"{stem.lstrip('.-')[:64] or 'run'}-{os.urandom(4).hex()}"
        output.mkdir(parents=True, exist_ok=True)
        kept.write_text(name + "\n")
        return name
