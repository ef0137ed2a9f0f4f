"""What of a version's record alone forbids to serve it: read from the store before any engine hears of it.

Cheap, and done once for the whole fleet; each agent checks the bytes themselves when it has fetched them
(`checkpoints.verify`). A storage that fails says nothing about a version: that is raised, not concluded.
"""

from __future__ import annotations

from checkpoints.errors import IntegrityError, ManifestError, NotFoundError, SignatureError
from checkpoints.manifest import PROBE_FILE
from checkpoints.store.store import Store
from checkpoints.verify import compare_versions


def refusal(store: Store, version: int, served: int | None, *, probe_required: bool) -> str | None:
    """Why the version must not be served, where that can be told; None: go on.

    Args:
        served: the version it would replace; None: the base model, of which the store knows nothing.

    Raises:
        StoreError: the storage failed.
    """
    try:
        manifest = store.manifest(version)
        if probe_required and manifest.file(PROBE_FILE) is None:
            return "it carries no probe, and `rollout.probe` requires one"
        new = store.served(version)
        if served is None or served == version:
            return None
        findings, _ = compare_versions(new, store.served(served), restart_allowed=True)
    except (IntegrityError, ManifestError, NotFoundError, SignatureError) as error:
        return str(error)
    return "; ".join(finding.text() for finding in findings if finding.refuses) or None
