"""The section `rl:` of the training configuration. Needs pydantic only."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, Self

from pydantic import BeforeValidator, Field, SecretStr, model_validator

from training.config.section import Section, lower


class OnDrift(StrEnum):
    WARN = "warn"
    STOP = "stop"


class RlSettings(Section):
    """GRPO with rollouts from the gateway: each update is published (`export`) and swapped in."""

    gateway: str = Field(min_length=1, pattern=r"^https?://")
    """Where it answers, as `http://localhost:8000`."""
    api_key: SecretStr | None = None
    """Of the gateway's clients, as `${CHANGEOVER_API_KEY}`."""
    admin_token: SecretStr | None = None
    """With it rollouts are started by `/admin/rollouts`, atomic; else by the gateway (`rollout.auto`)."""
    publish_every: int = Field(default=1, ge=1)
    """Optimizer steps between two versions of the policy."""
    max_staleness: int = Field(default=0, ge=0)
    """Versions that a sample may be behind the newest; older ones are not used."""
    top_p: float = Field(default=1.0, gt=0, le=1)
    """Of sampling. Other values than 1 need engines with `--logprobs-mode processed_logprobs`, as does a
    `grpo.temperature` other than 1."""
    parallel: int = Field(default=8, ge=1, le=256)
    """Groups that are asked for at a time."""
    request_limit_s: float = Field(default=300.0, gt=0)
    """For one group, retries included."""
    swap_limit_s: float = Field(default=600.0, gt=0)
    """Until every engine serves a new version."""
    drift_k3: float = Field(default=0.02, gt=0)
    """k3 between trainer and engines above which an alarm is raised."""
    drift_mean: float = Field(default=0.15, gt=0)
    """Mean difference of log-probabilities above which an alarm is raised."""
    on_drift: Annotated[OnDrift, BeforeValidator(lower)] = OnDrift.WARN
    """`warn`, or `stop` the run at the second step in a row."""
    trajectories: bool = True
    """Keep samples and rewards in the store (`trajectories/`, Parquet)."""
    trajectories_kept: int = Field(default=1000, ge=1)
    """Files of trajectories that are kept; the oldest are removed."""


class Mix(Section):
    """Where the groups of a batch come from: `online` from the gateway, `offline` from kept trajectories."""

    online: float = Field(default=1.0, ge=0, le=1)
    """Share that is sampled anew."""
    offline: float = Field(default=0.0, ge=0, le=1)
    """Share that is taken from earlier samples of the same prompts, with what users said of them."""

    @model_validator(mode="after")
    def _agrees(self) -> Self:
        if abs(self.online + self.offline - 1.0) > 1e-6:
            raise ValueError("online and offline are shares: together they must be 1")
        return self
