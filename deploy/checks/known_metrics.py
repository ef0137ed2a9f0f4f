"""Which series exist, with which labels: what dashboards and rules may ask for.

Ours are read from the tables that make them; those of vLLM, node_exporter and dcgm-exporter from stored
samples, one `name{label,label}` a line, which tests hold against the live programs.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from gateway.observe.table import DERIVED, FAMILIES, PREFIX, Family, Kind
from training import metrics as training

SAMPLES = Path(__file__).resolve().parents[2] / "tests" / "deploy" / "monitoring" / "samples"
TARGET_LABELS = frozenset({"job", "instance"})
"""What Prometheus puts on everything that it scrapes."""
_LINE = re.compile(r"([a-zA-Z_:][a-zA-Z0-9_:]*)(?:\{([^}]*)\})?")


@dataclass(frozen=True, slots=True)
class Series:
    """All series of one name."""

    labels: frozenset[str]
    values: Mapping[str, frozenset[str]] = field(default_factory=dict)
    """Of labels whose values are known beforehand."""


Known = Mapping[str, Series]


def known_series() -> dict[str, Series]:
    """Everything that is scraped, and what Prometheus makes itself; recorded series are not in it."""
    found: dict[str, Series] = {}
    for family in (*FAMILIES, *DERIVED):
        if family.kind is not Kind.WINDOW:
            found |= dict(_gateway(family))
    for metric in training.TABLE:
        found[metric.full_name] = Series(TARGET_LABELS)
    for path in sorted(SAMPLES.glob("*.txt")):
        found |= read_sample(path)
    found["up"] = Series(TARGET_LABELS)
    found["ALERTS"] = Series(TARGET_LABELS | {"alertname", "alertstate", "severity", "area", "model"})
    return found


def read_sample(path: Path) -> dict[str, Series]:
    """The series of a stored sample; lines that begin with # say where it is from."""
    lines = [line for line in path.read_text().splitlines() if line and not line.startswith("#")]
    return dict(_parsed(line) for line in lines)


def sample_lines(exposition: str) -> list[str]:
    """The lines of a sample, sorted, from what an exporter shows."""
    found: dict[str, set[str]] = {}
    for line in exposition.splitlines():
        if line and not line.startswith("#"):
            name, labels = _names(line)
            found.setdefault(name, set()).update(labels)
    return [f"{name}{{{','.join(sorted(labels))}}}" for name, labels in sorted(found.items())]


def _gateway(family: Family) -> Iterator[tuple[str, Series]]:
    labels = TARGET_LABELS | set(family.labels)
    values = {family.labels[-1]: frozenset(family.values)} if family.values else {}
    name = PREFIX + family.name
    if family.kind is not Kind.HISTOGRAM:
        yield name, Series(labels, values)
        return
    yield f"{name}_bucket", Series(labels | {"le"}, {"le": frozenset(map(str, family.buckets)) | {"+Inf"}})
    yield f"{name}_sum", Series(labels)
    yield f"{name}_count", Series(labels)


def _parsed(line: str) -> tuple[str, Series]:
    match = _LINE.fullmatch(line)
    assert match is not None, f"not a line of a sample: {line}"
    return match[1], Series(TARGET_LABELS | set(filter(None, (match[2] or "").split(","))))


def _names(line: str) -> tuple[str, set[str]]:
    match = _LINE.match(line)
    assert match is not None, f"not a line of an exposition: {line}"
    return match[1], set(re.findall(r'([a-zA-Z_][a-zA-Z0-9_]*)="(?:[^"\\]|\\.)*"', line))
