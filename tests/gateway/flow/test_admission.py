from __future__ import annotations

from math import inf

import pytest

from gateway.flow.admission import Admission
from gateway.flow.ticket import Place, Reason, Ticket
from gateway.settings.tree import Limits


def admission(slots: int = 1000, **limits: float) -> Admission:
    made = Admission(Limits.model_validate(limits), 0.0)
    made.capacity(slots, 0.0)
    return made


def arrive(to: Admission, now: float, tokens: int = 1, timeout_s: float = 600, priority: int = 0) -> Ticket:
    """A ticket that came in, admitted or waiting or refused."""
    ticket = Ticket(tokens, now + timeout_s, priority)
    if not to.enter(ticket, now):
        to.queue(ticket, now)
    return ticket


def places(tickets: list[Ticket]) -> list[str]:
    return [ticket.place.value for ticket in tickets]


def test_requests_enter_until_the_limit_and_the_next_one_waits() -> None:
    gate = admission(max_in_flight=2)
    tickets = [arrive(gate, 0.0) for _ in range(3)]
    assert places(tickets) == ["admitted", "admitted", "queued"]
    assert (gate.in_flight, gate.queued) == (2, 1)


def test_a_request_that_leaves_lets_the_next_one_in() -> None:
    gate = admission(max_in_flight=1)
    first, second, third = (arrive(gate, 0.0) for _ in range(3))
    assert list(gate.leave(first, 1.0)) == [second]
    assert second.place is Place.ADMITTED
    assert third.place is Place.QUEUED


@pytest.mark.parametrize("times", [1, 2, 5])
def test_leaving_twice_gives_back_once(times: int) -> None:
    gate = admission(max_in_flight=5)
    stays, leaves = arrive(gate, 0.0, tokens=7), arrive(gate, 0.0, tokens=9)
    for _ in range(times):
        gate.leave(leaves, 1.0)
    assert (gate.in_flight, gate.tokens) == (1, 7)
    gate.leave(stays, 1.0)
    assert (gate.in_flight, gate.tokens) == (0, 0)


def test_a_ticket_cannot_be_used_for_two_requests() -> None:
    gate = admission()
    ticket = arrive(gate, 0.0)
    with pytest.raises(ValueError, match="a ticket of its own"):
        gate.enter(ticket, 0.0)
    with pytest.raises(ValueError, match="a ticket of its own"):
        gate.queue(ticket, 0.0)
    assert gate.in_flight == 1


def test_nobody_overtakes_those_who_wait_even_if_there_is_room_for_him() -> None:
    gate = admission(max_tokens_in_flight=100)
    big_one = arrive(gate, 0.0, tokens=90)
    waiting = arrive(gate, 0.0, tokens=50)
    small = arrive(gate, 0.0, tokens=5)
    assert places([big_one, waiting, small]) == ["admitted", "queued", "queued"]
    assert list(gate.leave(big_one, 1.0)) == [waiting, small]


def test_a_request_larger_than_all_room_is_admitted_alone() -> None:
    gate = admission(max_tokens_in_flight=100)
    small = arrive(gate, 0.0, tokens=10)
    huge = arrive(gate, 0.0, tokens=1_000_000)
    after = arrive(gate, 0.0, tokens=10)
    assert places([small, huge, after]) == ["admitted", "queued", "queued"]
    assert list(gate.leave(small, 1.0)) == [huge]
    assert list(gate.leave(huge, 2.0)) == [after]


def test_higher_priority_leaves_the_queue_first_then_the_sooner_deadline_then_the_earlier_arrival() -> None:
    gate = admission(max_in_flight=1)
    running = arrive(gate, 0.0)
    late = arrive(gate, 0.0, timeout_s=20)
    soon = arrive(gate, 0.0, timeout_s=10)
    soon_too = arrive(gate, 0.0, timeout_s=10)
    vip = arrive(gate, 0.0, timeout_s=25, priority=1)
    order = []
    while running:
        settled = gate.leave(running, 0.0)
        running = settled[0] if settled else None
        order.append(running)
    assert order == [vip, soon, soon_too, late, None]


def test_a_long_deadline_is_not_starved_by_short_ones_beyond_the_longest_wait() -> None:
    gate = admission(max_in_flight=1, max_queue_s=30)
    running = arrive(gate, 0.0)
    patient = arrive(gate, 0.0, timeout_s=3600)
    for second in range(1, 40):
        arrive(gate, float(second), timeout_s=10)
        (running,) = gate.leave(running, float(second))
        if running is patient:
            break
    assert second <= 30
    assert patient.place is Place.ADMITTED


def test_a_full_queue_refuses_the_next_request_with_a_time_to_come_back() -> None:
    gate = admission(max_in_flight=1, max_queued=2)
    for _ in range(3):
        arrive(gate, 0.0)
    refused = arrive(gate, 0.0)
    assert refused.refusal is not None
    assert refused.refusal.reason is Reason.QUEUE_FULL
    assert 1 <= refused.refusal.retry_after_s <= 60
    assert gate.queued == 2


def test_a_more_important_request_takes_the_last_place_of_a_full_queue() -> None:
    gate = admission(max_in_flight=1, max_queued=2)
    arrive(gate, 0.0)
    first, last = arrive(gate, 0.0), arrive(gate, 0.0)
    vip = Ticket(1, 600.0, priority=3)
    assert not gate.enter(vip, 0.0)
    assert list(gate.queue(vip, 0.0)) == [last]
    assert last.refusal is not None
    assert last.refusal.reason is Reason.QUEUE_FULL
    assert places([first, vip]) == ["queued", "queued"]


def test_without_a_queue_nobody_waits() -> None:
    gate = admission(max_in_flight=1, max_queued=0)
    arrive(gate, 0.0)
    assert arrive(gate, 0.0, priority=9).place is Place.REFUSED


def measured(gate: Admission, service_s: float, until: float) -> float:
    """Let requests of `service_s` run one after another, so that their time is known. Returns the time."""
    now = 0.0
    while now < until:
        ticket = arrive(gate, now)
        now += service_s
        gate.leave(ticket, now)
    return now


def test_a_wait_that_outlasts_the_deadline_is_refused_at_once_and_a_shorter_one_is_not() -> None:
    gate = admission(max_in_flight=1)
    now = measured(gate, 1.0, until=20.0)
    arrive(gate, now)
    waiting = [arrive(gate, now) for _ in range(5)]
    assert places(waiting) == ["queued"] * 5
    hasty = arrive(gate, now, timeout_s=3)
    assert hasty.place is Place.QUEUED, "its deadline comes before theirs, so it goes first"
    assert arrive(gate, now, timeout_s=3).place is Place.QUEUED, "two seconds to wait, one to be served"
    third = arrive(gate, now, timeout_s=3)
    assert third.refusal is not None
    assert third.refusal.reason is Reason.WOULD_MISS_DEADLINE
    assert third.refusal.retry_after_s == pytest.approx(8, abs=1), "seven wait, a second each"


def test_time_to_come_back_is_what_it_takes_to_serve_those_who_wait() -> None:
    gate = admission(max_in_flight=2, max_queued=40)
    now = measured(gate, 1.0, until=20.0)
    for _ in range(42):
        arrive(gate, now)
    refused = arrive(gate, now)
    assert refused.refusal is not None
    assert refused.refusal.retry_after_s == pytest.approx(40 * 1.0 / 2, abs=2)


def test_a_request_that_asks_for_little_is_not_refused_for_the_time_large_ones_take() -> None:
    gate = admission(max_in_flight=4)
    now = 0.0
    for _ in range(40):
        ticket = arrive(gate, now, tokens=1000)
        now += 10.0
        gate.leave(ticket, now)
    for _ in range(4):
        arrive(gate, now, tokens=1000)
    assert arrive(gate, now, tokens=10, timeout_s=5).place is Place.QUEUED
    assert arrive(gate, now, tokens=1000, timeout_s=5).place is Place.REFUSED


def test_who_waited_as_long_as_he_may_is_refused() -> None:
    gate = admission(max_in_flight=1, max_queue_s=30)
    arrive(gate, 0.0)
    short, long = arrive(gate, 0.0, timeout_s=10), arrive(gate, 0.0)
    assert list(gate.expire(9.9)) == []
    assert list(gate.expire(10.0)) == [short]
    assert short.refusal is not None
    assert short.refusal.reason is Reason.TIMED_OUT
    assert short.refusal.waited_s == 10.0
    assert list(gate.expire(30.0)) == [long]
    assert gate.queued == 0


def test_those_past_their_time_are_dropped_before_room_is_spent_on_them() -> None:
    gate = admission(max_in_flight=1)
    running = arrive(gate, 0.0)
    hopeless, hopeful = arrive(gate, 0.0, timeout_s=5), arrive(gate, 0.0, timeout_s=60)
    assert list(gate.leave(running, 6.0)) == [hopeless, hopeful]
    assert places([hopeless, hopeful]) == ["refused", "admitted"]


def test_a_client_that_leaves_the_queue_frees_its_place_and_unblocks_those_behind() -> None:
    gate = admission(max_tokens_in_flight=100)
    arrive(gate, 0.0, tokens=60)
    huge, small = arrive(gate, 0.0, tokens=1000), arrive(gate, 0.0, tokens=10)
    assert list(gate.abandon(huge, 1.0)) == [small]
    assert gate.queued == 0
    assert huge.place is Place.LEFT


def test_requests_wait_while_no_backend_is_ready_and_are_released_in_order() -> None:
    gate = admission(slots=0)
    tickets = [arrive(gate, 0.0, timeout_s=timeout_s) for timeout_s in (30, 10, 20)]
    assert places(tickets) == ["queued"] * 3
    released = gate.capacity(2, 1.0)
    assert list(released) == [tickets[1], tickets[2]]
    assert list(gate.capacity(3, 2.0)) == [tickets[0]]


def test_who_waited_in_vain_for_a_backend_is_told_so() -> None:
    gate = admission(slots=0, max_queue_s=30)
    ticket = arrive(gate, 0.0)
    gate.expire(30.0)
    assert ticket.refusal is not None
    assert ticket.refusal.reason is Reason.NO_BACKEND
    assert ticket.refusal.retry_after_s in range(1, 61)


def test_the_queue_is_bounded_while_no_backend_is_ready() -> None:
    gate = admission(slots=0, max_queued=3)
    tickets = [arrive(gate, 0.0) for _ in range(5)]
    assert places(tickets) == ["queued"] * 3 + ["refused"] * 2


def test_backends_that_go_do_not_throw_out_who_is_in_flight() -> None:
    gate = admission(slots=2)
    running = [arrive(gate, 0.0) for _ in range(2)]
    gate.capacity(0, 1.0)
    waiting = arrive(gate, 1.0)
    assert gate.in_flight == 2
    assert list(gate.leave(running[0], 2.0)) == []
    assert list(gate.capacity(2, 3.0)) == [waiting]


def test_a_ticket_without_a_member_waits_in_its_old_place() -> None:
    gate = admission(max_in_flight=2)
    running = arrive(gate, 0.0)
    unlucky = arrive(gate, 0.0)
    behind = arrive(gate, 0.1)
    gate.defer(unlucky, 0.2)
    assert (gate.in_flight, gate.queued) == (1, 2)
    assert list(gate.leave(running, 1.0)) == [unlucky, behind]


def test_the_only_ticket_that_waits_is_tried_again_though_nobody_leaves() -> None:
    gate = admission()
    alone = arrive(gate, 0.0)
    gate.defer(alone, 0.1)
    assert list(gate.expire(0.3)) == [alone]
    assert alone.place is Place.ADMITTED


def test_deferring_a_ticket_that_holds_nothing_changes_nothing() -> None:
    gate = admission(max_in_flight=1)
    ticket = arrive(gate, 0.0)
    gate.leave(ticket, 1.0)
    gate.defer(ticket, 1.0)
    assert (gate.in_flight, gate.queued) == (0, 0)


def test_new_limits_admit_who_waits_and_send_nobody_away() -> None:
    gate = admission(max_in_flight=1, max_queued=5)
    tickets = [arrive(gate, 0.0) for _ in range(4)]
    assert list(gate.reconfigure(Limits(max_in_flight=3, max_queued=0), 1.0)) == tickets[1:3]
    assert tickets[3].place is Place.QUEUED
    assert list(gate.reconfigure(Limits(max_in_flight=1, max_queued=0), 2.0)) == []
    assert gate.in_flight == 3


def test_a_deadline_that_never_comes_is_allowed() -> None:
    gate = admission(max_in_flight=1)
    arrive(gate, 0.0, timeout_s=inf)
    assert arrive(gate, 0.0, timeout_s=inf).give_up_at == 30.0


def test_a_burst_after_quiet_hours_is_not_taken_for_overload() -> None:
    gate = admission(max_in_flight=100)
    for hour in range(5):
        ticket = arrive(gate, hour * 3600.0)
        gate.leave(ticket, hour * 3600.0 + 0.5)
    burst = [arrive(gate, 20_000.0) for _ in range(1000)]
    assert places(burst) == ["admitted"] * 100 + ["queued"] * 900
