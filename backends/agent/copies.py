"""Versions on this machine: fetched, verified, then renamed into place; kept while any agent uses them.

All agents of a machine share one folder. A copy is made by one process while the others wait
(`backends.models.cache`), so what has its name is whole and verified, whenever a process was killed; a full
disk leaves nothing behind. Whoever uses a copy holds a shared lock on it, which ends with the process; only
what nobody uses is removed. Blocking, from any thread; one `Copies` in one process.
"""

from __future__ import annotations

import fcntl
import os
import shutil
from collections.abc import Callable, Collection
from pathlib import Path

from backends.agent.weights import Weights
from backends.models.cache import cached
from backends.models.resolve import ResolvedModel
from backends.versions import BASE, label_of, number_of
from checkpoints.architecture import architecture
from checkpoints.contents import read_contents
from checkpoints.errors import RefusedError, StoreError
from checkpoints.layout import can_untie
from checkpoints.manifest import Manifest
from checkpoints.store.store import Store
from checkpoints.untie import write_untied
from checkpoints.verify import verify_folder

UNTIED = ".untied"
SPARE = 1.05
"""Free space that a copy must find, as a multiple of its size."""
UNTIES = frozenset({"LlamaForCausalLM", "MistralForCausalLM", "Qwen2ForCausalLM", "Qwen3ForCausalLM"})
"""Architectures that vLLM runs with an output head of its own as well; Gemma insists on a tied one."""

Progress = Callable[[int, int], None]


class Copies:
    """`folder` is this model's; `base` what version 0 is; `keep` how many copies stay, used ones besides."""

    def __init__(self, folder: Path, store: Store, base: Weights, keep: int) -> None:
        self._folder = folder
        self._store = store
        self._base = base
        self._keep = keep
        self._verified: set[str] = set()
        self._locks: dict[str, int] = {}

    def label(self, version: int) -> str:
        """Raises NotFoundError, ManifestError, SignatureError, StoreError."""
        if version == BASE:
            return self._base.label
        return label_of(version, self._store.manifest(version).digest)

    def fetch(self, version: int, progress: Progress | None = None) -> Weights:
        """The version on this machine, verified, and locked until `keep_only`. Minutes for large models.

        Raises CheckpointError (RefusedError with the findings) and OSError; nothing is left behind then.
        """
        if version == BASE:
            return self._base
        manifest = self._store.manifest(version)
        label = label_of(version, manifest.digest)
        self._lock(label)
        folder = self._copy(label, manifest, progress)
        if manifest.kind == "adapter":
            below = self.fetch(manifest.base or BASE, progress)
            return Weights(label, version, manifest.digest, below.model, folder, folder)
        model = ResolvedModel(str(untied_form(self._folder, label, folder)), local=True)
        return Weights(label, version, manifest.digest, model, folder)

    def keep_only(self, used: Collection[Weights]) -> None:
        """Give the other copies free, and remove the oldest that nobody on this machine uses."""
        labels = {weights.label for weights in used}
        below = {Path(weights.model.source).name.removesuffix(UNTIED) for weights in used}
        for label in self._locks.keys() - labels - below:
            os.close(self._locks.pop(label))
        versions = sorted(self._present(), key=lambda label: number_of(label) or 0)
        for label in versions[: -self._keep]:
            self._remove_unused(label)
        for partial in self._folder.glob(".*.partial-*"):
            self._remove_abandoned(partial)

    def close(self) -> None:
        for descriptor in self._locks.values():
            os.close(descriptor)
        self._locks.clear()

    def _copy(self, label: str, manifest: Manifest, progress: Progress | None) -> Path:
        target = self._folder / label
        if (
            target.is_dir()
            and label not in self._verified
            and verify_folder(target, manifest=manifest).refused
        ):
            shutil.rmtree(target)  # the disk has changed it since: it is not what was published

        def build(partial: Path) -> None:
            self._need_space(manifest.size())
            self._store.fetch(manifest.version, partial, progress)
            verdict = verify_folder(partial, manifest=manifest)
            if verdict.refused:
                raise RefusedError(verdict)

        cached(self._folder, label, build)
        self._verified.add(label)
        return target

    def _need_space(self, size: int) -> None:
        self._folder.mkdir(parents=True, exist_ok=True)
        free = shutil.disk_usage(self._folder).free
        if free < size * SPARE:
            raise StoreError(
                f"{self._folder} has {free / 1e6:.0f} MB free, the copy needs {size * SPARE / 1e6:.0f}: make "
                "room, set checkpoints.local to a larger disk, or lower checkpoints.keep_local"
            )

    def _present(self) -> list[str]:
        return [path.name for path in self._folder.iterdir() if number_of(path.name)]

    def _lock_file(self, label: str) -> Path:
        return self._folder / f".{label}.used"

    def _lock(self, label: str) -> None:
        if label in self._locks:
            return
        self._folder.mkdir(parents=True, exist_ok=True)
        descriptor = os.open(self._lock_file(label), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        fcntl.flock(descriptor, fcntl.LOCK_SH)
        self._locks[label] = descriptor

    def _remove_unused(self, label: str) -> None:
        if label in self._locks:
            return
        descriptor = os.open(self._lock_file(label), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return
        else:
            for name in (label, label + UNTIED):
                shutil.rmtree(self._folder / name, ignore_errors=True)
            self._verified.discard(label)
        finally:
            os.close(descriptor)

    def _remove_abandoned(self, partial: Path) -> None:
        """What a process that was killed had begun; whoever builds holds the lock of `cached`."""
        with (self._folder / (partial.name.rpartition(".partial-")[0] + ".lock")).open("w") as lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                return
            shutil.rmtree(partial, ignore_errors=True)


def untied_form(copies: Path, name: str, folder: Path) -> Path:
    """The form of a model that engines are started with and reload: with an output head of its own.

    vLLM on CPU does not reload a head that is tied to the embeddings. A model without a tied head, or of an
    architecture that needs it tied, stays as it is. Raises CheckpointError, OSError.
    """
    contents = read_contents(folder)
    if architecture(contents.config) not in UNTIES or not can_untie(contents):
        return folder

    def build(partial: Path) -> None:
        partial.rmdir()
        write_untied(folder, partial)

    return cached(copies, name + UNTIED, build)
