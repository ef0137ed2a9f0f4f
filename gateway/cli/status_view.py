"""How a gateway's status looks: a table for terminals of any width, plain lines for everything else. Pure."""

from __future__ import annotations

from collections.abc import Iterator

from rich.console import Group, RenderableType
from rich.text import Text

from gateway.cli.columns import Column, table
from gateway.observe.status import GatewayStatus, MemberStatus, ModelStatus

WIDE = 110
"""Cells from which the gateway's own figures stand in one line."""

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


_COLUMNS: tuple[Column[MemberStatus], ...] = (
    Column("member", lambda member: member.name),
    Column("address", lambda member: member.address, spare=8),
    Column(
        "state", lambda member: member.state, style=lambda member: _STATE_STYLES.get(member.state, "white")
    ),
    Column("for", lambda member: duration(member.since_s), spare=3, right=True),
    Column("version", lambda member: member.version or "-"),
    Column("in flight", lambda member: str(member.in_flight), right=True),
    Column("tokens", lambda member: count(member.tokens), spare=6, right=True),
    Column("requests", lambda member: count(member.requests), spare=4, right=True),
    Column("failures", lambda member: count(member.failures), spare=5, right=True),
    Column("latency", lambda member: seconds(member.latency_s), spare=2, right=True),
    Column("reason", lambda member: member.reason, spare=7),
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
    return table(_COLUMNS, model.members, width)


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
