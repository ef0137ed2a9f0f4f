"""What an engine can be given to serve: the base model, or a version that lies on this machine, verified."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from backends.models.resolve import ResolvedModel
from backends.versions import BASE
from checkpoints.manifest import PROBE_FILE


@dataclass(frozen=True, slots=True)
class Weights:
    label: str
    number: int
    """In the store; BASE for the model that the settings name."""
    digest: str
    """Of the contents: equal ones compute the same."""
    model: ResolvedModel
    """Full weights, in the form that engines are started with and reload."""
    version: Path | None = None
    """The version's files as they were published; None for the base."""
    adapter: Path | None = None
    """The adapter that is put on the full weights."""

    @property
    def folder(self) -> Path | None:
        """The full weights; None where they do not lie on this machine."""
        return Path(self.model.source) if self.model.local else None

    @property
    def probe(self) -> Path | None:
        """The probe that was published with it, if one was."""
        path = self.version / PROBE_FILE if self.version is not None else None
        return path if path is not None and path.is_file() else None

    @property
    def adapter_name(self) -> str | None:
        """As the engine knows the adapter: new for each version, since one name keeps its old KV cache."""
        return None if self.adapter is None else f"adapter-{self.label}"


def base_weights(label: str, model: ResolvedModel) -> Weights:
    """The model that the settings name."""
    return Weights(label, BASE, label, model)
