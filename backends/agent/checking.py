"""The static check of a version against what an engine serves, from the folders that both lie in."""

from __future__ import annotations

from pathlib import Path

from backends.agent.ways import Change
from backends.agent.weights import Weights
from checkpoints.contents import read_contents
from checkpoints.errors import RefusedError
from checkpoints.verdict import Code, Finding, Swap, Verdict
from checkpoints.verify import Served, check_against_served

_Place = tuple[Path, int, int]
"""A file, and where in it a tensor's bytes begin and end."""
_CHUNK = 4 * 1024 * 1024
_HUB = Finding(Code.CONFIG, "the served model lies in a hub's cache: it cannot be compared", refuses=False)


def change_between(served: Weights, new: Weights) -> Change:
    """What changes, and the cheapest way that this allows. Reads headers and JSON files; blocking.

    Raises RefusedError where no engine could take it; OSError.
    """
    if new.adapter is not None or (served.adapter is not None and served.model == new.model):
        return Change(Swap.ADAPTER, same_base=served.model == new.model)
    if served.folder is None or new.folder is None:
        return Change(Swap.RESTART, (_HUB,))
    now = read_contents(served.folder)
    running = Served(now.kind, now.digests, now.tensors())
    contents = read_contents(new.folder)
    findings, swap = check_against_served(contents, running, restart_allowed=True)
    if any(finding.refuses for finding in findings):
        tensors = sum(len(header.tensors) for header in contents.headers.values())
        raise RefusedError(Verdict(tuple(findings), swap, tensors, len(contents.files)))
    return Change(swap, tuple(findings))


def same_tensors(one: Weights, other: Weights) -> bool:
    """Whether the full weights of both are the same numbers under the same names. Reads all of them."""
    if one.folder is None or other.folder is None:
        return False
    here, there = _places(one.folder), _places(other.folder)
    return here.keys() == there.keys() and all(_equal(here[name], there[name]) for name in here)


def _places(folder: Path) -> dict[tuple[str, str], _Place]:
    headers = read_contents(folder).headers
    return {
        (tensor.name, tensor.dtype): (folder / file, tensor.start, tensor.end)
        for file, header in headers.items()
        for tensor in header.tensors
    }


def _equal(one: _Place, other: _Place) -> bool:
    (path, start, end), (path_2, start_2, end_2) = one, other
    if end - start != end_2 - start_2:
        return False
    with path.open("rb") as file, path_2.open("rb") as file_2:
        file.seek(start)
        file_2.seek(start_2)
        for at in range(0, end - start, _CHUNK):
            size = min(_CHUNK, end - start - at)
            if file.read(size) != file_2.read(size):
                return False
    return True
