"""Runs the corpus of broken checkpoints and counts: `python -m tests.checkpoints.refusals`.

A kind counts as refused if it was refused with a reason of its own kind and names, and as served
wrong if a version of it could be seen in the store, or fetched, all the same.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

from checkpoints.draft import Request
from checkpoints.errors import CheckpointError, ManifestError, RefusedError
from checkpoints.publish import publish
from checkpoints.store.local import LocalFiles
from checkpoints.store.store import Store
from checkpoints.verdict import Code
from checkpoints.verify import verify_folder
from tests.checkpoints.corpus import STORED_KINDS, TRAINER_KINDS, Kind
from tests.checkpoints.models import write_model


def broken_folder(kind: Kind, root: Path) -> tuple[bool, bool, str]:
    """Refused, served wrong, the reason: of a trainer's folder that is broken."""
    store = _store_with_a_good_version(root)
    kind.make(root / "bad")
    try:
        publish(root / "bad", store, Request("run", 2))
    except RefusedError as error:
        named = all(finding.names for finding in error.verdict.findings if finding.refuses)
        reasons = [finding.text() for finding in error.verdict.findings if finding.code in kind.seen]
        return (
            bool(reasons) and named,
            store.versions() != [1],
            reasons[0] if reasons else error.verdict.text(),
        )
    return False, True, "published"


def broken_version(kind: Kind, root: Path) -> tuple[bool, bool, str]:
    """The same of a version that was altered after it was published."""
    store = _store_with_a_good_version(root)
    folder = root / "store" / "versions" / "0000000001"
    kind.make(folder)
    try:
        verdict = verify_folder(folder, manifest=store.manifest(1))
        reasons = [finding.text() for finding in verdict.findings if finding.code in kind.seen]
    except ManifestError as error:
        reasons = [str(error)] if kind.seen == {Code.MANIFEST} else []
    try:
        store.fetch(1, root / "fetched")
        fetched = kind.seen != {Code.FILE_EXTRA}  # what the manifest does not name is not fetched at all
    except CheckpointError:
        fetched = False
    return bool(reasons), fetched, reasons[0] if reasons else "accepted"


def _store_with_a_good_version(root: Path) -> Store:
    store = Store(LocalFiles(root / "store"), "toy")
    publish(write_model(root / "good", seed=1), store, Request("run", 1))
    return store


def main() -> None:
    """Print a line for each kind and the counts last."""
    refused = wrong = 0
    cases = [(kind, broken_folder) for kind in TRAINER_KINDS] + [
        (kind, broken_version) for kind in STORED_KINDS
    ]
    for kind, attempt in cases:
        with tempfile.TemporaryDirectory() as made:
            was_refused, was_served, reason = attempt(kind, Path(made))
        refused += was_refused
        wrong += was_served
        print(f"{'refused ' if was_refused else 'ACCEPTED'} {kind.name:44} {reason[:110]}")
    print(f"refused_before_engine={refused}/{len(cases)} served_wrong={wrong}")
    sys.exit(0 if refused == len(cases) and not wrong else 1)


if __name__ == "__main__":
    main()
