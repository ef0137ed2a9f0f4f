"""Alertmanager's configuration: that amtool takes it, and that every alert reaches those whom it concerns."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from ruamel.yaml import YAML

from deploy.checks.rules import Rule
from deploy.checks.tools import complaints_of

CONFIG = Path(__file__).resolve().parents[2] / "deploy" / "alertmanager" / "alertmanager.yml"
RECEIVERS = {
    ("page", True): "training-page",
    ("page", False): "page",
    ("ticket", True): "training",
    ("ticket", False): "tickets",
}
"""Severity, and whether the area is training, to who hears of it."""


def complaints(alerts: Sequence[Rule]) -> Iterator[str]:
    """Raises `ProgramMissing`."""
    yield from complaints_of("amtool", "check-config", str(CONFIG))
    for alert in alerts:
        receiver = RECEIVERS.get((alert.labels["severity"], alert.labels["area"] == "training"))
        labels = [f"{name}={value}" for name, value in alert.labels.items()]
        yield from complaints_of(
            *("amtool", "config", "routes", "test", f"--config.file={CONFIG}"),
            *(f"--verify.receivers={receiver}", f"alertname={alert.name}", *labels),
        )
    yield from _unknown_names({alert.name for alert in alerts})


def _unknown_names(alerts: set[str]) -> Iterator[str]:
    """An inhibition that names an alert which is called otherwise now would be one of nothing."""
    config: Any = YAML(typ="safe", pure=True).load(CONFIG)
    matchers = [
        matcher
        for rule in config["inhibit_rules"]
        for matcher in (*rule["source_matchers"], *rule["target_matchers"])
    ]
    for matcher in matchers:
        match = re.fullmatch(r'alertname=~?"([\w|]+)"', matcher)
        for name in match[1].split("|") if match else ():
            if name not in alerts:
                yield f"alertmanager.yml: no alert is called {name}"
