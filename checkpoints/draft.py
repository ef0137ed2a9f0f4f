"""What a publisher says besides the bytes, and the manifest that comes of it: pure.

The draft has everything but what is known only at the commit: number, parent, place, signature.
"""

from __future__ import annotations

from datetime import UTC, datetime

import msgspec

from checkpoints import architecture
from checkpoints.contents import Contents
from checkpoints.digest import Source, Sums
from checkpoints.manifest import (
    PROBE_FILE,
    SCHEMA,
    TENSORS_FILE,
    FileEntry,
    Form,
    Manifest,
    TensorEntry,
    WeightsKind,
    content_digest,
    encode_index,
)
from checkpoints.probe.contract import decode_probe
from checkpoints.scan import Scan

Metrics = dict[str, float | int | str | bool]


class Request(msgspec.Struct, frozen=True):
    """What is published besides the files."""

    run: str
    step: int
    kind: WeightsKind | None = None
    """Default: what the folder holds."""
    untie: bool | None = None
    """Write a tied model's output head out, so that engines can reload it. None: as the newest version."""
    base: int | None = None
    """Adapters: the version of this store that they rest on."""
    metrics: Metrics = msgspec.field(default_factory=dict)
    probe: bytes | None = None
    """An encoded probe of these weights."""
    take_over: bool = False
    """This run is the right one although another has superseded it."""
    restart_allowed: bool = False
    """Publish although configuration, tokenizer or template differ from the newest version's."""
    scan: Scan = Scan.SAMPLED
    bytes_per_s: float | None = None
    """Copy no faster than this, to leave room for others on a shared storage."""


def extra_files(contents: Contents, sums: list[Sums], probe: bytes | None) -> list[Source]:
    """The files of our own: the tensor index with the checksums found while copying, and the probe."""
    digests = {name: digest for item in sums for name, digest in item.tensors.items()}
    tensors = [
        TensorEntry(tensor.name, tensor.dtype, tensor.shape, tensor.file, digests.get(tensor.name, ""))
        for tensor in contents.tensors()
    ]
    extra = [Source(TENSORS_FILE, (encode_index(tensors),))]
    return extra if probe is None else [*extra, Source(PROBE_FILE, (probe,))]


def draft(model: str, request: Request, contents: Contents, entries: list[FileEntry], form: Form) -> Manifest:
    """A manifest with `version`, `parent` and `data` still to be filled in."""
    files = tuple(sorted(entries, key=lambda entry: entry.path))
    tensors = contents.tensors()
    dtypes = [tensor.dtype for tensor in tensors if len(tensor.shape) > 1]
    return Manifest(
        schema=SCHEMA,
        model=model,
        version=1,
        run=request.run,
        step=request.step,
        parent=None,
        kind=request.kind or contents.kind,
        created=datetime.now(UTC).isoformat(timespec="seconds"),
        digest=content_digest(files),
        data="unset",
        files=files,
        digests=contents.digests,
        tensor_count=len(tensors),
        architecture=architecture.architecture(contents.config),
        dtype=max(sorted(set(dtypes)), key=dtypes.count) if dtypes else None,
        base=request.base,
        form=form,
        golden=() if request.probe is None else decode_probe(request.probe, "the probe").golden,
        metrics=request.metrics,
    )
