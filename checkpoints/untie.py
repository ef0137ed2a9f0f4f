"""Makes the untied form of a folder on this machine: for versions that were published tied.

An agent calls it after it has fetched and verified a version that its engine could not reload in
place. The copy has no manifest: it is not the version's bytes, only the version's numbers.
"""

from __future__ import annotations

import os
from concurrent.futures import Executor
from pathlib import Path

from checkpoints.contents import read_contents
from checkpoints.digest import Reading, Source, Sums, in_parallel
from checkpoints.errors import CheckpointError
from checkpoints.layout import untied


def write_untied(folder: Path, target: Path) -> None:
    """Write the files of `folder` to the new folder `target` with an output head of their own.

    Raises:
        CheckpointError: there is nothing to untie, or `target` exists.
        SourceChangedError: a file went away meanwhile.
        OSError: reading or writing failed; `target` is incomplete then.
    """
    _, sources = untied(folder, read_contents(folder))
    if target.exists():
        raise CheckpointError(f"{target} exists already")

    def write(source: Source, hashers: Executor) -> Sums:
        path = target / source.path
        path.parent.mkdir(parents=True, exist_ok=True)
        reading = Reading(source, hashers)
        with path.open("xb") as file:
            for chunk in reading:
                file.write(chunk)
            file.flush()
            os.fsync(file.fileno())
        return reading.sums()

    in_parallel(write, sources)
