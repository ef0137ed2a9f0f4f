"""What can be said about an expression without running it. Pure.

It parses; it asks only for series and labels that exist; its windows hold at least four scrapes; it does not
average percentiles.
"""

from __future__ import annotations

import datetime
import re
from collections.abc import Iterator, Mapping
from typing import Any

import promql_parser as promql

from deploy.checks.known_metrics import Series

SCRAPE_S = 15
SCRAPES_IN_A_WINDOW = 4
_PERCENTILE = re.compile(r":p\d+_")


def complaints(expression: str, known: Mapping[str, Series]) -> Iterator[str]:
    """What is wrong with it; nothing if nothing is."""
    try:
        nodes = list(_nodes(promql.parse(expression)))
    except ValueError as error:
        yield f"does not parse: {error}"
        return
    for node in nodes:
        if isinstance(node, promql.VectorSelector):
            yield from _unknown(node, known)
        elif isinstance(node, (promql.MatrixSelector, promql.SubqueryExpr)):
            if (node.range or datetime.timedelta()) < datetime.timedelta(
                seconds=SCRAPE_S * SCRAPES_IN_A_WINDOW
            ):
                yield f"looks at {node.range}, less than {SCRAPES_IN_A_WINDOW} scrapes"
        elif isinstance(node, promql.AggregateExpr) and str(node.op) in ("avg", "sum"):
            inner = [n for n in _nodes(node.expr) if _is_percentile(n)]
            if inner:
                yield f"takes the {node.op} of percentiles: {inner[0].prettify()}"


def selected(expression: str) -> set[str]:
    """The names of the series that it asks for."""
    nodes = _nodes(promql.parse(expression))
    return {node.name for node in nodes if isinstance(node, promql.VectorSelector) and node.name}


def _nodes(expression: Any) -> Iterator[Any]:
    """The expression and all below it."""
    yield expression
    for name in ("lhs", "rhs", "expr", "param", "vector_selector"):
        child = getattr(expression, name, None)
        if isinstance(child, promql.Expr):
            yield from _nodes(child)
    for child in getattr(expression, "args", None) or ():
        yield from _nodes(child)


def _unknown(selector: promql.VectorSelector, known: Mapping[str, Series]) -> Iterator[str]:
    if not selector.name:
        yield f"names no metric: {selector.prettify()}"
        return
    series = known.get(selector.name)
    if series is None:
        yield f"no such metric: {selector.name}"
        return
    for matcher in selector.matchers.matchers:
        if matcher.name not in series.labels:
            yield f"{selector.name} has no label {matcher.name}"
        elif matcher.name in series.values:
            values = series.values[matcher.name]
            if not any(_matches(matcher, value) for value in values):
                yield f"{selector.name} is never {matcher.name}={matcher.value!r}, but {sorted(values)}"
            elif str(matcher.op) == str(promql.MatchOp.Re):
                yield from (
                    f"{selector.name} is never {matcher.name}={part!r}, but {sorted(values)}"
                    for part in matcher.value.split("|")
                    if not any(re.fullmatch(part, value) for value in values)
                )


def _matches(matcher: promql.Matcher, value: str) -> bool:
    match str(matcher.op):
        case "MatchOp.Equal":
            return bool(value == matcher.value)
        case "MatchOp.NotEqual":
            return bool(value != matcher.value)
        case "MatchOp.Re":
            return re.fullmatch(matcher.value, value) is not None
    return re.fullmatch(matcher.value, value) is None


def _is_percentile(node: Any) -> bool:
    if isinstance(node, promql.VectorSelector):
        return bool(_PERCENTILE.search(node.name or ""))
    return isinstance(node, promql.Call) and node.func.name == "histogram_quantile"
