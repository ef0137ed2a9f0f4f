"""Metrics over HTTP."""

from __future__ import annotations

import socket

import httpx2
import pytest
from prometheus_client.parser import text_string_to_metric_families

from training.metrics import TABLE
from training.run.exposition import Exposition, Metrics


def scraped(port: int) -> dict[str, float]:
    text = httpx2.get(f"http://127.0.0.1:{port}/metrics", trust_env=False).text
    return {s.name: s.value for family in text_string_to_metric_families(text) for s in family.samples}


def test_what_was_set_is_shown_under_its_full_name_and_what_was_not_is_absent() -> None:
    metrics = Metrics()
    with Exposition(metrics, "127.0.0.1", 0) as served:
        metrics.set("loss", 2.5)
        metrics.add("tokens_total", 7)
        shown = scraped(served.port)
    assert shown["changeover_training_loss"] == 2.5
    assert shown["changeover_training_tokens_total"] == 7
    assert shown["changeover_training_exporter_failures_total"] == 0
    assert "changeover_training_gpu_memory_ratio" not in shown


def test_a_port_that_is_taken_does_not_stop_the_run() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with Exposition(Metrics(), "127.0.0.1", port) as served:
            assert served.port != port
            assert scraped(served.port)


def test_names_are_unique_and_counters_end_in_total() -> None:
    names = [row.name for row in TABLE]
    assert len(set(names)) == len(names)
    assert all((row.kind == "counter") == row.name.endswith("_total") for row in TABLE)
    with pytest.raises(KeyError):
        Metrics().set("lost", 1)
