"""What a loop leaves in its output folder: `rl.jsonl`, a line for each version that served, and `rl.json`."""

from __future__ import annotations

import msgspec

LINES, TOTALS = "rl.jsonl", "rl.json"


class Update(msgspec.Struct):
    """A line of rl.jsonl: a version, and the samples that it gave. Seconds and nats."""

    version: int
    step: int
    write_s: float
    publish_s: float
    swap_s: float
    at: str
    reward: float | None = None
    """Mean over the samples, of the sum of all reward functions."""
    k3: float | None = None
    mean: float | None = None
    """Of |dlogp|."""
    max: float | None = None
    samples: int = 0
    oldest: int | None = None
    """Version of the oldest sample that was used."""


class Totals(msgspec.Struct):
    """rl.json."""

    updates: int
    """Optimizer steps whose weights came to serve."""
    retried: int
    """Requests for samples that were asked again."""
    stale_samples: int
    """Samples older than allowed that were thrown away unused."""
    stale_used: int
    """Samples older than allowed that were used: 0, unless something is wrong."""
    alarms: int
    k3_max: float
    run: str
