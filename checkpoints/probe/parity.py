"""Does the engine compute what the trainer computed? Pure comparison of log-probabilities.

Two questions, two tools. *Is it near enough?* Means, tails and divergences against limits for the
pair of dtypes. *Is one part of it old?* A matched filter: the difference to the trainer is projected
on the difference that each known fault (a `Counterfactual`) would make. That finds a stale tensor
far below the noise of single tokens, where every limit on averages is met.

k3 is Schulman's estimator of KL (http://joschu.net/blog/kl-approx.html): mean of e^r - 1 - r with
r = trainer - engine. ESS is Kish's: (sum w)^2 / (n sum w^2) with w = e^r, as a share of n.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import msgspec

from checkpoints.errors import ManifestError
from checkpoints.probe.contract import Counterfactual, Probe

Rows = Sequence[Sequence[float]]

_MAX_EXPONENT = 50.0
STALE_SHARE = 0.5
"""An engine that has more than half of a fault's effect has the fault."""
STALE_SIGMAS = 5.0
"""Standard errors from zero that make it no accident, even over hundreds of tensors."""
VISIBLE_ERROR = 0.2
"""A fault whose share cannot be told better than this is invisible to the probe."""


class Numbers(msgspec.Struct, frozen=True):
    """How far apart, over `n` tokens; log-probabilities in nats."""

    n: int
    mean: float
    p99: float
    max: float
    k3: float
    ratio: float
    """Mean of e^|difference|."""
    top1: float
    """Share of places where both find the same token likeliest; NaN-free, 1.0 where unknown."""
    ess: float
    not_finite: int = 0


class Limits(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Most of each number (of `top1` and `ess`: least)."""

    mean: float
    p99: float
    max: float
    k3: float
    ratio: float
    top1: float
    ess: float


# Twice to three times what healthy pairs show (SmolLM2-135M, vLLM 0.32: fp32 against bf16 0.026 / 0.129 /
# 0.145 / 0.0008 / 1.027; bf16 against bf16 0.043 / 0.242 / 0.286 / 0.0025 / 1.045; public reports of bf16
# pairs: mean 0.011, k3 up to 0.001, ratio up to 1.05). A broken reload gives a k3 of 2 to 5.
_EXACT = Limits(mean=0.002, p99=0.02, max=0.1, k3=1e-4, ratio=1.003, top1=0.98, ess=0.999)
_HALF = Limits(mean=0.06, p99=0.35, max=1.2, k3=0.004, ratio=1.07, top1=0.88, ess=0.98)
_TWO_HALVES = Limits(mean=0.09, p99=0.5, max=1.5, k3=0.008, ratio=1.10, top1=0.85, ess=0.97)
_EIGHT_BIT = Limits(mean=0.2, p99=1.2, max=4.0, k3=0.04, ratio=1.3, top1=0.75, ess=0.9)
_DEFAULTS: Mapping[tuple[str, str], Limits] = {
    ("float32", "float32"): _EXACT,
    ("float32", "bfloat16"): _HALF,
    ("float32", "float16"): _HALF,
    ("bfloat16", "bfloat16"): _TWO_HALVES,
    ("float16", "float16"): _TWO_HALVES,
    ("bfloat16", "float32"): _HALF,
}


def limits_for(trainer_dtype: str, engine_dtype: str, changes: Mapping[str, float] | None = None) -> Limits:
    """The limits of a pair of dtypes (`float32`, `bfloat16`, `fp8` …), some of them replaced by `changes`.

    Raises:
        ManifestError: a change to a limit that does not exist.
    """
    default = _EIGHT_BIT if "8" in engine_dtype.replace("float128", "") else _TWO_HALVES
    limits = _DEFAULTS.get((trainer_dtype, engine_dtype), default)
    try:
        return msgspec.convert({**msgspec.structs.asdict(limits), **(changes or {})}, Limits)
    except msgspec.ValidationError as error:
        raise ManifestError(f"limits: {error}") from error


def numbers(trainer: Rows, engine: Rows, top1: float = 1.0) -> Numbers:
    """Compare two sets of log-probabilities of the same tokens; `top1` is passed through.

    Raises:
        ValueError: they are not of the same tokens, or there are none.
    """
    pairs = _pairs(trainer, engine)
    finite = [(t, e) for t, e in pairs if math.isfinite(t) and math.isfinite(e)]
    bad = len(pairs) - len(finite)
    if not finite:
        return Numbers(len(pairs), math.inf, math.inf, math.inf, math.inf, math.inf, 0.0, 0.0, bad)
    gaps = sorted(abs(e - t) for t, e in finite)
    rs = [max(min(t - e, _MAX_EXPONENT), -_MAX_EXPONENT) for t, e in finite]
    weights = [math.exp(r) for r in rs]
    n = len(finite)
    return Numbers(
        n=len(pairs),
        mean=math.fsum(gaps) / n,
        p99=gaps[min(math.ceil(0.99 * n), n) - 1],
        max=gaps[-1],
        k3=math.fsum(w - 1 - r for w, r in zip(weights, rs, strict=True)) / n,
        ratio=math.fsum(math.exp(min(gap, _MAX_EXPONENT)) for gap in gaps) / n,
        top1=top1,
        ess=math.fsum(weights) ** 2 / (n * math.fsum(w * w for w in weights)),
        not_finite=bad,
    )


def breaches(found: Numbers, limits: Limits) -> list[str]:
    """Each limit that is not met, in words; empty: near enough."""
    told = [
        f"{name} {getattr(found, name):.4g} above {getattr(limits, name):g}"
        for name in ("mean", "p99", "max", "k3", "ratio")
        if not getattr(found, name) <= getattr(limits, name)
    ]
    told += [
        f"{name} {getattr(found, name):.4g} below {getattr(limits, name):g}"
        for name in ("top1", "ess")
        if not getattr(found, name) >= getattr(limits, name)
    ]
    if found.not_finite:
        told.append(f"{found.not_finite} numbers are not finite")
    return told


class Share(msgspec.Struct, frozen=True):
    """How much of one fault's effect the engine shows: 0 none, 1 all of it; `error` is one standard error."""

    cause: str
    names: tuple[str, ...]
    share: float
    error: float
    explained: float
    """Part of the engine's squared difference to the trainer that the fault accounts for."""

    @property
    def stale(self) -> bool:
        """The engine has this fault."""
        return self.share > STALE_SHARE and self.share > STALE_SIGMAS * self.error

    @property
    def visible(self) -> bool:
        """The probe could have told."""
        return self.error <= VISIBLE_ERROR


def share_of(probe: Probe, engine: Rows, other: Counterfactual) -> Share:
    """Project the engine's difference to the trainer on the fault's: least squares through the origin."""
    trainer = [text.logprobs for text in probe.texts]
    pairs = [(e - t, o - t) for (t, e), (_, o) in zip(_pairs(trainer, engine), _pairs(trainer, other.logprobs), strict=True)]  # fmt: skip  # noqa: E501
    finite = [(gap, effect) for gap, effect in pairs if math.isfinite(gap) and math.isfinite(effect)]
    power = math.fsum(effect * effect for _, effect in finite)
    whole = math.fsum(gap * gap for gap, _ in finite)
    if power == 0.0 or len(finite) < 2:
        return Share(other.cause, other.names, 0.0, math.inf, 0.0)
    share = math.fsum(gap * effect for gap, effect in finite) / power
    rest = math.fsum((gap - share * effect) ** 2 for gap, effect in finite)
    error = math.sqrt(rest / (len(finite) - 1) / power)
    return Share(other.cause, other.names, share, error, 1 - rest / whole if whole else 0.0)


def top1_agreement(probe: Probe, engine_top: Sequence[Sequence[int | None]]) -> float:
    """Share of places where both find the same token likeliest; 1.0 where the engine tells none."""
    pairs = [
        (mine[0], theirs)
        for text, row in zip(probe.texts, engine_top, strict=True)
        for mine, theirs in zip(text.top_ids, row, strict=True)
        if theirs is not None and mine
    ]
    return sum(mine == theirs for mine, theirs in pairs) / len(pairs) if pairs else 1.0


def _pairs(left: Rows, right: Rows) -> list[tuple[float, float]]:
    pairs = [pair for a, b in zip(left, right, strict=True) for pair in zip(a, b, strict=True)]
    if not pairs:
        raise ValueError("no tokens to compare")
    return pairs
