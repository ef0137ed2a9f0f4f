"""The page of a run in which weights changed: who answered when, how long it took, what swaps cost. Pure."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Sequence

from loadtests.samples import Outcome
from loadtests.stats import percentile
from loadtests.swap.traffic import Answer
from reports.page import Plot, Report, Series, Table

MOST_VERSIONS = 8
"""Lines of one plot; more could not be told apart."""


def swaps_page(
    title: str,
    answers: Sequence[Answer],
    served: Sequence[tuple[float, str]],
    out_s: Sequence[float],
    *,
    verdict: str,
    facts: dict[str, str],
) -> Report:
    """`served`: when a version served everywhere, and its label; `out_s`: out of rotation, swap by swap."""
    began = min((answer.sent_at for answer in answers), default=0.0)
    return Report(
        title=title,
        lead="Open-loop load while weights change: every answer names the weights that computed it.",
        verdict=verdict,
        tables=[_versions(answers, served, began)],
        plots=[_by_version(answers, began), _latency(answers, began), _out_of_rotation(out_s)],
        facts=facts,
    )


def _versions(answers: Sequence[Answer], served: Sequence[tuple[float, str]], began: float) -> Table:
    whole = Counter(answer.version for answer in answers if answer.outcome is Outcome.OK)
    lost = Counter(answer.version for answer in answers if answer.outcome is not Outcome.OK)
    everywhere = {label: at - began for at, label in served}
    names = dict.fromkeys([*(label for _, label in served), *whole, *lost])
    return Table(
        title="Versions",
        columns=["version", "answers", "others than whole answers", "served everywhere after, s"],
        rows=[[name or "none named", whole[name], lost[name], everywhere.get(name)] for name in names],
    )


def _by_version(answers: Sequence[Answer], began: float) -> Plot:
    counts: dict[str, Counter[int]] = defaultdict(Counter)
    for answer in answers:
        if answer.outcome is Outcome.OK:
            counts[answer.version][int(answer.ended_at - began)] += 1
    last = max((second for seconds in counts.values() for second in seconds), default=0)
    newest = list(counts)[-MOST_VERSIONS:]
    return Plot(
        title="Answers by the weights that computed them",
        x="seconds",
        y="answers/s",
        dots=False,
        series=[
            Series(name, [(float(second), float(counts[name][second])) for second in range(last + 1)])
            for name in newest
        ],
    )


def _latency(answers: Sequence[Answer], began: float) -> Plot:
    by_second: dict[int, list[float]] = defaultdict(list)
    for answer in answers:
        if answer.outcome is Outcome.OK:
            by_second[int(answer.sent_at - began)].append(answer.latency_s)

    def series(name: str, of: Callable[[list[float]], float]) -> Series:
        return Series(name, [(float(second), of(by_second[second])) for second in sorted(by_second)])

    return Plot(
        title="Latency by the second in which requests were due",
        x="seconds",
        y="s",
        dots=False,
        series=[
            series("P50", lambda values: percentile(sorted(values), 0.5)),
            series("longest", max),
        ],
    )


def _out_of_rotation(out_s: Sequence[float]) -> Plot:
    return Plot(
        title="Out of rotation, swap by swap",
        x="swap",
        y="seconds",
        series=[Series("an engine", [(float(number), value) for number, value in enumerate(out_s, 1)])],
        note="The other engine answers meanwhile.",
    )
