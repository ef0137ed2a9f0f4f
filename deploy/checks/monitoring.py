"""Everything of monitoring that can be judged without running it: rules, their tests, routes, dashboards.

`check` is called by `make check-deploy`, and by itself: `python -m deploy.checks.monitoring`.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass

from deploy.checks import alertmanager, dashboards, rules
from deploy.checks.known_metrics import known_series
from deploy.grafana.source import read_sources
from deploy.stack.programs import ProgramMissing


class MonitoringWrong(Exception):
    """The message lists everything that is wrong."""


@dataclass(frozen=True, slots=True)
class MonitoringCounts:
    rules: int
    rule_tests: int
    dashboards: int
    panels: int


def check() -> MonitoringCounts:
    """How much there is, all of it right. Takes seconds. Raises MonitoringWrong, or `ProgramMissing`."""
    read = rules.read_rules()
    known = known_series() | rules.recorded(read)
    alerts = [rule for rule in read if rule.alert]
    wrong = [*rules.complaints(known), *alertmanager.complaints(alerts), *dashboards.complaints(known)]
    sources = read_sources()
    pages = {source.uid for source in sources.values()}
    wrong += [
        f"{alert.name}: no dashboard is called {alert.annotations.get('dashboard')}"
        for alert in alerts
        if alert.annotations.get("dashboard") not in pages
    ]
    if wrong:
        raise MonitoringWrong("\n".join(wrong))
    panels = sum(len(source.panels) for source in sources.values())
    return MonitoringCounts(len(read), len(rules.test_names()), len(sources), panels)


def main() -> int:
    try:
        print(check())
    except (MonitoringWrong, ProgramMissing) as error:
        print(error, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
