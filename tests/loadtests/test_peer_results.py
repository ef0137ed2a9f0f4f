from __future__ import annotations

from loadtests.peers.catalog import OURS, PEERS
from loadtests.peers.results import last_line, plots, table
from loadtests.peers.rounds import Measured
from reports.page import text_table


def measured(name: str, per_s: float, alone_s: float = 1e-4, event_s: float = 1e-5) -> Measured:
    rounds = [per_s * 0.5, per_s, per_s]
    return Measured(
        name,
        per_s=rounds,
        p50_s=[1e-3] * 3,
        p99_s=[2e-3] * 3,
        alone_p50_s=[alone_s] * 3,
        cpu_per_request_s=[2e-5] * 3,
        cpu_per_event_s=[event_s] * 3,
        rss_mb=50.0,
    )


def test_the_last_line_compares_with_each_peer_and_the_best_router_for_streams() -> None:
    line = last_line(
        [
            measured(OURS, 45_000, alone_s=0.9e-4, event_s=1.0e-5),
            measured("vllm-router", 30_000, event_s=1.25e-5),
            measured("smg", 20_000, event_s=0.8e-5),
            measured("sglang-router", 15_000, event_s=3e-5),
            measured("LiteLLM", 90, event_s=1e-3),
            measured("Envoy", 30_000, event_s=0.1e-5),
        ]
    )
    assert line == (
        "vs_vllm_router=1.50 vs_smg=2.25 vs_sglang_router=3.00 vs_litellm=500.00 vs_envoy=1.50 "
        "p50_vs_vllm_router=0.90 stream_cpu_vs_best=1.25"
    )


def test_a_peer_that_was_not_run_is_nan_and_says_why() -> None:
    missing = Measured("vllm-router", why_not="not installed: pip says no")
    rows = [measured(OURS, 45_000), missing]
    assert "vs_vllm_router=nan" in last_line(rows)
    assert "not run: not installed: pip says no" in text_table(table(rows, ""))
    assert all(len(plot.series) == 1 for plot in plots(rows))


def test_a_peer_that_failed_halfway_is_compared_over_the_rounds_it_has() -> None:
    half = measured("smg", 20_000)
    half.per_s = half.per_s[:1]
    assert "vs_smg=2.25" in last_line([measured(OURS, 45_000), half])


def test_every_peer_of_the_issue_is_in_the_catalogue() -> None:
    names = {peer.name for peer in PEERS}
    assert names >= {"vllm-router", "smg", "sglang-router", "LiteLLM", "production-stack router", "Envoy"}
    assert names >= {"nginx", "HAProxy"}
