"""What `make check-deploy` says of monitoring: all of it is right, and each kind of mistake is found."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from checkpoints.probe import parity
from deploy.checks import alertmanager, dashboards, monitoring, promql, rules
from deploy.checks.known_metrics import Series, known_series, read_sample, sample_lines
from deploy.grafana.build import dashboard
from deploy.grafana.source import Panel, Row, Source


@pytest.fixture(scope="module")
def known() -> Mapping[str, Series]:
    return known_series() | rules.recorded(rules.read_rules())


def test_rules_routes_and_dashboards_are_right() -> None:
    counts = monitoring.check()

    assert counts.rules > 40
    assert counts.rule_tests > 60
    assert counts.dashboards == 5
    assert counts.panels > 70


@pytest.mark.parametrize(
    ("expression", "complaint"),
    [
        ("sum(rate(changeover_requests_total[2m])", "does not parse"),
        ("changeover_request_total", "no such metric: changeover_request_total"),
        ("sum(rate(vllm:gpu_cache_usage_perc[2m]))", "no such metric: vllm:gpu_cache_usage_perc"),
        ('changeover_qps{route="predict"}', "has no label route"),
        ('changeover_requests_total{outcome="error"}', "is never outcome='error'"),
        ('changeover_requests_total{outcome=~"timeout|error"}', "is never outcome='error'"),
        ('changeover_request_duration_seconds_bucket{le="0.45"}', "is never le='0.45'"),
        ("rate(changeover_requests_total[30s])", "less than 4 scrapes"),
        ("avg(model_route:changeover_request_duration_seconds:p99_2m)", "takes the avg of percentiles"),
        ("avg(histogram_quantile(0.9, rate(changeover_overhead_seconds_bucket[2m])))", "of percentiles"),
        ('{job="gateway"}', "names no metric"),
    ],
)
def test_a_wrong_expression_is_found(known: Mapping[str, Series], expression: str, complaint: str) -> None:
    assert [text for text in promql.complaints(expression, known) if complaint in text]


def test_a_right_expression_has_no_complaints(known: Mapping[str, Series]) -> None:
    expression = 'sum by (route) (rate(changeover_requests_total{outcome!="ok",instance=~"a|b"}[2m])) > 1'

    assert list(promql.complaints(expression, known)) == []


def test_an_alert_without_tests_page_and_severity_is_found() -> None:
    alert = rules.Rule("SomethingNew", "up == 0", True, {}, {})

    found = [*rules._of_alert(alert), *rules._untested([alert])]

    assert any("severity" in text for text in found)
    assert any("docs/runbooks/something-new.md" in text for text in found)
    assert "SomethingNew: no test in which it fires" in found
    assert "SomethingNew: no test in which it stays quiet" in found


def test_an_alert_that_reaches_the_wrong_people_is_found() -> None:
    training = rules.Rule("New", "up == 0", True, {"severity": "page", "area": "training"}, {})
    moved = rules.Rule("New", "up == 0", True, {"severity": "page", "area": "Training"}, {})

    assert not [
        text for text in alertmanager.complaints([training]) if "routes test" in text or "amtool" in text
    ]
    assert any("TrainingLossMoves" in text for text in alertmanager.complaints([moved]))


def test_panels_that_overlap_or_explain_nothing_are_found() -> None:
    model = _model()
    model["panels"][2]["gridPos"] |= {"x": 6}
    model["panels"][1]["description"] = ""
    model["panels"][1]["fieldConfig"]["defaults"]["unit"] = ""

    found = list(dashboards._structure(model))

    assert "One and Two overlap" in found
    assert any(text.startswith("One: has no title, or no sentence") for text in found)
    assert "One: has no unit" in found
    assert list(dashboards._structure(_model())) == []


def test_variables_stand_for_everything_when_expressions_are_tried() -> None:
    assert ("One", 'sum(up{job=~".*"})') in dashboards.expressions(_model())


def test_a_sample_has_names_and_labels_but_no_values() -> None:
    text = '# HELP a b\na{x="1",y="with \\" and }"} 3.0\na{z="2"} 1\nb 2\n'

    assert sample_lines(text) == ["a{x,y,z}", "b{}"]


def test_the_stored_samples_can_be_read() -> None:
    assert (
        "model_name"
        in read_sample(rules.TESTS.parent / "samples" / "vllm.txt")["vllm:kv_cache_usage_perc"].labels
    )


def test_parity_drift_is_half_of_what_a_proof_allows() -> None:
    limits = parity.limits_for("bfloat16", "bfloat16")
    expression = next(rule.expression for rule in rules.read_rules() if rule.name == "ParityDrift")

    assert f"changeover_parity_k3) > {limits.k3 / 2:g}" in expression
    assert f"changeover_parity_mean_abs_delta_logprob) > {limits.mean / 2:g}" in expression


def test_the_memory_that_engines_reserve_is_what_the_settings_say() -> None:
    from backends.settings import EngineSettings

    expressions = {rule.name: rule.expression for rule in rules.read_rules()}
    reserved = EngineSettings().gpu_memory_utilization

    assert expressions["changeover:engine_gpu_memory_utilization:configured"] == f"vector({reserved:g})"


def test_three_epochs_of_five_percent_are_what_the_trainer_counts() -> None:
    from training.metrics import MOVING_RATIO

    expressions = {rule.name: rule.expression for rule in rules.read_rules()}

    assert expressions["TrainingLossMoves"] == "changeover_training_epochs_moving >= 3"
    assert MOVING_RATIO == 0.05


def _model() -> dict[str, Any]:
    panels = tuple(
        Panel(title=title, unit="short", description="What it shows.", queries={"a": 'sum(up{job=~"$job"})'})
        for title in ("One", "Two")
    )
    rows = (Row(title="Row", panels=panels),)
    variables = {"job": "label_values(up, job)"}
    return dashboard(Source(uid="u", title="t", description="d.", rows=rows, variables=variables))
