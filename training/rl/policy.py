"""The policy's way into the engines: copied, published, rolled out, and awaited.

An update counts only when every engine serves it: the rollout of its version must end as promoted. One that
is refused or taken back ends the run with the reason that the prober found; the fleet then still serves the
version before.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from checkpoints.errors import StoreError
from checkpoints.rollouts import Rollout, Stage
from training.exporter.publisher import Outcome

log = logging.getLogger("training.rl")
_LOOK_S = 0.1


class PolicyRefused(Exception):
    """New weights do not come to serve; the message says why and what to do."""


class Begins(Protocol):
    """Whoever starts rollouts (`training.rl.gateway.Gateway`)."""

    def begin(self, version: int) -> None:
        """Begin one; returns at once."""


@dataclass(frozen=True, slots=True)
class Swapped:
    """A version that serves. Seconds: of writing it out, of probe and publishing, and of the rollout."""

    step: int
    version: int
    write_s: float
    publish_s: float
    swap_s: float


def await_rollout(
    outcome: Outcome,
    gateway: Begins,
    look: Callable[[], Rollout | None],
    limit_s: float,
    clock: Callable[[], float] = time.monotonic,
    sleep: Callable[[float], None] = time.sleep,
) -> Swapped:
    """Wait until the published version serves everywhere.

    Args:
        look: the store's present rollout; may raise StoreError, which is waited out.

    Raises:
        PolicyRefused: it was not published, refused, taken back, or not in time.
    """
    if outcome.manifest is None:
        raise PolicyRefused(f"the policy of step {outcome.step} is not published: {outcome.reason}")
    version = outcome.manifest.version
    began = clock()
    gateway.begin(version)
    state = None
    while (spent := clock() - began) < limit_s:
        try:
            state = look()
        except StoreError as error:
            log.warning("the store does not answer: %s", error)
        if state is not None and state.version == version and not state.active:
            if state.stage is Stage.PROMOTED:
                times = outcome.timings
                return Swapped(
                    outcome.step, version, times.get("write", 0.0), times.get("publish", 0.0), spent
                )
            raise PolicyRefused(_said(version, state))
        sleep(_LOOK_S)
    stage = f"it is {state.stage.value}" if state is not None and state.version == version else "none began"
    raise PolicyRefused(
        f"version {version} does not serve after {limit_s:.0f} s: {stage}. Does the gateway use the same "
        "store and model (its section checkpoints), and is rollout.auto on or rl.admin_token set?"
    )


def _said(version: int, state: Rollout) -> str:
    return (
        f"version {version} was {state.stage.value.replace('_', ' ')}: {state.reason}. The engines serve "
        f"{state.from_label or 'what they did'} on; `changeover verify {version} --against URL` tells more"
    )
