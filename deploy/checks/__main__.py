"""`make check-deploy`: everything in deploy/ and nginx/ judged by its own tools, a table, and one last line.

Needs no Docker and no cluster. Exit codes: 0 all of it is right, 1 something is not (said above).
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable

from deploy.checks import compose, edge, images, manifests, monitoring
from deploy.stack.programs import ProgramMissing

Check = Callable[[], tuple[int, list[str]]]
"""How many there are, and what is wrong with them."""


def main() -> int:
    checks: dict[str, Check] = {
        "images (hadolint)": images.check,
        "compose (docker-compose config)": compose.check,
        "manifests (kustomize, schemas, traps)": manifests.check,
        "nginx (nginx -t, gixy)": edge.check,
    }
    counts: dict[str, int] = {}
    wrong = 0
    try:
        for title, check in checks.items():
            began = time.monotonic()
            counts[title.split()[0]], found = check()
            wrong += len(found)
            print(f"{title:40} {time.monotonic() - began:6.1f} s  {'WRONG' if found else 'ok'}", flush=True)
            for complaint in found:
                print(f"  {complaint}", flush=True)
        began = time.monotonic()
        seen = monitoring.check()
        print(
            f"{'monitoring (promtool, amtool, panels)':40} {time.monotonic() - began:6.1f} s  ok", flush=True
        )
    except (monitoring.MonitoringWrong, ProgramMissing) as error:
        print(error, file=sys.stderr)
        return 1
    if wrong:
        return 1
    print(
        f"deploy: ok compose={counts['compose']} manifests={counts['manifests']} rules={seen.rules} "
        f"rule_tests={seen.rule_tests} dashboards={seen.dashboards} panels={seen.panels} nginx=ok"
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
