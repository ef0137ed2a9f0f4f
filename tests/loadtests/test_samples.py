from __future__ import annotations

from loadtests.samples import Outcome, Sample, Slo, by_second, summarise


def ok(at_s: float = 0.0, latency_s: float = 0.1, **more: object) -> Sample:
    return Sample("x", at_s, latency_s, Outcome.OK, 200, **more)  # type: ignore[arg-type]


def test_only_whole_answers_in_time_are_good() -> None:
    slo = Slo(latency_s=1.0)
    assert slo.met(ok())
    assert not slo.met(ok(latency_s=1.1))
    for outcome in (Outcome.REFUSED, Outcome.ERROR, Outcome.TIMEOUT, Outcome.UNSENT):
        assert not slo.met(Sample("x", 0, 0.1, outcome))


def test_a_stream_must_begin_in_time_and_go_on() -> None:
    slo = Slo(latency_s=10.0, ttft_s=0.5, gap_s=0.05)
    assert slo.met(ok(latency_s=5.0, ttft_s=0.4, gaps_s=(0.01, 0.08)))
    assert not slo.met(ok(latency_s=5.0, ttft_s=0.6, gaps_s=(0.01,)))
    assert not slo.met(ok(latency_s=5.0, ttft_s=0.4, gaps_s=(0.1, 0.02)))
    assert slo.met(ok(latency_s=5.0)), "an answer that is no stream has no first token to wait for"


def test_goodput_counts_seconds_of_load_and_refusals_their_own_time() -> None:
    samples = [
        ok(0.0),
        ok(1.0, latency_s=9.0),
        Sample("x", 1.5, 0.5, Outcome.REFUSED, 503, retry_after=True, late_s=0.4),
        Sample("x", 1.5, 0.1, Outcome.REFUSED, 429),
    ]
    summary = summarise(samples, 2.0, Slo(latency_s=1.0))
    assert summary.offered == 2.0
    assert summary.goodput == 0.5
    assert summary.outcomes == {"ok": 2, "refused": 2, "error": 0, "timeout": 0, "unsent": 0}
    assert summary.refusals_without_retry_after == 1
    assert summary.refusal.max == 0.1, "the driver's lateness is not the gateway's"
    assert summary.latency.count == 2


def test_a_run_without_answers_still_has_a_summary() -> None:
    summary = summarise([], 1.0, Slo())
    assert summary.goodput == 0
    assert summary.latency.p99 is None


def test_seconds_are_those_in_which_requests_were_due() -> None:
    samples = [ok(0.1), ok(0.9, latency_s=5), Sample("x", 2.5, 0.01, Outcome.REFUSED, 503)]
    assert by_second(samples, Slo(latency_s=1)) == [(0.0, 1, 0), (2.0, 0, 1)]
