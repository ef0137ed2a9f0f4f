"""Writes what a live exporter shows into the stored samples.

    python -m tests.deploy.monitoring.sample vllm|node URL-OF-ITS-METRICS

To be run when vLLM or node_exporter is upgraded; then `make check-deploy` tells
which rules and panels ask for what is no longer there.
"""

from __future__ import annotations

import re
import sys

import httpx2

from deploy.checks.known_metrics import SAMPLES, sample_lines

KEPT = {
    "vllm": re.compile(r"vllm:(?!.*_created\{)"),
    "node": re.compile(
        r"node_(filesystem|memory_Mem|cpu_seconds|load|network_(receive|transmit)_bytes|boot)"
    ),
}
"""What is not of one machine alone."""


def main() -> int:
    if len(sys.argv) != 3 or sys.argv[1] not in KEPT:
        print(__doc__, file=sys.stderr)
        return 2
    name, url = sys.argv[1:]
    path = SAMPLES / f"{name}.txt"
    head = [line for line in path.read_text().splitlines() if line.startswith("#")]
    lines = [line for line in sample_lines(httpx2.get(url).text) if KEPT[name].match(line)]
    path.write_text("\n".join([*head, *lines]) + "\n")
    print(f"{path.name}: {len(lines)} series")
    return 0


if __name__ == "__main__":
    sys.exit(main())
