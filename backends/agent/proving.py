"""Does the engine compute what it should? The questions to it, over its own socket, past its guard. Blocking.

A version's probe is replayed and judged (`checkpoints.probe`). Where a version has none, a fingerprint (what
the engine says about a few fixed token ids) still shows that something moved, and that the old weights are
back. Everything here raises EngineError where the engine does not answer as it should.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from random import Random

import msgspec

from backends.agent.weights import Weights
from backends.contract import PROBE_HEADER, TOKEN_HEADER
from backends.control_client import Address
from checkpoints.probe.contract import Probe, decode_probe
from checkpoints.probe.engine import Engine
from checkpoints.probe.judge import Report, judge
from checkpoints.probe.replay import observe, warm_up

TEXTS, TOKENS = 3, 32
LEAST_VOCABULARY = 256
"""Ids below it are in every vocabulary."""
SAME = 0.05
"""Largest difference of log-probabilities that two runs of the same weights may show: batches and their
rounding. Other weights differ by more somewhere."""

Fingerprint = tuple[float, ...]


class Questioner:
    """Asks one engine."""

    def __init__(self, address: Address, token: str, dtype: str) -> None:
        """`dtype`: as the engine was told (`auto` follows the weights)."""
        self._url = f"unix:{address}" if isinstance(address, Path) else address
        self._headers = {TOKEN_HEADER: token, PROBE_HEADER: "1"}
        self._dtype = dtype

    def fill_cache(self, weights: Weights) -> None:
        """Ask the probe's long prompts, as traffic does: a prefix that goes stale is found by it later."""
        if weights.probe is not None:
            with self._engine(None) as engine:
                warm_up(engine, _read(weights.probe))

    def replay(self, weights: Weights, limits: Mapping[str, float]) -> Report | None:
        """The verdict of the version's probe; None if it has none. Seconds for a small model."""
        if weights.probe is None:
            return None
        probe = _read(weights.probe)
        with self._engine(weights.adapter_name) as engine:
            seen = observe(engine, probe)
        return judge(
            probe, seen, engine_dtype=self._engine_dtype(weights), changes=limits, subject=weights.label
        )

    def fingerprint(self, weights: Weights) -> Fingerprint:
        """Log-probabilities of fixed ids by what is loaded now."""
        random = Random(6)  # the same ids each time
        with self._engine(weights.adapter_name) as engine:
            texts = [[random.randrange(3, LEAST_VOCABULARY) for _ in range(TOKENS)] for _ in range(TEXTS)]
            return tuple(place.logprob for ids in texts for place in engine.score(ids))

    def _engine(self, model: str | None) -> Engine:
        return Engine(self._url, model=model, headers=self._headers)

    def _engine_dtype(self, weights: Weights) -> str:
        return engine_dtype(self._dtype, weights.folder)


def same(one: Fingerprint, other: Fingerprint) -> bool:
    """Whether both may be of the same weights."""
    return len(one) == len(other) and all(abs(a - b) <= SAME for a, b in zip(one, other, strict=True))


def summary(report: Report) -> str:
    """One sentence for people."""
    breaches = f" ({'; '.join(report.breaches)})" if report.breaches else ""
    return f"{report.diagnosis.cause}: {report.diagnosis.evidence}{breaches}"


def engine_dtype(setting: str, folder: Path | None) -> str:
    """What the engine computes in: as set, else the weights' own, fp32 lowered as vLLM's `auto` does."""
    known = {"half": "float16", "float": "float32", "float32": "float32", "float16": "float16"}
    if setting != "auto":
        return known.get(setting, setting)
    if folder is None:
        return "bfloat16"
    config = msgspec.json.decode((folder / "config.json").read_bytes(), type=dict[str, object])
    found = config.get("dtype", config.get("torch_dtype"))
    return "float16" if found == "float16" else "bfloat16"


def _read(path: Path) -> Probe:
    return decode_probe(path.read_bytes(), str(path))
