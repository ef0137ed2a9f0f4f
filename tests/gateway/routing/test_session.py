from __future__ import annotations

import pytest

from gateway.routing.contract import Hint
from gateway.settings.tree import PolicyName
from tests.gateway.routing.fleets import NO_HINT, chooser, chosen_names, fleet, run

SESSION = PolicyName.SESSION
SESSIONS = [Hint(session=f"user-{index}") for index in range(2000)]


def test_a_session_stays_with_its_member_whatever_it_asks() -> None:
    choose = chooser(SESSION, fleet(8))
    hints = [Hint(prefix=b"%d" % index, session="user-7") for index in range(50)]
    assert len(set(chosen_names(choose, hints))) == 1


def test_a_session_stays_when_other_members_come_and_go_and_when_weights_change() -> None:
    members = fleet(8)
    before = chosen_names(chooser(SESSION, members), SESSIONS)
    for member in members:
        member.version = "v2"
    after = chosen_names(chooser(SESSION, members[1:]), SESSIONS)
    assert {old for old, new in zip(before, after, strict=True) if old != new} == {"m0"}


def test_names_in_any_script_are_sessions() -> None:
    choose = chooser(SESSION, fleet(8))
    hints = [Hint(session="пользователь"), Hint(session="用户"), Hint(session="\ud800")]
    for hint in hints:
        assert len(set(chosen_names(choose, [hint] * 5))) == 1


@pytest.mark.parametrize("at_a_time", [1, 8, 40])
def test_one_session_with_all_the_traffic_overloads_nobody(at_a_time: int) -> None:
    members = fleet(4)
    outcome = run(members, chooser(SESSION, members), [SESSIONS[0]] * 1000, at_a_time)
    assert outcome.fullest <= 1.0


def test_requests_without_a_session_go_where_the_load_is_least() -> None:
    members = fleet(4)
    for member, load in zip(members, (3, 1, 2, 5), strict=True):
        member.in_flight = load
    assert set(chosen_names(chooser(SESSION, members), [NO_HINT, Hint(prefix=b"x")] * 5)) == {"m1"}
