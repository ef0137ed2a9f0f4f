"""The section `export:` of the training configuration. Needs pydantic only."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, Self

from pydantic import BeforeValidator, Field, model_validator

from training.config.section import Section, lower


class Moment(StrEnum):
    SAVE = "save"
    STEPS = "steps"
    BEST = "best"


class Weights(StrEnum):
    AUTO = "auto"
    FULL = "full"
    ADAPTER = "adapter"
    MERGED = "merged"


class NumberType(StrEnum):
    AUTO = "auto"
    FLOAT32 = "float32"
    BFLOAT16 = "bfloat16"
    FLOAT16 = "float16"


class ProbeIn(StrEnum):
    PROCESS = "process"
    THREAD = "thread"
    OFF = "off"


class ExportSettings(Section):
    """Publish weights into a checkpoint store as the run goes."""

    store: str = Field(min_length=1)
    """A folder, `s3://bucket/prefix` or `webhdfs://host:port/path`."""
    model: str = Field(min_length=1, pattern=r"^[A-Za-z0-9_][A-Za-z0-9_.-]*$")
    """The model's name in the store: as clients of the gateway call it."""
    run: str | None = Field(default=None, pattern=r"^[A-Za-z0-9_][A-Za-z0-9_.-]*$")
    """Name of this run in the store. Default: made up once and kept in the output folder."""
    on: Annotated[Moment, BeforeValidator(lower)] = Moment.SAVE
    """`save`: with each checkpoint; `steps`: every `every` optimizer steps; `best`: when `metric` is better
    than ever."""
    every: int = Field(default=100, ge=1)
    """Optimizer steps between two versions, for `on: steps`."""
    metric: str = Field(default="eval_loss", min_length=1)
    """What the trainer logs, for `on: best`."""
    greater_is_better: bool = False
    """Whether a larger `metric` is a better one."""
    weights: Annotated[Weights, BeforeValidator(lower)] = Weights.AUTO
    """Of a run that trains an adapter: `adapter` alone, or `merged` into the model (`auto`). Else `full`."""
    base_version: int | None = Field(default=None, ge=1)
    """For `adapter`: the version of the store that it rests on. Default: the base model."""
    dtype: Annotated[NumberType, BeforeValidator(lower)] = NumberType.AUTO
    """Number type of published weights. `auto`: as in the folder that the run began with."""
    untie: bool | None = None
    """Write a tied output head out, so that engines can reload it. Default: as the newest version."""
    restart_allowed: bool = False
    """Publish although configuration, tokenizer or template differ from the newest version's."""
    take_over: bool = False
    """Publish although another run has superseded this one."""
    probe: Annotated[ProbeIn, BeforeValidator(lower)] = ProbeIn.PROCESS
    """Where the probe is made: in a `process` of low priority, in a `thread` of the trainer (sooner done, but
    training may be slower meanwhile), or `off`."""
    probe_seconds: float = Field(default=30.0, ge=0)
    """For the numbers that find a single stale tensor."""
    staging: str | None = None
    """Folder for the one checkpoint that is being published. Default: `export` in the output folder."""
    sign: str | None = None
    """Private key (PEM) that manifests are signed with."""
    retry_max_s: float = Field(default=60.0, gt=0)
    """Longest wait between two attempts while the store is down; begins with 1 s and doubles."""
    finish_s: float = Field(default=300.0, ge=0)
    """How long the end of the run waits for what is not yet published."""

    @model_validator(mode="after")
    def _agrees(self) -> Self:
        if self.base_version is not None and self.weights is not Weights.ADAPTER:
            raise ValueError("base_version is for `weights: adapter`")
        return self
