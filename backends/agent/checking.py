"""The static check of a version against what an engine serves, from the folders that both lie in."""

from __future__ import annotations

from backends.agent.ways import Change
from backends.agent.weights import Weights
from checkpoints.contents import read_contents
from checkpoints.errors import RefusedError
from checkpoints.verdict import Code, Finding, Swap, Verdict
from checkpoints.verify import Served, check_against_served

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
