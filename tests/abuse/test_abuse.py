"""A little of the abuse in every test run (`make abuse` is the rest), and that it sees what it looks for."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from hypothesis import HealthCheck, given, settings

from gateway.observe.labels import Route
from gateway.observe.outcome import Outcome
from gateway.observe.record import RequestRecord
from tests.abuse import steps
from tests.abuse.__main__ import campaign
from tests.abuse.client import Ended, Seen
from tests.abuse.play import Play
from tests.abuse.steps import Ask, Client, Step, as_code, scripts
from tests.abuse.truth import Book, account, expected, judge
from tests.abuse.world import Ground, ground, world
from tests.drivers.framing import Head

V1, V2 = "v1-0a0a0a0a", "v2-0b0b0b0b"
ASK = Ask(form="completions")


@pytest.fixture(scope="module")
def shared() -> Iterator[Ground]:
    with ground() as found:
        yield found


def seen(text: str, label: str = V1, *, cache: str = "miss", ended: Ended = Ended.WHOLE) -> Seen:
    """An answer to `ASK`."""
    head = Head(200, "OK", (("x-model-version", label), ("x-cache", cache)))
    return Seen(ended, head, bytearray(b'{"choices":[{"index":0,"text":"%b"}]}' % text.encode()))


def record(outcome: Outcome = Outcome.OK, version: str = V1) -> RequestRecord:
    return RequestRecord(b"q0", "POST", Route.COMPLETIONS, 0, version=version, outcome=outcome)


def asked(*asks: Ask) -> Book:
    book = Book()
    for ask in asks:
        book.note(ask)
    return book


(RIGHT,) = expected(ASK, V1)


@pytest.mark.long
def test_scripts_of_a_fixed_seed_violate_nothing(shared: Ground) -> None:
    found = campaign(shared, examples=4, minutes=1, seeded=2026)
    assert not found.violations, (found.least, found.violations)
    assert found.examples == 4


async def test_an_engine_that_lies_about_its_weights_is_seen(shared: Ground) -> None:
    async with world(shared) as here:
        here.fakes[0].engine.weights = "others"
        playing = Play(here)
        for _ in range(3):
            await playing.perform(Ask(temperature=None))
        assert any("is not what" in violation for violation in playing.violations)


async def test_a_place_that_is_not_given_back_is_seen(shared: Ground) -> None:
    async with world(shared) as here:
        playing = Play(here)
        member = here.gateways[1].members[0]
        member.in_flight += 1
        await playing.counts_are_true(within=0.05)
        member.in_flight -= 1
        assert playing.violations


def test_the_right_answer_is_right() -> None:
    assert judge(ASK, seen(RIGHT), asked(ASK)) == []
    assert account(ASK, seen(RIGHT), [record()]) == []


@pytest.mark.parametrize(
    ("ask", "answer", "why"),
    [
        (ASK, seen(expected(ASK, V2)[0]), "is not what"),
        (ASK, seen(expected(Ask(tokens=12), V1)[0]), "is not what"),
        (ASK, seen(RIGHT[:-1]), "is not what"),
        (ASK, seen(RIGHT, cache="hit"), "never asked"),
        (Ask(temperature=None), seen(RIGHT, cache="hit"), "not always the same"),
        (Ask(control="no-store"), seen(RIGHT, cache="join"), "of its own"),
        (Ask(wish="2"), seen(RIGHT), "was asked for"),
        (Ask(least=2), seen(RIGHT), "or newer"),
        (ASK, seen(expected(ASK, "v4-0d0d0d0d")[0], "v4-0d0d0d0d"), "no probe"),
        (ASK, seen(RIGHT, ended=Ended.BROKEN), "the message is not"),
        (ASK, Seen(Ended.ILLEGAL, fault="two lengths"), "no HTTP"),
        (ASK, Seen(Ended.WHOLE, Head(503, "", ())), "without Retry-After"),
        (ASK, Seen(Ended.WHOLE, Head(418, "", ())), "status 418"),
    ],
)
def test_a_wrong_answer_is_seen(ask: Ask, answer: Seen, why: str) -> None:
    assert any(why in wrong for wrong in judge(ask, answer, asked(ask, Ask(tenant=1))))


@pytest.mark.parametrize(
    ("records", "why"),
    [
        ([], "0 records"),
        ([record(), record()], "2 records"),
        ([record(Outcome.BACKEND_ERROR)], "counted as"),
        ([record(version=V2)], "counted for"),
        ([record(Outcome.INTERNAL_ERROR)], "internal error"),
    ],
)
def test_a_wrong_account_is_seen(records: list[RequestRecord], why: str) -> None:
    (wrong,) = account(ASK, seen(RIGHT), records)
    assert why in wrong


def test_a_tenant_gets_its_own_kept_answer() -> None:
    assert judge(ASK, seen(RIGHT, cache="hit"), asked(ASK, ASK)) == []


@settings(max_examples=30, suppress_health_check=list(HealthCheck), deadline=None, database=None)
@given(scripts())
def test_a_printed_script_is_the_script(script: list[Step]) -> None:
    names = {**vars(steps), "Client": Client}
    assert [eval(as_code(step), names) for step in script] == script
