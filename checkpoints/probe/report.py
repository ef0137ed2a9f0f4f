"""A report as text, as JSON and as one HTML page that needs nothing else (the plot is inline SVG)."""

from __future__ import annotations

import html
from importlib.resources import files
from string import Template

import msgspec

from checkpoints.probe.judge import Report

_PLOT, _MARGIN = 420, 40
_MAX_POINTS = 5000
"""More would only make the page heavy: every k-th is drawn."""
_MAX_NAMES = 20
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
    page = Template(files("checkpoints.probe").joinpath("page.html").read_text(encoding="utf-8"))
    numbers = "".join(
        f"<tr class='{'met' if met else 'not'}'><td>{html.escape(label)}</td><td>{value}</td>"
        f"<td>{noise}</td><td>{html.escape(limit)}</td></tr>"
        for label, value, noise, limit, met in rows(report)
    )
    others = "".join(
        f"<tr><td>{html.escape(label)}</td><td>{html.escape(value)}</td></tr>"
        for label, value in facts(report)
    )
    return page.substitute(
        title=html.escape(_headline(report)),
        verdict="passed" if report.passed else "failed",
        evidence=html.escape(report.diagnosis.evidence),
        names=html.escape(", ".join(report.diagnosis.names)),
        numbers=numbers,
        facts=others,
        shares=_shares(report),
        plot=_plot(report.points),
    )


def _headline(report: Report) -> str:
    verdict = "passed" if report.passed else f"failed: {report.diagnosis.cause}"
    return f"{report.subject or 'probe'} on {report.engine or 'the engine'}: {verdict}"


def _shares(report: Report) -> str:
    shown = sorted(report.shares, key=lambda share: -share.share)[:20]
    return "".join(
        f"<tr class='{'not' if share.stale else 'met'}'><td>{html.escape(share.cause)}</td>"
        f"<td>{html.escape(', '.join(share.names[:2]))}</td>"
        f"<td>{share.share:.3f} ± {share.error:.3f}</td></tr>"
        for share in shown
    )


def _plot(points: tuple[tuple[float, float], ...]) -> str:
    drawn = [pair for pair in points if all(abs(value) < 1e6 for value in pair)]
    drawn = drawn[:: max(1, len(drawn) // _MAX_POINTS)]
    low = min((min(pair) for pair in drawn), default=-1.0)
    low = min(low * 1.02, -1e-3)

    def x(value: float) -> float:
        return _MARGIN + (value - low) / -low * (_PLOT - 2 * _MARGIN)

    def y(value: float) -> float:
        return _PLOT - x(value)

    dots = "".join(f"<circle cx='{x(t):.1f}' cy='{y(e):.1f}' r='1.6'/>" for t, e in drawn)
    ticks = "".join(
        f"<text x='{x(value):.0f}' y='{_PLOT - 22}' text-anchor='middle'>{value:.1f}</text>"
        f"<text x='34' y='{y(value) + 4:.0f}' text-anchor='end'>{value:.1f}</text>"
        for value in (low, low / 2, 0.0)
    )
    return (
        f"<svg viewBox='0 0 {_PLOT} {_PLOT}' role='img' aria-label='engine against trainer'>"
        f"<line x1='{x(low):.1f}' y1='{y(low):.1f}' x2='{x(0):.1f}' y2='{y(0):.1f}' class='equal'/>"
        f"{dots}{ticks}<text x='{_PLOT / 2}' y='{_PLOT - 6}' text-anchor='middle'>trainer logp</text>"
        f"<text x='10' y='14'>engine logp</text></svg>"
    )
