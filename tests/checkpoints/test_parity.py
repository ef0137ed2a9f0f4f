from __future__ import annotations

import math
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from checkpoints.errors import ManifestError
from checkpoints.probe.contract import SCHEMA, Counterfactual, Probe, Scored, decode_probe, encode_probe
from checkpoints.probe.parity import breaches, limits_for, numbers, share_of, top1_agreement

HALF = limits_for("float32", "bfloat16")


def probe_of(rows: list[list[float]], others: dict[str, list[list[float]]] | None = None) -> Probe:
    """A probe with these log-probabilities; the likeliest tokens are 1, 2, 3."""
    texts = tuple(
        Scored(
            ids=tuple(range(len(row) + 1)),
            logprobs=tuple(row),
            top_ids=tuple((1, 2, 3) for _ in row),
            top_logprobs=tuple((-0.5, -1.5, -3.0) for _ in row),
        )
        for row in rows
    )
    made = tuple(
        Counterfactual("tensor", (name,), tuple(map(tuple, other))) for name, other in (others or {}).items()
    )
    return Probe(schema=SCHEMA, trainer_dtype="float32", texts=texts, counterfactuals=made)


def test_equal_numbers_are_at_no_distance() -> None:
    found = numbers([[-1.0, -2.0]], [[-1.0, -2.0]])
    assert (found.n, found.mean, found.p99, found.max, found.k3, found.ratio, found.ess) == (
        2,
        0,
        0,
        0,
        0,
        1,
        1,
    )
    assert breaches(found, HALF) == []


def test_the_figures_are_those_of_their_definitions() -> None:
    trainer, engine = [-1.0, -2.0, -3.0], [-1.1, -1.8, -3.0]
    found = numbers([trainer], [engine])
    rs = [t - e for t, e in zip(trainer, engine, strict=True)]
    ws = [math.exp(r) for r in rs]
    assert found.mean == pytest.approx(0.1)
    assert found.max == pytest.approx(0.2)
    assert found.k3 == pytest.approx(sum(w - 1 - r for w, r in zip(ws, rs, strict=True)) / 3)
    assert found.ratio == pytest.approx((math.exp(0.1) + math.exp(0.2) + 1) / 3)
    assert found.ess == pytest.approx(sum(ws) ** 2 / (3 * sum(w * w for w in ws)))


def test_p99_is_the_value_that_99_of_100_do_not_exceed() -> None:
    gaps = [index / 100 for index in range(1, 101)]
    found = numbers([[0.0] * 100], [[-gap for gap in gaps]])
    assert found.p99 == pytest.approx(0.99)


@given(st.lists(st.tuples(st.floats(-50, 0), st.floats(-50, 0)), min_size=1, max_size=40))
def test_divergences_are_never_negative_and_ess_is_a_share(pairs: list[tuple[float, float]]) -> None:
    found = numbers([[t for t, _ in pairs]], [[e for _, e in pairs]])
    assert found.k3 >= -1e-9
    assert found.ratio >= 1
    assert 0 < found.ess <= 1 + 1e-9


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
def test_numbers_that_are_not_finite_fail(bad: float) -> None:
    assert "1 numbers are not finite" in breaches(numbers([[-1.0, -1.0]], [[-1.0, bad]]), HALF)
    assert breaches(numbers([[-1.0]], [[bad]]), HALF)


def test_limits_depend_on_the_dtypes_and_single_ones_can_be_replaced() -> None:
    assert limits_for("float32", "float32").mean < HALF.mean < limits_for("float32", "fp8").mean
    assert limits_for("float32", "bfloat16", {"mean": 0.5}).mean == 0.5
    with pytest.raises(ManifestError, match="unknown field `meen`"):
        limits_for("float32", "bfloat16", {"meen": 0.5})


def test_seen_healthy_pairs_are_within_the_default_limits() -> None:
    for pair, seen in {
        ("float32", "bfloat16"): (0.026, 0.129, 0.145, 0.0008, 1.027),
        ("bfloat16", "bfloat16"): (0.043, 0.242, 0.286, 0.0025, 1.045),
    }.items():
        limits = limits_for(*pair)
        bounds = (limits.mean, limits.p99, limits.max, limits.k3, limits.ratio)
        assert all(value < bound for value, bound in zip(seen, bounds, strict=True))


def _noisy(rows: list[list[float]], sigma: float, seed: int) -> list[list[float]]:
    source = random.Random(seed)
    return [[value + source.gauss(0, sigma) for value in row] for row in rows]


NEW = [[-2.0] * 32 for _ in range(32)]
NORM = _noisy(NEW, 0.01, 1)
OTHER = _noisy(NEW, 0.01, 2)


@pytest.mark.fault("S8")
@pytest.mark.parametrize("seed", range(20))
def test_a_stale_tensor_is_found_far_below_the_noise_of_single_tokens(seed: int) -> None:
    probe = probe_of(NEW, {"stale": NORM, "fine": OTHER})
    engine = _noisy(NORM, 0.03, 100 + seed)
    assert breaches(numbers(NEW, engine), HALF) == []
    stale, fine = (share_of(probe, engine, other) for other in probe.counterfactuals)
    assert stale.stale
    assert not fine.stale


@pytest.mark.parametrize("seed", range(20))
def test_an_honest_engine_has_no_stale_part(seed: int) -> None:
    probe = probe_of(NEW, {"norm": NORM, "other": OTHER})
    engine = _noisy(NEW, 0.03, 200 + seed)
    assert not any(share_of(probe, engine, other).stale for other in probe.counterfactuals)


def test_a_part_whose_change_makes_no_difference_is_called_invisible() -> None:
    probe = probe_of(NEW, {"same": NEW, "tiny": _noisy(NEW, 1e-5, 3)})
    engine = _noisy(NEW, 0.03, 4)
    assert [share_of(probe, engine, other).visible for other in probe.counterfactuals] == [False, False]


def test_top1_counts_only_places_where_the_engine_tells() -> None:
    probe = probe_of([[-1.0, -1.0, -1.0]])
    assert top1_agreement(probe, [[1, 2, None]]) == 0.5
    assert top1_agreement(probe, [[None, None, None]]) == 1.0


def test_a_probe_reads_back_and_a_wrong_one_is_refused() -> None:
    probe = probe_of([[-1.0, -2.0]], {"a": [[-1.0, -2.5]]})
    assert decode_probe(encode_probe(probe), "p") == probe
    for bad in (b"{}", b"nothing", encode_probe(probe).replace(b'"schema":1', b'"schema":9')):
        with pytest.raises(ManifestError):
            decode_probe(bad, "p")
    short = probe_of([[-1.0, -2.0]], {"a": [[-1.0]]})
    with pytest.raises(ManifestError, match="does not fit"):
        decode_probe(encode_probe(short), "p")
