"""What a chaos run comes to: the counts of its last line, and its page. Pure."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field

from loadtests.chaos.load import Ended, Load
from loadtests.chaos.story import Story
from loadtests.environment import environment
from loadtests.stats import percentile
from loadtests.swap.traffic import judge
from reports.page import Cell, Plot, Report, Series, Table

SHOWN = 20
WIDTH_S = 5.0


@dataclass
class Verdict:
    """Counts, and the first of what is wrong."""

    requests: int = 0
    failed_unstarted: int = 0
    """No byte of an answer came."""
    broken: int = 0
    """An answer that had begun did not end whole, and said so."""
    again: int = 0
    """Sent twice: the connection was reset before any byte."""
    stale: int = 0
    mixed: int = 0
    leaked: int = 0
    counts: Counter[str] = field(default_factory=Counter)
    told: list[str] = field(default_factory=list)

    @property
    def clean(self) -> bool:
        return not (self.failed_unstarted or self.stale or self.mixed or self.leaked or self.told)

    def line(self) -> str:
        """The last line of `make chaos`."""
        counts = self.counts
        return (
            f"requests={self.requests} failed_unstarted={self.failed_unstarted} stale={self.stale} "
            f"mixed={self.mixed} leaked={self.leaked} engine_kills={counts['engine_kills']} "
            f"redis_faults={counts['redis_faults']} swaps={counts['swaps']}"
        )


def verdict(story: Story, load: Load, left: int, swaps: float) -> Verdict:
    """`left`: requests that the gateway believes to be under way at the end."""
    ended = load.ended
    whole = judge([each.answer for each in ended if each.ok], story.served)
    unstarted = [each for each in ended if not each.ok and not each.started]
    found = Verdict(
        requests=load.sent,
        failed_unstarted=len(unstarted) + load.sent - len(ended),
        broken=sum(not each.ok and each.started for each in ended),
        again=sum(each.again for each in ended),
        stale=whole.stale,
        mixed=whole.mixed,
        leaked=left,
        counts=story.counts + Counter(swaps=int(swaps)),
    )
    found.told = [*story.wrong, *whole.told]
    found.told += [
        f"failed, {each.kind}: {each.answer.outcome} {each.answer.said}" for each in unstarted[:SHOWN]
    ]
    return found


def page(story: Story, load: Load, found: Verdict) -> Report:
    """The timeline, what became of the requests, and how long they took."""
    moments: list[list[Cell]] = [
        [round(moment.at_s, 1), moment.what, moment.detail] for moment in story.moments
    ]
    outcomes = Counter((each.kind, str(each.answer.outcome)) for each in load.ended)
    versions = Counter(each.answer.version or "none" for each in load.ended)
    counted: list[list[Cell]] = [[*key, count] for key, count in sorted(outcomes.items())]
    served: list[list[Cell]] = [[label, count] for label, count in sorted(versions.items())]
    happened: list[list[Cell]] = [
        *_rows(found.counts),
        ["answers that broke off, and said so", found.broken],
        ["requests sent twice", found.again],
    ]
    return Report(
        title="Chaos",
        lead=f"{load.rate:.1f} requests a second while everything around the engines broke in turn.",
        verdict=found.line(),
        tables=[
            Table(title="Timeline", columns=["second", "what", "detail"], rows=moments),
            Table(title="Requests", columns=["kind", "outcome", "count"], rows=counted),
            Table(title="Answers by version", columns=["version", "count"], rows=served),
            Table(title="What happened", columns=["what", "count"], rows=happened),
        ],
        plots=_plots(load.ended, story.began),
        facts=environment(),
    )


def _rows(counts: Counter[str]) -> list[list[Cell]]:
    return [[name.replace("_", " "), count] for name, count in sorted(counts.items())]


def _plots(ended: Sequence[Ended], began: float) -> list[Plot]:
    slots: dict[int, list[Ended]] = defaultdict(list)
    for each in ended:
        slots[int((each.answer.ended_at - began) / WIDTH_S)].append(each)
    at = [(slot * WIDTH_S, slots[slot]) for slot in sorted(slots)]
    rates = [
        Series("whole", [(x, sum(each.ok for each in found) / WIDTH_S) for x, found in at]),
        Series("others", [(x, sum(not each.ok for each in found) / WIDTH_S) for x, found in at]),
    ]
    times = [
        Series(name, [(x, _quantile(found, share)) for x, found in at])
        for name, share in (("P50", 0.5), ("P99", 0.99))
    ]
    return [
        Plot(title="Answers", series=rates, x="second", y="answers/s", dots=False),
        Plot(title="Latency", series=times, x="second", y="s", log_y=True, dots=False),
    ]


def _quantile(found: Sequence[Ended], share: float) -> float | None:
    whole = sorted(each.answer.latency_s for each in found if each.ok)
    return percentile(whole, share) if whole else None
