"""A report as text, as JSON and as a page of `reports`, which needs nothing else (its plot is inline SVG)."""

from __future__ import annotations

import msgspec

from checkpoints.probe.judge import Report
from reports import page as pages

_MAX_POINTS = 5000
"""More would only make the page heavy: every k-th is drawn."""
_MAX_NAMES = 20
_FAR = 1e6
"""Log-probabilities beyond are infinities in other words."""
_LINES = (
    ("mean", "mean |Δlogp|"),
    ("p99", "P99 |Δlogp|"),
    ("max", "max |Δlogp|"),
    ("k3", "KL (k3)"),
    ("ratio", "mean exp |Δ|"),
    ("top1", "top-1 agreement"),
    ("ess", "effective sample size"),
)
_AT_LEAST = {"top1", "ess"}


def rows(report: Report) -> list[tuple[str, str, str, str, bool]]:
    """Label, value, the engine's own noise, limit, met: one row a number."""
    found = []
    for name, label in _LINES:
        value, noise = getattr(report.numbers, name), getattr(report.noise, name)
        limit = getattr(report.limits, name)
        met = value >= limit if name in _AT_LEAST else value <= limit
        sign = "≥" if name in _AT_LEAST else "≤"
        found.append((label, f"{value:.5g}", f"{noise:.5g}", f"{sign} {limit:g}", met))
    return found


def facts(report: Report) -> list[tuple[str, str]]:
    """What else was measured."""
    prefix, scale = report.prefix, report.scale
    moved = {None: "cannot tell", True: "yes", False: "no"}[report.moved]
    stale = [share for share in report.shares if share.stale]
    return [
        ("tokens", str(report.numbers.n)),
        ("trainer against engine", f"{report.trainer_dtype} against {report.engine_dtype}"),
        ("moved from the version before", moved),
        ("warm against cold prefix", f"mean {prefix.mean:.4f}, max {prefix.max:.4f}"),
        ("cold against cold prefix", f"mean {prefix.cold_mean:.4f}, max {prefix.cold_max:.4f}"),
        ("scale of differences", f"{scale.slope:.4f} (fit {scale.fit:.4f})"),
        ("golden texts compared", str(report.golden_compared)),
        ("checksums compared", str(report.checksums_compared)),
        ("parts tested for old values", f"{len(report.shares)}, of them stale {len(stale)}"),
        ("parts the probe cannot see", ", ".join(report.invisible) or "none"),
    ]


def summary(report: Report) -> dict[str, object]:
    """What a journal keeps of a verdict: the conclusion, the numbers and the engine's own noise."""
    return {
        "passed": report.passed,
        "cause": report.diagnosis.cause,
        "evidence": report.diagnosis.evidence,
        "names": report.diagnosis.names[:_MAX_NAMES],
        "numbers": msgspec.to_builtins(report.numbers),
        "noise": msgspec.to_builtins(report.noise),
        "limits": msgspec.to_builtins(report.limits),
        "breaches": report.breaches,
        "moved": report.moved,
        "prefix": msgspec.to_builtins(report.prefix),
        "engine": report.engine,
    }


def as_text(report: Report) -> str:
    """For a terminal."""
    lines = [_headline(report), f"  {report.diagnosis.evidence}"]
    if report.diagnosis.names:
        lines.append(f"  {', '.join(report.diagnosis.names[:8])}")
    lines.append("")
    lines.append(f"  {'':24} {'found':>12} {'own noise':>12} {'limit':>10}")
    for label, value, noise, limit, met in rows(report):
        lines.append(f"  {label:24} {value:>12} {noise:>12} {limit:>10}{'' if met else '  <- not met'}")
    lines.append("")
    lines += [f"  {label:32} {value}" for label, value in facts(report)]
    return "\n".join(lines)


def as_json(report: Report) -> bytes:
    """Everything, the points included."""
    return msgspec.json.format(msgspec.json.encode(report), indent=1)


def as_html(report: Report) -> str:
    """One page."""
    found = pages.Table(
        title="Trainer against engine",
        columns=["", "found", "the engine's own noise", "limit", ""],
        rows=[
            [label, value, noise, limit, "met" if met else "NOT MET"]
            for label, value, noise, limit, met in rows(report)
        ],
        note=", ".join(report.diagnosis.names),
    )
    shares = pages.Table(
        title="Share of a known fault's effect",
        note="0: none of it; 1: all of it.",
        columns=["fault", "share", "standard error", "", "tensors"],
        rows=[
            [
                share.cause,
                share.share,
                share.error,
                "STALE" if share.stale else "",
                ", ".join(share.names[:2]),
            ]
            for share in sorted(report.shares, key=lambda share: -share.share)[:_MAX_NAMES]
        ],
    )
    every = pages.Plot(
        title="Every token",
        kind="points",
        x="log-probability by the trainer",
        y="by the engine",
        series=[pages.Series("tokens", list(_drawn(report.points)))],
        note="On the dashed line both agree.",
    )
    return pages.page(
        pages.Report(
            title=_headline(report),
            lead=report.diagnosis.evidence,
            verdict="passed" if report.passed else f"failed: {report.diagnosis.cause}",
            tables=[found, *([shares] if report.shares else [])],
            plots=[every],
            facts=dict(facts(report)),
            about="What else was measured",
        )
    )


def _drawn(points: tuple[tuple[float, float], ...]) -> tuple[tuple[float, float], ...]:
    """Those that a page shows."""
    known = tuple(pair for pair in points if all(abs(value) < _FAR for value in pair))
    return known[:: max(1, len(known) // _MAX_POINTS)]


def _headline(report: Report) -> str:
    verdict = "passed" if report.passed else f"failed: {report.diagnosis.cause}"
    return f"{report.subject or 'probe'} on {report.engine or 'the engine'}: {verdict}"
