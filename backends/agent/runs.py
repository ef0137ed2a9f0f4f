"""One run of an engine, and who decides what the next one is launched with."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import Protocol

from backends.agent.weights import Weights
from backends.vllm.process import EngineProcess
from backends.vllm.reasons import EngineExit


class EngineEnded(RuntimeError):
    """The engine ended while it was counted on, or there is none; the message says why."""


class NotServable(RuntimeError):
    """There is nothing to launch, or what was launched is not what should serve; the message says why."""


@dataclass(slots=True, eq=False)
class Run:
    """From an engine's launch to its end."""

    weights: Weights
    process: EngineProcess
    ordered: bool
    """By a swap, which then proves it."""
    up: asyncio.Event = field(default_factory=asyncio.Event)
    """It answers."""
    gone: asyncio.Event = field(default_factory=asyncio.Event)
    end: EngineExit | None = None
    why: str | None = None
    """Why it was killed, if we did that."""
    adapters: list[str] = field(default_factory=list)
    """Names of those that it has loaded."""

    @property
    def reason(self) -> str:
        """Why it ended."""
        return self.why or (self.end.reason if self.end else "the engine ended")


class Launches(Protocol):
    """Decides what an engine is launched with, and whether it may serve after that."""

    @property
    def proves(self) -> bool:
        """Whether an engine starts out of rotation and has to be proved."""

    async def next(self) -> Weights:
        """What should be served now. Raises NotServable."""

    async def prove(self, run: Run) -> None:
        """Return when this engine, launched with what `next` said, may serve. Raises NotServable."""


class AlwaysBase:
    """Where weights never change."""

    proves = False

    def __init__(self, base: Weights) -> None:
        self._base = base

    async def next(self) -> Weights:
        return self._base

    async def prove(self, run: Run) -> None:
        return None
