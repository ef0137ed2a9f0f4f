"""Which time limit has passed, and whose fault it is."""

from __future__ import annotations

import pytest

from gateway.fleet.evidence import Kind
from gateway.flow.limits import past_deadline, silent
from gateway.flow.phase import Phase
from gateway.flow.record import Record
from gateway.observe.labels import Route
from gateway.settings.tree import Timeouts

LIMITS = Timeouts()


def sent(at: float) -> Record:
    record = Record(Route.CHAT, "m", at)
    record.sent = at
    return record


@pytest.mark.parametrize(
    ("phase", "own_limit", "kind"),
    [
        (Phase.WAITING, False, Kind.FIRST_BYTE),
        (Phase.WAITING, True, Kind.CLIENT_DEADLINE),
        (Phase.ANSWERING, False, Kind.CLIENT_DEADLINE),
        (Phase.PLACED, False, Kind.CLIENT_DEADLINE),
    ],
)
def test_a_deadline_blames_the_member_that_said_nothing_within_our_limit(
    phase: Phase, own_limit: bool, kind: Kind
) -> None:
    assert past_deadline(phase, own_limit).kind is kind


def test_a_stream_must_begin_soon_and_a_whole_answer_need_not() -> None:
    record = sent(at=100.0)
    late = 100.0 + LIMITS.first_byte_s + 1
    overdue = silent(Phase.WAITING, record, True, LIMITS, late)
    assert overdue is not None
    assert overdue.kind is Kind.FIRST_BYTE
    assert silent(Phase.WAITING, record, False, LIMITS, late) is None


def test_silence_counts_from_the_last_byte() -> None:
    record = sent(at=100.0)
    record.answered = 101.0
    record.last = 200.0
    assert silent(Phase.ANSWERING, record, True, LIMITS, 200.0 + LIMITS.silence_s) is None
    overdue = silent(Phase.ANSWERING, record, True, LIMITS, 201.0 + LIMITS.silence_s)
    assert overdue is not None
    assert overdue.kind is Kind.SILENCE
