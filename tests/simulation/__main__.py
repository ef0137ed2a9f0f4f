"""Runs every experiment and renews the tables and plots of `docs/scale.md` (about two minutes).

    python -m tests.simulation [--largest 10000]

The text around the tables is written by hand; what stands between the markers is replaced.
"""

from __future__ import annotations

import argparse
import re
import time
from collections.abc import Sequence
from pathlib import Path

from reports import plots
from tests.simulation import experiments
from tests.simulation.control import control_traffic
from tests.simulation.experiments import Row

DOCS = Path(__file__).parents[2] / "docs"
SIZES = (10, 30, 100, 300, 1000, 3000, 10_000)
STYLE = """<style>
svg { font: 12px system-ui, sans-serif; --ink:#1d2126; --soft:#5c6670; --grid:#dcdfe3; fill: var(--ink);
  --c0:#0072b2; --c1:#d55e00; --c2:#009e73 }
@media (prefers-color-scheme: dark) { svg { --ink:#e6e9ec; --soft:#9aa4ae; --grid:#333a41;
  --c0:#56b4e9; --c1:#ff9248; --c2:#2fcf9f } }
.grid { stroke: var(--grid) } .line { fill: none; stroke-width: 2 } .axis { fill: var(--soft) }
</style>"""
KEY_HEIGHT = 22


def markdown(heads: Sequence[str], rows: Sequence[Row]) -> str:
    """A table for people: three digits are enough."""
    lines = ["| " + " | ".join(heads) + " |", "|" + "---|" * len(heads)]
    lines += ["| " + " | ".join(_cell(value) for value in row) + " |" for row in rows]
    return "\n".join(lines)


def _cell(value: str | float) -> str:
    if isinstance(value, str):
        return value
    return f"{value:,}" if isinstance(value, int) else f"{value:.3g}"


def picture(rows: Sequence[Row], column: int, labels: tuple[str, str], *, log_x: bool = True) -> str:
    """One line a policy (second column) over the first column, as an SVG that stands alone."""
    names = list(dict.fromkeys(str(row[1]) for row in rows))
    series = [
        (name, [(float(row[0]), float(row[column])) for row in rows if row[1] == name]) for name in names
    ]
    x = plots.axis([float(row[0]) for row in rows], log=log_x, from_zero=False)
    y = plots.axis([float(row[column]) for row in rows], log=False, from_zero=True)
    drawn = plots.lines(series, x, y, labels, dots=True)
    inside = drawn[drawn.index(">") + 1 : drawn.rindex("</svg>")]
    key = "".join(
        f'<g transform="translate({60 + index * 130},8)"><line x2="22" stroke="var(--c{index})" '
        f'stroke-width="2" stroke-dasharray="{plots.DASHES[index]}"/><text x="28" y="4">{name}</text></g>'
        for index, name in enumerate(names)
    )
    height = plots.HEIGHT + KEY_HEIGHT
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {plots.WIDTH} {height}">{STYLE}'
        f'{key}<g transform="translate(0,{KEY_HEIGHT})">{inside}</g></svg>\n'
    )


def renew(text: str, name: str, table: str) -> str:
    """The page with the table of that name replaced. Raises ValueError where its markers are missing."""
    pattern = re.compile(rf"(<!-- {name} -->\n).*?(<!-- end -->)", re.DOTALL)
    if not pattern.search(text):
        raise ValueError(f"docs/scale.md has no place for the table {name!r}")
    return pattern.sub(lambda found: f"{found[1]}{table}\n{found[2]}", text)


def main() -> None:
    """See the module."""
    arguments = argparse.ArgumentParser(description="Renew the figures of docs/scale.md.")
    arguments.add_argument("--largest", type=int, default=10_000, help="most engines (default: 10,000)")
    largest = arguments.parse_args().largest
    began = time.monotonic()
    page = DOCS / "scale.md"
    text = page.read_text()
    found = {
        "policies": (
            ("engines", "policy", "TTFT P50 (s)", "P99 (s)", "all P99 (s)", "fullest / mean", "µs a choice"),
            experiments.policies([size for size in SIZES if size <= largest]),
        ),
        "gateways": (
            ("gateways", "policy", "TTFT P99 (s)", "latency P99 (s)", "fullest / mean"),
            experiments.gateways((1, 2, 4, 8, 16, 32)),
        ),
        "prefixes": (
            ("engines", "policy", "prefix hits", "TTFT P50 (s)", "TTFT P99 (s)"),
            experiments.prefixes((4, 16, 64, 256)),
        ),
        "failures": (
            ("dead of 200", "share", "refused", "broken", "retries", "ejected after (s)", "TTFT P99 (s)"),
            experiments.failures(),
        ),
        "control": (("engines", "workers", "probes a second", "cores for probing"), control_traffic()),
    }  # fmt: skip
    for name, (heads, rows) in found.items():
        table = markdown(heads, rows)
        print(f"\n{name}\n{table}")
        text = renew(text, name, table)
    page.write_text(text)
    pictures = DOCS / "images"
    pictures.mkdir(exist_ok=True)
    for name, column, labels in (
        ("policies", 3, ("engines", "TTFT P99, s")),
        ("gateways", 2, ("gateways", "TTFT P99, s")),
        ("prefixes", 3, ("engines", "TTFT P50, s")),
    ):
        (pictures / f"scale-{name}.svg").write_text(picture(found[name][1], column, labels))
    print(f"\nrenewed docs/scale.md in {time.monotonic() - began:.0f} s")


main()
