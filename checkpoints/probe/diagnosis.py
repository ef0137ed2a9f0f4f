"""Names the cause when a probe fails, from tests that each isolate one: a pure decision over observations.

From the surest to the vaguest: ids that differ (tokenizer, template, double beginning-of-text),
numbers that are no log-probabilities, a warm prefix that answers unlike a cold one, memory that has
other bytes than the checkpoint, one stale part (matched filter), a temperature (differences between
tokens scale by its inverse), an offset as large as quantisation makes, anything else. Some faults
leave every average within its limits; they are named, and fail the verdict, all the same.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from enum import StrEnum

import msgspec

from checkpoints.probe.checksums import Compared
from checkpoints.probe.contract import Probe
from checkpoints.probe.engine import Place
from checkpoints.probe.parity import Limits, Numbers, Share
from checkpoints.probe.replay import Observed, Tokenized

_SUM_TOLERANCE = 0.02
"""Probabilities of the likeliest tokens may add up to so much more than one by rounding."""
_MODE_SHARE = 0.01
_WARM_MEAN, _WARM_MAX = 0.04, 0.25
"""A warm and a cold prefix differ by rounding only; a stale cache gave 0.18 and more."""
_SCALE_DIFFERENCE, _SCALE_FIT = 0.08, 0.95
_QUANTISED_FACTOR, _QUANTISED_TOP1 = 6.0, 0.6
"""An offset of up to six times the limit with most likeliest tokens equal looks like coarser numbers."""


class Cause(StrEnum):
    """What is wrong."""

    NONE = "none"
    TOKENIZER = "tokenizer"
    CHAT_TEMPLATE = "chat_template"
    DOUBLE_BOS = "double_bos"
    LOGPROBS_MODE = "logprobs_mode"
    STALE_PREFIX_CACHE = "stale_prefix_cache"
    NOT_MOVED = "not_moved"
    STALE_HEAD = "stale_head"
    STALE_TENSOR = "stale_tensor"
    TEMPERATURE = "temperature"
    DTYPE = "dtype_or_quantisation"
    OTHER_WEIGHTS = "other_weights"


class Diagnosis(msgspec.Struct, frozen=True):
    """The cause, what shows it, and the tensors or texts concerned."""

    cause: Cause
    evidence: str
    names: tuple[str, ...] = ()


class Scale(msgspec.Struct, frozen=True):
    """Engine's differences between tokens over the trainer's: 1/temperature; `fit` is R squared."""

    slope: float
    fit: float

    @property
    def off(self) -> bool:
        """A temperature other than one, beyond doubt."""
        return abs(self.slope - 1) > _SCALE_DIFFERENCE and self.fit > _SCALE_FIT


def diagnose(
    probe: Probe,
    seen: Observed,
    found: Numbers,
    limits: Limits,
    failed: Sequence[str],
    shares: Sequence[Share],
) -> Diagnosis:
    """The surest cause; `NONE` if the limits are met and no test finds anything."""
    return (
        _ids(probe, seen.tokenized)
        or _mode(seen)
        or _warm(seen)
        or _weights(seen.weights, shares)
        or _temperature(probe, seen)
        or _offset(found, limits, failed)
        or Diagnosis(Cause.NONE, "the engine computes what the trainer computed")
    )


def _ids(probe: Probe, tokenized: Sequence[Tokenized]) -> Diagnosis | None:
    starts = [text.ids[:2] for text in probe.texts]
    if probe.bos is not None and any(start == (probe.bos, probe.bos) for start in starts):
        return Diagnosis(Cause.DOUBLE_BOS, f"the trainer's texts begin with token {probe.bos} twice")
    wrong = [item for item in tokenized if item.engine != item.trainer]
    if not wrong:
        return None
    names = tuple(item.text for item in wrong)
    if probe.bos is not None and all(item.engine == (probe.bos, *item.trainer) for item in wrong):
        return Diagnosis(
            Cause.DOUBLE_BOS if any(item.trainer[:1] == (probe.bos,) for item in wrong) else Cause.TOKENIZER,
            f"the engine puts token {probe.bos} in front where the trainer does not",
            names,
        )
    first = wrong[0]
    evidence = f"{first.text!r} is {_few(first.trainer)} for the trainer, {_few(first.engine)} for the engine"
    only_chat = all(item.chat for item in wrong)
    return Diagnosis(Cause.CHAT_TEMPLATE if only_chat else Cause.TOKENIZER, evidence, names)


def _few(ids: Sequence[int]) -> str:
    return f"[{', '.join(map(str, ids[:8]))}{', …' if len(ids) > 8 else ''}]"


def _mode(seen: Observed) -> Diagnosis | None:
    places = [place for row in seen.scored for place in row]
    positive = sum(place.logprob > 1e-3 for place in places)
    sums = [math.fsum(math.exp(min(value, 50.0)) for value in place.top.values()) for place in places]
    too_much = sum(total > 1 + _SUM_TOLERANCE for total in sums)
    if max(positive, too_much) > _MODE_SHARE * len(places):
        evidence = f"{max(positive, too_much)} of {len(places)} places are no log-probabilities (logits?)"
        return Diagnosis(Cause.LOGPROBS_MODE, evidence)
    return None


def _warm(seen: Observed) -> Diagnosis | None:
    gaps, floor = prefix_gaps(seen.warm, seen.cold), prefix_gaps(seen.cold_again, seen.cold)
    mean, noise = _mean(gaps), _mean(floor)
    if mean > max(_WARM_MEAN, 5 * noise) or max(gaps, default=0.0) > max(
        _WARM_MAX, 5 * max(floor, default=0.0)
    ):
        evidence = (
            f"a cached prefix answers unlike a cold one: mean {mean:.3f}, max {max(gaps):.3f} "
            f"(cold against cold: {noise:.3f}, {max(floor, default=0.0):.3f}): reset it after loading"
        )
        return Diagnosis(Cause.STALE_PREFIX_CACHE, evidence)
    return None


def prefix_gaps(left: Sequence[Sequence[Place]], right: Sequence[Sequence[Place]]) -> list[float]:
    """|difference| of the likeliest tokens' log-probabilities, as far as both continue alike."""
    gaps: list[float] = []
    for a, b in zip(left, right, strict=True):
        for one, other in zip(a, b, strict=False):
            if not one.top or not other.top:
                gaps.append(abs(one.logprob - other.logprob))
                continue
            shared = sorted(one.top.keys() & other.top.keys(), key=lambda token: -other.top[token])[:2]
            gaps += [abs(one.top[token] - other.top[token]) for token in shared] or [1.0]
            if _likeliest(one) != _likeliest(other):
                break
    return gaps


def _likeliest(place: Place) -> int | None:
    return max(place.top, key=place.top.__getitem__) if place.top else None


def _different_bytes(weights: Compared) -> Diagnosis | None:
    if not weights.different or not weights.meaningful:
        return None
    head = all(name.startswith("lm_head.") for name in weights.different)
    evidence = (
        f"the engine's memory differs from the checkpoint in {len(weights.different)} of "
        f"{len(weights.equal) + len(weights.different)} parameters that it gives checksums of"
    )
    return Diagnosis(Cause.STALE_HEAD if head else Cause.STALE_TENSOR, evidence, weights.different)


def _weights(weights: Compared, shares: Sequence[Share]) -> Diagnosis | None:
    """Bytes tell more than numbers, but not that everything is old: unchanged norms look equal then."""
    best = max((share for share in shares if share.stale), key=lambda share: share.explained, default=None)
    if best is None or best.cause != "unchanged":
        different = _different_bytes(weights)
        if different is not None or best is None:
            return different
    evidence = f"{best.share:.2f} ± {best.error:.2f} of the effect that old values have"
    if best.cause == "unchanged":
        return Diagnosis(Cause.NOT_MOVED, f"the engine computes the version before: {evidence}")
    cause = Cause.STALE_HEAD if best.cause == "head" else Cause.STALE_TENSOR
    return Diagnosis(cause, f"{', '.join(best.names[:3])}: {evidence}", best.names)


def scale_of(pairs: Iterable[tuple[float, float]]) -> Scale:
    """Least squares through the origin of (trainer's difference, engine's difference)."""
    known = [(x, y) for x, y in pairs if math.isfinite(x) and math.isfinite(y)]
    xx = math.fsum(x * x for x, _ in known)
    yy = math.fsum(y * y for _, y in known)
    if not xx or not yy or len(known) < 20:
        return Scale(1.0, 0.0)
    slope = math.fsum(x * y for x, y in known) / xx
    rest = math.fsum((y - slope * x) ** 2 for x, y in known)
    return Scale(slope, 1 - rest / yy)


def scored_scale(probe: Probe, seen: Observed) -> Scale:
    """Of the texts' own places."""
    return scale_of(
        pair
        for text, row in zip(probe.texts, seen.scored, strict=True)
        for ids, values, place in zip(text.top_ids, text.top_logprobs, row, strict=True)
        for pair in _differences(ids, values, place)
    )


def generated_scale(probe: Probe, generated: Sequence[Place]) -> Scale:
    """Of the token that follows each text without its last."""
    return scale_of(
        pair
        for text, place in zip(probe.texts, generated, strict=True)
        for pair in _differences(text.top_ids[-1], text.top_logprobs[-1], place)
    )


def _differences(ids: Sequence[int], values: Sequence[float], place: Place) -> Iterable[tuple[float, float]]:
    if not ids or ids[0] not in place.top:
        return
    for token, value in zip(ids[1:], values[1:], strict=True):
        if token in place.top:
            yield value - values[0], place.top[token] - place.top[ids[0]]


def _temperature(probe: Probe, seen: Observed) -> Diagnosis | None:
    scored = scored_scale(probe, seen)
    if scored.off:
        evidence = (
            f"differences between tokens are {scored.slope:.2f} times the trainer's (fit {scored.fit:.3f}): "
            f"a temperature of {1 / scored.slope:.2f} on one side"
        )
        return Diagnosis(Cause.TEMPERATURE, evidence)
    default, plain = generated_scale(probe, seen.default_next), generated_scale(probe, seen.plain_next)
    if default.off and not plain.off:
        evidence = (
            f"without a temperature of the request's own the engine answers at {1 / default.slope:.2f} "
            "and reports processed logprobs: start it with --generation-config vllm"
        )
        return Diagnosis(Cause.TEMPERATURE, evidence)
    return None


def _offset(found: Numbers, limits: Limits, failed: Sequence[str]) -> Diagnosis | None:
    if not failed:
        return None
    evidence = "; ".join(failed)
    if found.mean <= _QUANTISED_FACTOR * limits.mean and found.top1 >= _QUANTISED_TOP1:
        return Diagnosis(Cause.DTYPE, f"a small offset everywhere, as coarser numbers make: {evidence}")
    return Diagnosis(Cause.OTHER_WEIGHTS, f"no single known fault explains it: {evidence}")


def _mean(values: Sequence[float]) -> float:
    return math.fsum(values) / len(values) if values else 0.0
