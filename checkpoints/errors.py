"""Everything that can go wrong with checkpoints, as one tree.

CheckpointError
├── ManifestError        a manifest that cannot be trusted: unreadable, of another schema, with an unsafe path
├── TensorFileError      a weights file that is not well-formed safetensors
├── RefusedError         the static check found reasons not to publish or serve (carries the verdict)
├── SourceChangedError   the trainer's folder changed or went away while it was being copied
├── FencedError          this run may not publish this step: superseded, behind, or taken by other weights
├── SignatureError       unsigned, signed by somebody unknown, or altered after signing
├── IntegrityError       bytes in the store are not those the manifest names
└── StoreError           the store refused or failed: full, unreachable, no such version
    ├── NotFoundError    no such version or alias
    └── ConflictError    somebody else moved the alias, or the version is being deleted

Messages say what happened, with names, and what to do about it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from checkpoints.verdict import Verdict


class CheckpointError(Exception):
    """Root of the tree."""


class ManifestError(CheckpointError):
    """The manifest cannot be trusted."""


class TensorFileError(CheckpointError):
    """A weights file is not well-formed safetensors."""

    def __init__(self, path: str, reason: str) -> None:
        super().__init__(f"{path}: {reason}")
        self.path = path
        self.reason = reason


class RefusedError(CheckpointError):
    """The static check refused the checkpoint; `verdict` holds every reason with its names."""

    def __init__(self, verdict: Verdict) -> None:
        super().__init__(verdict.text())
        self.verdict = verdict


class SourceChangedError(CheckpointError):
    """The folder changed under the publisher."""


class FencedError(CheckpointError):
    """This run may not publish this step."""


class SignatureError(CheckpointError):
    """The manifest's signature is missing, unknown or wrong."""


class IntegrityError(CheckpointError):
    """Stored bytes differ from what the manifest names."""


class StoreError(CheckpointError):
    """The store refused or failed."""


class NotFoundError(StoreError):
    """No such version or alias."""


class ConflictError(StoreError):
    """Somebody else was first."""
