"""What a plan may tell its performer to do. Plain data; each step may be done twice without harm."""

from __future__ import annotations

from dataclasses import dataclass

from backends.contract import SwapOrder
from checkpoints.rollouts import Quarantined, Rollout


@dataclass(frozen=True, slots=True)
class Check:
    """Compare a version with what is served, without an engine."""

    version: int


@dataclass(frozen=True, slots=True)
class Prepare:
    """Have a member fetch and verify a version while it serves on."""

    member: str
    version: int


@dataclass(frozen=True, slots=True)
class Swap:
    """Have a member take other weights. The same order again is the same swap."""

    member: str
    order: SwapOrder


@dataclass(frozen=True, slots=True)
class Release:
    """Let a member that holds at the new weights serve."""

    member: str
    id: str


@dataclass(frozen=True, slots=True)
class Serve:
    """Point `serving` at a version (0: at none, which is the base model)."""

    version: int
    reason: str


@dataclass(frozen=True, slots=True)
class Quarantine:
    """Keep weights from being tried again."""

    entry: Quarantined


@dataclass(frozen=True, slots=True)
class Save:
    """Write the record, if it still is what the plan was made from. Nothing after it is done otherwise."""

    record: Rollout


Step = Check | Prepare | Swap | Release | Serve | Quarantine | Save


@dataclass(frozen=True, slots=True)
class Plan:
    """The next steps, in order, and what comes next in words."""

    steps: tuple[Step, ...]
    next: str
