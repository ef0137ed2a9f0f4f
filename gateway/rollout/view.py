"""What a rollout is decided from: everything that is known at one moment, as plain data.

Made anew for each round by `gateway.rollout.watch`; nothing in it is remembered from rounds before but
for how long things have been as they are. Pure.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from backends.contract import BackendStatus
from backends.versions import BASE, number_of
from checkpoints.rollouts import Rollout
from gateway.rollout.evidence import Evidence
from gateway.settings.rollout import Rollout as Options


@dataclass(frozen=True, slots=True)
class Weights:
    """One version: its number in the store, its label, its content digest."""

    number: int
    label: str
    digest: str = ""

    @property
    def known_label(self) -> str | None:
        """The label, where it can be known without asking a member."""
        return None if self.number == BASE else self.label

    def are(self, label: str) -> bool:
        """Whether a member that says `label` serves these. Of base models only the number is known."""
        return number_of(label) == BASE if self.number == BASE else label == self.label


BASE_MODEL = Weights(BASE, "base")
"""What engines are launched with."""


@dataclass(frozen=True, slots=True)
class Seen:
    """One member, as its agent and the fleet see it."""

    name: str
    status: BackendStatus | None = None
    """What its agent said last; None: nobody answers."""
    agent: bool = True
    """It has an agent that is known. Without one its weights cannot be changed."""
    leasable: bool = True
    """The fleet gives it requests."""
    away_s: float = 0.0
    """For how long its agent has not answered, or an operator has kept it out of rotation."""
    version: str = ""
    """The label that its answers carry."""


@dataclass(frozen=True, slots=True)
class Checked:
    """What the static check says of a version."""

    version: int
    refusal: str | None
    """Why it will not be served; None: it may."""


@dataclass(frozen=True, slots=True)
class View:
    """One model at one moment."""

    model: str
    now: float
    """Unix seconds."""
    options: Options
    record: Rollout | None
    serving: Weights
    """What should be served: the alias, or the base model."""
    candidate: Weights | None
    """The newest that was published."""
    members: tuple[Seen, ...]
    quarantined: Mapping[str, str] = field(default_factory=dict)
    """Reasons by digest."""
    checked: Checked | None = None
    evidence: Evidence | None = None
    """Of the canary, since it has its share."""
    stalled_s: float = 0.0
    """For how long no member has come any further."""
    by: str = ""
    """Who decides."""
