"""Files of checkpoints, broken: each reader must take them or refuse them with an error of its own kind."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from pathlib import Path
from random import Random

from checkpoints import manifest, tensors
from checkpoints.draft import Request
from checkpoints.errors import CheckpointError
from checkpoints.probe.contract import SCHEMA, Counterfactual, Probe, Scored, decode_probe, encode_probe
from checkpoints.publish import publish
from checkpoints.store.local import LocalFiles
from checkpoints.store.store import Store
from checkpoints.verify import verify_folder
from tests.checkpoints.models import write_model
from tests.fuzz.mutate import mutated
from tests.fuzz.tally import Tally

Reader = Callable[[bytes], object]

LARGEST = 4096
"""Of a file of which pieces go into others."""
PROBE = encode_probe(
    Probe(
        SCHEMA,
        "float32",
        (Scored((1, 2, 3), (-0.5, -1.5), ((2, 5), (3, 5)), ((-0.5, -2.0), (-1.5, -1.0))),),
        (Counterfactual("head", ("lm_head.weight",), ((-0.6, -1.4),)),),
        bos=1,
    )
)


def fuzz_readers(count: int, seed: int) -> Tally:
    """So many broken manifests, tensor indexes, probes, safetensors files and configurations."""
    tally = Tally()
    random = Random(seed)
    with tempfile.TemporaryDirectory() as made:
        folder = Path(made)
        model = write_model(folder / "model")
        whole = publish(model, Store(LocalFiles(folder / "store"), "toy"), Request("run", 1)).manifest
        weights = next(model.glob("*.safetensors"))
        names = [path for path in sorted(model.iterdir()) if path.is_file()]
        subjects: list[tuple[str, bytes, Reader]] = [
            ("manifest", manifest.encode(whole), manifest.decode),
            ("tensor index", _stored(folder, manifest.TENSORS_FILE), manifest.decode_index),
            ("probe", PROBE, lambda data: decode_probe(data, "probe.json")),
            ("safetensors", weights.read_bytes(), _through(weights, tensors.read_header)),
            *(
                (path.name, path.read_bytes(), _through(path, lambda _: verify_folder(model)))
                for path in names
            ),
        ]
        others = [data[:LARGEST] for _, data, _ in subjects]
        for number in range(count):
            name, data, read = subjects[number % len(subjects)]
            broken = mutated(data, random, others)
            tally.inputs += 1
            try:
                read(broken)
            except CheckpointError:
                pass
            except Exception as error:
                tally.crash(f"{name}, input {number} of seed {seed}: {type(error).__name__}: {error}")
    return tally


def _stored(folder: Path, name: str) -> bytes:
    return next((folder / "store").rglob(name)).read_bytes()


def _through(path: Path, read: Callable[[Path], object]) -> Reader:
    """A reader of files as one of bytes; the file is put back."""
    whole = path.read_bytes()

    def through(data: bytes) -> object:
        path.write_bytes(data)
        try:
            return read(path)
        finally:
            path.write_bytes(whole)

    return through
