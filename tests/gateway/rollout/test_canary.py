"""How requests are divided at each stage, and what is concluded from the answers."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from checkpoints.rollouts import Rollout, Stage
from gateway.fleet.split import Split
from gateway.observe.evidence import VersionEvidence
from gateway.observe.outcome import Outcome
from gateway.observe.table import ANSWER_BUCKETS, VERSION_BUCKETS
from gateway.rollout.canary import canary_size, shadowed, split
from gateway.rollout.evidence import Conclusion, Evidence, judge
from gateway.settings.rollout import Canary
from tests.gateway.rollout.world import BASE, label, weights

OLD, NEW = label(1), label(2)
BOTH = {OLD, NEW}
RULES = Canary(min_requests=100, min_s=10, max_s=60)


def _record(stage: Stage, mode: str = "rolling", **changes: object) -> Rollout:
    new = weights(2)
    record = Rollout(
        id="r",
        model="m",
        version=2,
        label=new.label,
        digest=new.digest,
        from_version=1,
        from_label=OLD,
        mode=mode,
        stage=stage,
    )
    return replace(record, **changes)


@pytest.mark.parametrize(
    ("record", "labels", "wanted"),
    [
        (None, {OLD}, None),
        (None, BOTH, Split(stable=OLD)),
        (_record(Stage.PREPARING), BOTH, Split(stable=OLD)),
        (_record(Stage.CANARY, share=0.2), BOTH, Split(OLD, NEW, 0.2)),
        (_record(Stage.CANARY, share=0.2, sticky="x-user"), BOTH, Split(OLD, NEW, 0.2, "x-user")),
        (_record(Stage.CANARY, share=0.2), {OLD}, None),
        (_record(Stage.ROLLING), BOTH, None),
        (_record(Stage.PROMOTING), BOTH, Split(stable=NEW)),
        (_record(Stage.ROLLING_BACK), BOTH, Split(stable=OLD)),
        (_record(Stage.ROLLING_BACK), {NEW}, None),
        (_record(Stage.ROLLING, "atomic"), {OLD}, Split(stable=OLD, atomic=True)),
        (_record(Stage.PROMOTING, "atomic"), {OLD}, Split(stable=NEW, atomic=True)),
    ],
)
def test_requests_go_where_the_stage_says(
    record: Rollout | None, labels: set[str], wanted: Split | None
) -> None:
    assert split(record, weights(1), labels) == wanted


def test_the_base_model_is_known_by_what_members_say() -> None:
    record = _record(Stage.ROLLING_BACK, from_version=0, from_label="base")
    assert split(record, weights(0), {BASE, NEW}) == Split(stable=BASE)


@pytest.mark.parametrize(
    ("share", "members", "size"), [(0.1, 10, 1), (0.01, 10, 1), (1.0, 10, 9), (0.25, 10, 3), (0.5, 2, 1)]
)
def test_a_canary_runs_on_its_share_of_the_members_and_never_on_all(
    share: float, members: int, size: int
) -> None:
    assert canary_size(share, members) == size


def test_copies_are_made_only_while_a_canary_shadows() -> None:
    assert shadowed(_record(Stage.CANARY, shadow=0.5)) == (NEW, 0.5)
    assert shadowed(_record(Stage.CANARY, share=0.5)) == (None, 0.0)
    assert shadowed(_record(Stage.ROLLING_BACK, shadow=0.5)) == (None, 0.0)


def _counted(ok: int, errors: int = 0, *, at: float = 0.1, tokens: float = 50) -> VersionEvidence:
    """So many answers that all took `at` seconds and had so many tokens."""

    def histogram(edges: tuple[float, ...], value: float) -> tuple[float, ...]:
        counts = [0.0] * (len(edges) + 1)
        counts[next(i for i, edge in enumerate(edges) if edge >= value)] = float(ok)
        return (*counts, ok * value)

    outcomes = dict.fromkeys(Outcome, 0.0) | {Outcome.OK: float(ok), Outcome.BACKEND_ERROR: float(errors)}
    return VersionEvidence(
        outcomes,
        0.0,
        histogram(VERSION_BUCKETS, at),
        histogram(VERSION_BUCKETS, at),
        histogram(ANSWER_BUCKETS, tokens),
    )


@pytest.mark.parametrize(
    ("candidate", "seconds", "wanted"),
    [
        (_counted(50), 30, Conclusion.WAIT),
        (_counted(200), 5, Conclusion.WAIT),
        (_counted(200), 30, Conclusion.PROMOTE),
        (_counted(50), 61, Conclusion.TAKE_BACK),
        (None, 61, Conclusion.TAKE_BACK),
        (_counted(0, 100), 5, Conclusion.TAKE_BACK),
        (_counted(200, 10), 30, Conclusion.TAKE_BACK),
        (_counted(200, 1), 30, Conclusion.PROMOTE),
        (_counted(200, at=0.4), 30, Conclusion.TAKE_BACK),
        (_counted(200, tokens=500), 30, Conclusion.TAKE_BACK),
        (_counted(200, tokens=5), 30, Conclusion.TAKE_BACK),
    ],
)
def test_a_canary_is_judged_by_errors_latency_and_length(
    candidate: VersionEvidence | None, seconds: float, wanted: Conclusion
) -> None:
    found = judge(Evidence(_counted(1000), candidate), RULES, seconds)
    assert found.conclusion is wanted, found
    assert found.reason


def test_without_answers_of_the_stable_version_only_errors_are_judged() -> None:
    assert judge(Evidence(None, _counted(200, at=9.0)), RULES, 30).conclusion is Conclusion.PROMOTE
    assert judge(Evidence(None, _counted(100, 50)), RULES, 30).conclusion is Conclusion.TAKE_BACK


def test_copies_say_nothing_of_first_bytes_and_tokens() -> None:
    long = _counted(200, tokens=5)
    assert judge(Evidence(_counted(1000), long), RULES, 30, shadow=True).conclusion is Conclusion.PROMOTE
