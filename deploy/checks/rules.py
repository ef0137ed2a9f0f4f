"""The rules of Prometheus: that promtool takes them, that every alert is tested both ways and has its page.

An alert's tests are named "<Alert> fires: why" and "<Alert> stays quiet: why"; promtool runs them.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ruamel.yaml import YAML

from deploy.checks import promql
from deploy.checks.known_metrics import TARGET_LABELS, Series
from deploy.checks.tools import complaints_of
from deploy.prometheus import operator

ROOT = Path(__file__).resolve().parents[2]
PROMETHEUS = ROOT / "deploy" / "prometheus"
TESTS = ROOT / "tests" / "deploy" / "monitoring" / "rules"
RUNBOOKS = ROOT / "docs" / "runbooks"
SEVERITIES = ("page", "ticket")
AREAS = ("serving", "fleet", "engines", "training", "machines")
ANNOTATIONS = ("summary", "description", "dashboard", "runbook")
TEST_NAME = re.compile(r"(\w+) (fires|stays quiet): .+")
FIRING = 'alertstate="firing"'


@dataclass(frozen=True, slots=True)
class Rule:
    """An alert, or what is recorded."""

    name: str
    expression: str
    alert: bool
    labels: Mapping[str, str]
    annotations: Mapping[str, str]


def read_rules() -> list[Rule]:
    """All of them, in the order of files and groups."""
    groups = [group for path in _files(PROMETHEUS / "rules") for group in _yaml(path)["groups"]]
    return [_rule(entry) for group in groups for entry in group["rules"]]


def recorded(rules: Sequence[Rule]) -> dict[str, Series]:
    """The series that they record. A name says its labels: level:metric:operation, level is a_b."""
    found: dict[str, Series] = {}
    for rule in rules:
        if not rule.alert:
            labels = _LEVELS.get(rule.name.partition(":")[0], frozenset())
            found[rule.name] = Series(labels | TARGET_LABELS)
    return found


_LEVELS = {
    "model": frozenset({"model"}),
    "model_route": frozenset({"model", "route"}),
    "model_name": frozenset({"model_name"}),
    "model_version": frozenset({"model", "version"}),
    "instance_gpu": frozenset({"instance", "gpu"}),
}


def test_names() -> list[str]:
    """Of promtool's tests."""
    return [str(test["name"]) for path in _files(TESTS) for test in _yaml(path)["tests"]]


def complaints(known: Mapping[str, Series]) -> Iterator[str]:
    """What is wrong with configuration, rules and their tests. Raises `ProgramMissing`."""
    yield from complaints_of("promtool", "check", "config", str(PROMETHEUS / "prometheus.yml"))
    yield from complaints_of("promtool", "test", "rules", *map(str, _files(TESTS)))
    if operator.stale():
        yield "PrometheusRule is not what the rules make: python -m deploy.prometheus.operator"
    rules = read_rules()
    for rule in rules:
        yield from (f"{rule.name}: {text}" for text in promql.complaints(rule.expression, known))
        yield from (
            f"{rule.name}: {text}" for text in (_of_alert(rule) if rule.alert else _of_recorded(rule))
        )
    names = [rule.name for rule in rules]
    yield from (f"{name}: there are two" for name in sorted({n for n in names if names.count(n) > 1}))
    yield from _untested(rules)
    pages = {path.name for path in RUNBOOKS.glob("*.md")} - {"README.md"}
    wanted = {Path(rule.annotations.get("runbook", "")).name for rule in rules if rule.alert}
    yield from (f"docs/runbooks/{page}: no alert names it" for page in sorted(pages - wanted))


def _of_alert(rule: Rule) -> Iterator[str]:
    if rule.labels.get("severity") not in SEVERITIES:
        yield f"its severity is none of {SEVERITIES}"
    if rule.labels.get("area") not in AREAS:
        yield f"its area is none of {AREAS}"
    for name in ANNOTATIONS:
        if not rule.annotations.get(name):
            yield f"has no {name}"
    page = rule.annotations.get("runbook", "")
    if page != f"docs/runbooks/{_kebab(rule.name)}.md":
        yield f"its runbook should be docs/runbooks/{_kebab(rule.name)}.md"
    elif not (ROOT / page).is_file():
        yield f"{page} is not there"
    elif rule.name not in (ROOT / page).read_text().splitlines()[0]:
        yield f"{page} has another title"


def _of_recorded(rule: Rule) -> Iterator[str]:
    if rule.name.count(":") != 2:
        yield "is not called level:metric:operation"
    elif rule.name.partition(":")[0] not in (*_LEVELS, "changeover"):
        yield "its level is not known to deploy/checks/rules.py"


def _untested(rules: Sequence[Rule]) -> Iterator[str]:
    shown: dict[str, set[str]] = {"fires": set(), "stays quiet": set()}
    for path in _files(TESTS):
        if path.stem == "recording":
            continue
        for test in _yaml(path)["tests"]:
            match = TEST_NAME.fullmatch(test["name"])
            if match is None:
                yield f"{path.name}: {test['name']!r} is not called '<Alert> fires: …' or '… stays quiet: …'"
            elif _shows(test, *match.groups()):
                shown[match[2]].add(match[1])
            else:
                yield f"{path.name}: {test['name']!r} does not show it"
    for how, alerts in shown.items():
        yield from (f"{r.name}: no test in which it {how}" for r in rules if r.alert and r.name not in alerts)


def _shows(test: Mapping[str, Any], alert: str, how: str) -> bool:
    """Whether the test's expectations are what its name says."""
    probes = test["promql_expr_test"]
    expected = [sample["labels"] for probe in probes for sample in probe["exp_samples"]]
    looks = all(FIRING in probe["expr"] for probe in probes)
    fires = any(f'"{alert}"' in labels for labels in expected)
    return looks and (fires if how == "fires" else not expected)


def _rule(entry: Mapping[str, Any]) -> Rule:
    alert = "alert" in entry
    name = str(entry["alert" if alert else "record"])
    return Rule(name, entry["expr"], alert, entry.get("labels") or {}, entry.get("annotations") or {})


def _kebab(name: str) -> str:
    return re.sub(r"(?<!^)(?=[A-Z])", "-", name).lower()


def _files(folder: Path) -> list[Path]:
    return sorted(folder.glob("*.yaml"))


def _yaml(path: Path) -> Any:
    return YAML(typ="safe", pure=True).load(path)
