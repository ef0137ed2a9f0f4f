"""The options of `rollout:`: how new weights come to serve, and what makes them be taken back."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, Self

from pydantic import BeforeValidator, Field, model_validator

from backends.contract import InFlight, ProbeRule
from backends.settings import Section
from gateway.settings.values import Contradictions, HeaderName, lower


class RolloutMode(StrEnum):
    ROLLING = "rolling"
    CANARY = "canary"
    ATOMIC = "atomic"


class LeaseKind(StrEnum):
    AUTO = "auto"
    FILE = "file"
    REDIS = "redis"


class Canary(Section):
    """`mode: canary`: a share of the requests first, and what is compared before the rest follows."""

    share: float = Field(default=0.1, gt=0, le=1)
    """Share of the requests that the candidate answers."""
    sticky_header: HeaderName | None = None
    """Requests with the same value of this header go to the same version. None: each is counted out anew."""
    min_requests: int = Field(default=50, ge=1)
    """Least answers of the candidate before anything is concluded."""
    min_s: float = Field(default=10, ge=0)
    """Least time before it is promoted."""
    max_s: float = Field(default=1800, gt=0)
    """A candidate that has not come to `min_requests` by then is taken back."""
    max_error_ratio_increase: float = Field(default=0.02, ge=0, le=1)
    """Taken back when the candidate's share of errors is above the stable version's by more than this."""
    max_latency_ratio: float = Field(default=1.5, ge=1)
    """Taken back when its P99 latency or TTFT is above this multiple of the stable version's."""
    max_length_ratio: float = Field(default=2.0, ge=1)
    """Taken back when its answers are longer or shorter by more than this factor."""
    shadow: float = Field(default=0, ge=0, le=1)
    """Share of the requests that the candidate answers as well, unseen, before it gets its share."""


class Rollout(Section):
    """How new weights come to serve."""

    auto: bool = True
    """Roll out each version that is published, the newest first. Otherwise: `changeover rollout start`."""
    mode: Annotated[RolloutMode, BeforeValidator(lower)] = RolloutMode.ROLLING
    """`rolling` (one member after the other), `canary` (a share first), or `atomic` (all change between two
    moments, requests in between wait: for on-policy RL)."""
    max_unavailable: int = Field(default=1, ge=1)
    """Members that may be out of rotation at a time (`atomic`: all are)."""
    wait_s: float = Field(default=30, ge=0)
    """How long a member waits for its requests in flight."""
    then: Annotated[InFlight, BeforeValidator(lower)] = InFlight.CONTINUE
    """After that: `continue` them on another member of the same version, or `abort` them."""
    probe: Annotated[ProbeRule, BeforeValidator(lower)] = ProbeRule.IF_PRESENT
    """Whether a version must carry a probe and pass it: `required`, `if_present` or `off`."""
    limits: dict[str, float] = Field(default_factory=dict)
    """Single parity limits that replace the defaults, as `mean: 0.05` (docs/checkpoints.md)."""
    warm_up: int = Field(default=4, ge=0)
    """Requests that a swapped member answers before it takes traffic."""
    member_deadline_s: float = Field(default=900, gt=0)
    """For one member's swap, a restart included."""
    max_failed_members: int = Field(default=1, ge=1)
    """Members that may fail to take a version before it is taken back everywhere."""
    poll_s: float = Field(default=1, gt=0)
    """Between two looks at the store."""
    lease: Annotated[LeaseKind, BeforeValidator(lower)] = LeaseKind.AUTO
    """Who leads is decided by a `file` (gateways on one machine) or by `redis`; `auto`: by Redis where the
    cache is there."""
    canary: Canary = Canary()

    @model_validator(mode="after")
    def _agree(self) -> Self:
        with Contradictions(self) as found:
            found.at_most("wait_s", "member_deadline_s", "a member's swap ends before its requests may")
        return self
