"""How a gateway's status looks: a table for terminals of any width, plain lines for everything else. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from gateway.observe.status import GatewayStatus, MemberStatus, ModelStatus

WIDE = 110
"""Columns from which everything is shown; below that, what a narrow terminal can hold."""
MEDIUM = 72

_STATE_STYLES = {
    "starting": "cyan",
    "ready": "green",
    "suspect": "yellow",
    "ejected": "bold red",
    "draining": "yellow",
    "uncertain": "magenta",
    "gone": "dim",
}
"""By the names in `gateway.fleet.states`."""


@dataclass(frozen=True, slots=True)
class _Column:
    title: str
    text: Callable[[MemberStatus], str]
    from_width: int = 0
    right: bool = False


_COLUMNS = (
    _Column("member", lambda member: member.name),
    _Column("address", lambda member: member.address, WIDE),
    _Column("state", lambda member: member.state),
    _Column("for", lambda member: duration(member.since_s), MEDIUM, right=True),
    _Column("version", lambda member: member.version or "-"),
    _Column("in flight", lambda member: str(member.in_flight), right=True),
    _Column("tokens", lambda member: count(member.tokens), WIDE, right=True),
    _Column("requests", lambda member: count(member.requests), MEDIUM, right=True),
    _Column("failures", lambda member: count(member.failures), MEDIUM, right=True),
    _Column("latency", lambda member: seconds(member.latency_s), MEDIUM, right=True),
    _Column("reason", lambda member: member.reason, WIDE),
)


def view(status: GatewayStatus, width: int) -> RenderableType:
    """The whole screen for a terminal of `width` columns."""
    parts: list[RenderableType] = [Text(line) for line in _head(status, width)]
    for model in status.models:
        parts += ["", _title(model), _members(model, width)]
    return Group(*parts)


def _head(status: GatewayStatus, width: int) -> Iterator[str]:
    latency = "  ".join(f"p{float(q) * 100:g} {seconds(value)}" for q, value in status.latency_s.items())
    whole = f"changeover {status.version}  up {duration(status.uptime_s)}  workers {status.workers}"
    load = f"{status.qps:.1f} requests/s  in flight {status.in_flight}  queued {status.queued}"
    if width >= WIDE:
        yield f"{whole}    {load}    {latency}"
    else:
        yield from (line for line in (whole, load, latency) if line)


def _title(model: ModelStatus) -> Text:
    ready = ("ready", "green") if model.ready else ("not ready", "bold red")
    return Text.assemble((model.name, "bold"), "  ", ready, f"  {model.policy}  {_versions(model)}")


def _versions(model: ModelStatus) -> str:
    tried = f"  candidate {model.candidate} ({model.share:.1%})" if model.candidate else ""
    return f"versions {', '.join(model.versions) or '-'}{tried}"


def _members(model: ModelStatus, width: int) -> RenderableType:
    if not model.members:
        return Text("  no members", style="yellow")
    columns = [column for column in _COLUMNS if column.from_width <= width]
    table = Table(box=None, pad_edge=False, header_style="dim", padding=(0, 2, 0, 0))
    for column in columns:
        table.add_column(
            column.title, justify="right" if column.right else "left", overflow="ellipsis", no_wrap=True
        )
    for member in model.members:
        style = _STATE_STYLES.get(member.state, "white")
        table.add_row(
            *(Text(column.text(member), style=style if column.title == "state" else "") for column in columns)
        )
    return table


def plain_text(status: GatewayStatus) -> str:
    """The same without colours or columns: a line for the gateway, each model and each member."""
    lines = ["  ".join(_head(status, 0))]
    for model in status.models:
        ready = "ready" if model.ready else "not ready"
        lines.append(f"{model.name}: {ready}  {model.policy}  {_versions(model)}")
        for member in model.members:
            cells = [
                f"{column.title} {column.text(member)}" for column in _COLUMNS[1:] if column.text(member)
            ]
            lines.append(f"  {member.name}  {'  '.join(cells)}")
    return "\n".join(lines)


def seconds(value: float | None) -> str:
    """Three figures, in ms below a second."""
    if value is None:
        return "-"
    return f"{value * 1000:.3g} ms" if value < 1 else f"{value:.3g} s"


def duration(value: float) -> str:
    """The two largest units: `1d 2h`, `3m 5s`, `12s`."""
    total = int(value)
    parts: list[str] = []
    for unit, size in (("d", 86_400), ("h", 3_600), ("m", 60), ("s", 1)):
        if total >= size or (unit == "s" and not parts):
            parts.append(f"{total // size}{unit}")
            total %= size
    return " ".join(parts[:2])


def count(value: int) -> str:
    """`950`, `12.3k`, `4.5M`."""
    if value < 10_000:
        return str(value)
    return f"{value / 1000:.1f}k" if value < 1_000_000 else f"{value / 1_000_000:.1f}M"
