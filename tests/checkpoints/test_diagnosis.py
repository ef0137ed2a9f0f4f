from __future__ import annotations

import math
import random
from collections.abc import Sequence
from pathlib import Path

import msgspec
import pytest

from checkpoints.manifest import Golden
from checkpoints.probe.checksums import Compared
from checkpoints.probe.contract import SCHEMA, Counterfactual, Probe, Scored
from checkpoints.probe.diagnosis import Cause
from checkpoints.probe.engine import Place
from checkpoints.probe.judge import Report, judge
from checkpoints.probe.replay import Observed, Tokenized
from checkpoints.probe.report import as_html, as_json, as_text

SOURCE = random.Random(7)
TEXTS, PLACES = 24, 16


def _softmax(logits: Sequence[float]) -> tuple[float, ...]:
    total = math.log(math.fsum(map(math.exp, logits)))
    return tuple(logit - total for logit in logits)


def _shown(logits: Sequence[float], change: float = 0.0) -> tuple[float, ...]:
    """Log-probabilities of the four likeliest of six tokens, the second's logit changed."""
    return _softmax([logits[0], logits[1] + change, *logits[2:]])[:4]


LOGITS = [
    [tuple(sorted((SOURCE.uniform(-4.0, 2.0) for _ in range(6)), reverse=True)) for _ in range(PLACES)]
    for _ in range(TEXTS)
]
TOPS = [[_shown(logits) for logits in row] for row in LOGITS]
IDS = (3, 5, 7, 9)
CHANGES = {
    name: [[SOURCE.gauss(0, size) for _ in range(PLACES)] for _ in range(TEXTS)]
    for name, size in (("unchanged", 0.5), ("head", 0.2), ("tensor", 0.05))
}


def _probe() -> Probe:
    texts = tuple(
        Scored(
            ids=(1, *(5 for _ in range(PLACES))),
            logprobs=tuple(top[1] for top in tops),
            top_ids=tuple(IDS for _ in tops),
            top_logprobs=tuple(tops),
        )
        for tops in TOPS
    )
    others = tuple(
        Counterfactual(
            cause,  # type: ignore[arg-type]
            (f"{cause}.weight",),
            tuple(
                tuple(_shown(logits, change)[1] for logits, change in zip(row, changes, strict=True))
                for row, changes in zip(LOGITS, CHANGES[cause], strict=True)
            ),
        )
        for cause in ("unchanged", "head", "tensor")
    )
    golden = (Golden("hello", (1, 20, 21)), Golden("hi", (1, 4, 22), chat=True))
    return Probe(SCHEMA, "float32", texts, others, golden, bos=1)


PROBE = _probe()


def _places(
    scale: float = 1.0, noise: float = 0.02, change: str | None = None, *, raw: bool = False
) -> list[list[Place]]:
    source = random.Random(3)

    def one(number: int, place: int, logits: Sequence[float]) -> Place:
        noisy = [logit * scale + source.gauss(0, noise) for logit in logits]
        moved = CHANGES[change][number][place] if change else 0.0
        values = noisy[:4] if raw else _shown(noisy, moved)
        return Place(values[1], dict(zip(IDS, values, strict=True)))

    return [
        [one(number, place, logits) for place, logits in enumerate(row)] for number, row in enumerate(LOGITS)
    ]


def _prefix(shift: float = 0.0) -> list[list[Place]]:
    return [[Place(-0.1 - shift, {1: -0.1 - shift, 2: -3.0 + shift}) for _ in range(8)] for _ in range(4)]


def _seen(**changes: object) -> Observed:
    honest = _places()
    good = Observed(
        scored=honest,
        again=honest,
        warm=_prefix(),
        cold=_prefix(),
        cold_again=_prefix(),
        default_next=[row[-1] for row in honest],
        plain_next=[row[-1] for row in honest],
        tokenized=[Tokenized(item.text, item.chat, item.ids, item.ids) for item in PROBE.golden],
        weights=Compared(),
    )
    return msgspec.structs.replace(good, **changes)


def _judged(**changes: object) -> Report:
    return judge(PROBE, _seen(**changes))


def _tokenized(text: tuple[int, ...], chat: tuple[int, ...]) -> list[Tokenized]:
    return [Tokenized("hello", False, (1, 20, 21), text), Tokenized("hi", True, (1, 4, 22), chat)]


def test_an_honest_engine_passes() -> None:
    report = _judged()
    assert report.passed, report.diagnosis
    assert (report.diagnosis.cause, report.moved, report.invisible) == (Cause.NONE, True, ())


@pytest.mark.parametrize(
    ("changes", "cause"),
    [
        ({"tokenized": _tokenized((1, 21, 20), (1, 4, 22))}, Cause.TOKENIZER),
        ({"tokenized": _tokenized((1, 20, 21), (1, 9, 22))}, Cause.CHAT_TEMPLATE),
        ({"tokenized": _tokenized((1, 1, 20, 21), (1, 1, 4, 22))}, Cause.DOUBLE_BOS),
        ({"scored": _places(raw=True)}, Cause.LOGPROBS_MODE),
        ({"warm": _prefix(0.3)}, Cause.STALE_PREFIX_CACHE),
        ({"scored": _places(change="unchanged")}, Cause.NOT_MOVED),
        ({"scored": _places(change="head")}, Cause.STALE_HEAD),
        ({"scored": _places(change="tensor")}, Cause.STALE_TENSOR),
        ({"weights": Compared(equal=("a", "b"), different=("model.norm.weight",))}, Cause.STALE_TENSOR),
        ({"weights": Compared(equal=("a", "b"), different=("lm_head.weight",))}, Cause.STALE_HEAD),
        (
            {
                "scored": _places(change="unchanged"),
                "weights": Compared(equal=("norm", "norm2"), different=("lm_head.weight",)),
            },
            Cause.NOT_MOVED,
        ),
        ({"scored": _places(scale=1 / 0.7)}, Cause.TEMPERATURE),
        ({"default_next": [row[-1] for row in _places(scale=1 / 0.6)]}, Cause.TEMPERATURE),
        ({"scored": _places(noise=0.15)}, Cause.DTYPE),
        ({"scored": _places(noise=3.0)}, Cause.OTHER_WEIGHTS),
    ],
)
def test_each_fault_fails_and_is_named(changes: dict[str, object], cause: Cause) -> None:
    report = _judged(**changes)
    assert not report.passed
    assert report.diagnosis.cause is cause, report.diagnosis


@pytest.mark.fault("S8")
def test_a_stale_tensor_is_named_although_every_limit_is_met() -> None:
    report = _judged(scored=_places(change="tensor"))
    assert report.breaches == ()
    assert report.diagnosis.names == ("tensor.weight",)


def test_checksums_of_an_engine_with_another_dtype_say_nothing() -> None:
    assert _judged(weights=Compared(equal=("a",), different=("b", "c"))).passed


def test_a_trainer_that_put_two_beginnings_is_told() -> None:
    texts = tuple(msgspec.structs.replace(text, ids=(1, 1, *text.ids[2:])) for text in PROBE.texts)
    report = judge(msgspec.structs.replace(PROBE, texts=texts), _seen())
    assert report.diagnosis.cause is Cause.DOUBLE_BOS


def test_the_report_is_text_json_and_a_page_that_needs_nothing_else(tmp_path: Path) -> None:
    report = msgspec.structs.replace(_judged(scored=_places(change="head")), subject="<toy> version 2")
    assert "failed: stale_head" in as_text(report)
    assert msgspec.json.decode(as_json(report), type=Report) == report
    page = as_html(report)
    assert "&lt;toy&gt; version 2" in page
    assert page.count("<circle") == TEXTS * PLACES
    assert not any(word in page for word in ("http://", "https://", "<script", "src="))
