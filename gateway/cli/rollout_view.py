"""How rollouts look: a table for terminals of any width, plain lines for everything else. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from typing import NamedTuple

from rich.console import Group, RenderableType
from rich.text import Text

from checkpoints.rollouts import Rollout, Stage
from gateway.cli.columns import Column, table
from gateway.cli.status_view import seconds
from gateway.rollout.shown import ShownMember, ShownRollouts

MAX_MEMBERS = 40
"""Members shown one by one: those that are not where they should be come first."""
MAX_HISTORY = 5

_STAGE_STYLES = {
    Stage.PROMOTED: "green",
    Stage.ROLLING_BACK: "bold red",
    Stage.ROLLED_BACK: "red",
    Stage.REFUSED: "red",
    Stage.SUPERSEDED: "dim",
}
_PLACE_STYLES = {"at": "green", "held": "green", "failed": "bold red", "away": "yellow", "gone": "red"}


_COLUMNS: tuple[Column[ShownMember], ...] = (
    Column("member", lambda member: member.name),
    Column(
        "place",
        lambda member: member.phase or member.place,
        style=lambda member: _PLACE_STYLES.get(member.place, "cyan"),
    ),
    Column("version", lambda member: member.version or "-"),
    Column("prepared", lambda member: member.prepared or "-", spare=4),
    Column("way", lambda member: member.way.replace("_", " ") or "-", spare=5),
    Column("out for", lambda member: seconds(member.out_of_rotation_s or None), spare=3, right=True),
    Column("k3", lambda member: number(member.parity, "k3"), spare=1, right=True),
    Column("|Δlogp|", lambda member: number(member.parity, "mean"), spare=2, right=True),
    Column("reason", lambda member: member.reason, spare=6),
)


class _Evidence(NamedTuple):
    """One figure of the stable version and of the candidate."""

    name: str
    stable: str
    candidate: str


_EVIDENCE: tuple[Column[_Evidence], ...] = (
    Column("evidence", lambda row: row.name),
    Column("stable", lambda row: row.stable, right=True),
    Column("candidate", lambda row: row.candidate, right=True),
)


def view(shown: ShownRollouts, width: int) -> RenderableType:
    """The whole screen for a terminal of `width` columns."""
    parts: list[RenderableType] = [Text(f"{shown.model}  serves {shown.serving}", style="bold")]
    record = shown.rollout
    if record is not None:
        parts.append(
            Text.assemble((record.stage.value, _STAGE_STYLES.get(record.stage, "cyan")), "  ", _title(record))
        )
        parts.append(Text(record.reason))
    parts.append(Text(f"next: {shown.next}"))
    if evidence := _evidence(shown):
        parts += ["", table(_EVIDENCE, evidence, width)]
    parts += ["", _table(shown, width)]
    parts += [Text(line, style="dim") for line in _past(shown)]
    return Group(*parts)


def plain_text(shown: ShownRollouts) -> str:
    """The same without colours: lines for the rollout, its evidence, each member, the past."""
    record = shown.rollout
    lines = [f"{shown.model}: serves {shown.serving}, newest {shown.candidate or '-'}"]
    if record is not None:
        lines.append(line(record))
    lines += [f"next: {shown.next}", *evidence_lines(shown)]
    for member in _members(shown):
        cells = [f"{column.title} {text}" for column in _COLUMNS[1:] if (text := column.text(member)) != "-"]
        lines.append(f"  {member.name}  {'  '.join(cell for cell in cells if not cell.endswith(' '))}")
    return "\n".join([*lines, *_past(shown)])


def line(record: Rollout) -> str:
    """One rollout in one line."""
    paused = " (paused)" if record.paused else ""
    return f"{record.id}: {record.stage.value}{paused}, {_title(record)}: {record.reason}"


def evidence_lines(shown: ShownRollouts) -> Iterator[str]:
    """Stable and candidate beside each other, while there is a canary."""
    for row in _evidence(shown):
        yield f"  {row.name}: stable {row.stable}, candidate {row.candidate}"


def _evidence(shown: ShownRollouts) -> list[_Evidence]:
    stable, candidate = (shown.evidence.get(side) for side in ("stable", "candidate"))
    if not isinstance(stable, dict) or not isinstance(candidate, dict):
        return []
    names = dict.fromkeys([*stable, *candidate])
    return [_Evidence(name, _figure(stable.get(name)), _figure(candidate.get(name))) for name in names]


def _figure(value: object) -> str:
    return f"{value:,.6g}" if isinstance(value, int | float) else "-"


def number(parity: dict[str, object], name: str) -> str:
    """One figure of a parity report."""
    numbers = parity.get("numbers")
    value = numbers.get(name) if isinstance(numbers, dict) else None
    return f"{value:.4g}" if isinstance(value, int | float) else "-"


def _title(record: Rollout) -> str:
    share = f", {record.share:.0%} of the requests" if record.stage is Stage.CANARY and record.share else ""
    return f"{record.label} from {record.from_label}, {record.mode}{share}"


def _members(shown: ShownRollouts) -> list[ShownMember]:
    return sorted(shown.members, key=lambda member: member.place in ("at", "held"))[:MAX_MEMBERS]


def _table(shown: ShownRollouts, width: int) -> RenderableType:
    rows = table(_COLUMNS, _members(shown), width)
    more = len(shown.members) - MAX_MEMBERS
    return Group(rows, Text(f"and {more} more", style="dim")) if more > 0 else rows


def _past(shown: ShownRollouts) -> Iterator[str]:
    for record in shown.history[1 : MAX_HISTORY + 1]:
        at = datetime.fromtimestamp(record.since, UTC).strftime("%Y-%m-%d %H:%M:%S")
        yield f"{at}  {line(record)}"
    for entry in shown.quarantined[:MAX_HISTORY]:
        yield f"quarantined: version {entry.version} ({entry.digest[:8]}): {entry.reason}"
