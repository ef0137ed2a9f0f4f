"""A user gets an answer of other weights than were asked for, than are due, or than its headers say."""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import Any

import pytest

from backends.fake import Behaviour, Rule
from gateway.fleet.split import Split
from gateway.fleet.states import State
from gateway.observe.evidence import EvidenceReader
from tests.drivers.raw import Response, ask, connected, request
from tests.drivers.sse import record
from tests.drivers.waiting import always, eventually
from tests.gateways import FORMS, Running, asked_of, fakes, gateway_to

V7, V8, V9 = "v7-0a0a0a0a", "v8-0b0b0b0b", "v9-0c0c0c0c"
BODY: dict[str, Any] = {"prompt": "Hello", "max_tokens": 2}
SURE: dict[str, Any] = {**BODY, "temperature": 0}
"""Its answer may be kept, and others may join."""
COMPLETIONS = "/v1/completions"
LEAVING = {"x-changeover-elsewhere": "swapping"}


def serving(label: str) -> Behaviour:
    return Behaviour(version=label)


def swapping(label: str) -> Behaviour:
    """Out of rotation, as the guard says it."""
    health = Rule(paths=("/health",), status=503, headers=LEAVING)
    return Behaviour(version=label, status=503, headers=LEAVING, rules=(health,))


def version(answer: Response) -> str | None:
    return answer.header("x-model-version")


def wish(label: str = "", least: str = "") -> list[tuple[str, str]]:
    named = {"x-model-version": label, "x-model-version-min": least}
    return [(name, value) for name, value in named.items() if value]


async def at(gateway: Running, *labels: str) -> None:
    """Return when the members are known to serve these, all of them in rotation."""
    await eventually(lambda: len(gateway.ready) == len(gateway.members))
    await eventually(lambda: Counter(m.version for m in gateway.members) == Counter(labels))


@pytest.mark.fault("S11")
@pytest.mark.parametrize("form", FORMS)
async def test_a_canary_of_a_tenth_gets_a_tenth_to_the_request(form: str) -> None:
    path, body = FORMS[form]
    async with fakes(2) as (old, new):
        old.behave(serving(V7))
        new.behave(serving(V8))
        async with gateway_to(old, new) as gateway:
            gateway.fleet.divide(Split(V7, V8, 0.1))
            answers = [await record(gateway.url, path, body) for _ in range(20)]
            got = Counter(answer.head.header("x-model-version") for answer in answers if answer.head)
            assert got == {V7: 18, V8: 2}
            assert (asked_of(old), asked_of(new)) == (18, 2)


@pytest.mark.fault("S11")
async def test_shares_are_exact_for_many_at_once_on_few_places() -> None:
    async with fakes(2) as (old, new):
        old.behave(Behaviour(version=V7, delay_first_chunk_s=0.005))
        new.behave(Behaviour(version=V8, delay_first_chunk_s=0.005))
        async with gateway_to(old, new, limits={"max_in_flight_per_member": 2}) as gateway:
            gateway.fleet.divide(Split(V7, V8, 0.1))
            answers = await asyncio.gather(*(ask(gateway.url, COMPLETIONS, BODY) for _ in range(200)))
            assert Counter(map(version, answers)) == {V7: 180, V8: 20}
            assert await gateway.metric("changeover_version_requests_total", version=V8, outcome="ok") == 20


@pytest.mark.fault("S11")
async def test_a_candidate_without_a_share_gets_nothing_even_when_the_stable_one_fails() -> None:
    async with fakes(2) as (old, new):
        old.behave(Behaviour(version=V7, status=503))
        new.behave(serving(V8))
        async with gateway_to(old, new) as gateway:
            gateway.fleet.divide(Split(V7, V8, 0.0))
            answers = [await ask(gateway.url, COMPLETIONS, BODY) for _ in range(5)]
            assert {answer.status for answer in answers} == {503}
            assert asked_of(new) == 0


@pytest.mark.fault("S11")
async def test_the_stable_version_takes_over_from_a_candidate_that_is_gone() -> None:
    async with fakes(2) as (old, new):
        old.behave(serving(V7))
        new.behave(serving(V8))
        async with gateway_to(old, new) as gateway:
            gateway.fleet.divide(Split(V7, V8, 1.0))
            assert version(await ask(gateway.url, COMPLETIONS, BODY)) == V8
            new.behave(swapping(V8))
            answers = [await ask(gateway.url, COMPLETIONS, BODY) for _ in range(4)]
            assert {(answer.status, version(answer)) for answer in answers} == {(200, V7)}
            assert await gateway.metric("changeover_version_takeovers_total") >= 3


async def test_equal_users_stay_with_their_version() -> None:
    async with fakes(2) as (old, new):
        old.behave(serving(V7))
        new.behave(serving(V8))
        async with gateway_to(old, new) as gateway:
            gateway.fleet.divide(Split(V7, V8, 0.5, sticky_header="X-User"))
            seen: dict[int, set[str | None]] = {}
            for number in range(40):
                headers = [("x-user", f"user-{number % 10}")]
                answer = await ask(gateway.url, COMPLETIONS, BODY, headers=headers)
                seen.setdefault(number % 10, set()).add(version(answer))
            assert all(len(versions) == 1 for versions in seen.values())
            assert set.union(*seen.values()) == {V7, V8}


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("asked", ["7", "v7", V7])
async def test_the_version_that_is_asked_for_answers(form: str, asked: str) -> None:
    path, body = FORMS[form]
    async with fakes(2) as (old, new):
        old.behave(serving(V7))
        new.behave(serving(V8))
        async with gateway_to(old, new) as gateway:
            for _ in range(3):
                answer = await record(gateway.url, path, body, headers=wish(asked))
                assert answer.head is not None
                assert answer.head.header("x-model-version") == V7
            assert asked_of(new) == 0


@pytest.mark.fault("X1")
async def test_a_version_that_nobody_has_is_not_found_and_reaches_no_engine() -> None:
    async with fakes(1, serving(V7)) as (fake,), gateway_to(fake) as gateway:
        for asked, status, code in (
            ("v6", 404, "version_not_found"),
            ("candidate", 404, "version_not_found"),
            ("no such", 400, "invalid_request_error"),
            ("x" * 500, 400, "invalid_request_error"),
        ):
            answer = await ask(gateway.url, COMPLETIONS, BODY, headers=wish(asked))
            assert (answer.status, answer.json()["error"]["code"]) == (status, code)
        answer = await ask(gateway.url, COMPLETIONS, BODY, headers=wish(least="soon"))
        assert answer.status == 400
        assert asked_of(fake) == 0
        assert version(await ask(gateway.url, COMPLETIONS, BODY, headers=wish("serving"))) == V7
        (seen,) = [told for told in fake.stats.seen if told.path == COMPLETIONS]
        assert "x-model-version" not in dict(seen.headers)


async def test_a_version_that_is_out_of_rotation_is_waited_for_and_then_refused() -> None:
    limits = {"max_queue_s": 0.2}
    async with fakes(2) as (old, new):
        old.behave(serving(V7))
        new.behave(serving(V8))
        async with gateway_to(old, new, limits=limits) as gateway:
            new.behave(swapping(V8))
            await eventually(lambda: gateway.state(new) is State.DRAINING)
            answer = await ask(gateway.url, COMPLETIONS, BODY, headers=wish("v8"))
            assert (answer.status, answer.json()["error"]["code"]) == (503, "version_not_served")
            assert answer.header("retry-after") is not None
            assert V7 in answer.json()["error"]["message"]
            assert version(await ask(gateway.url, COMPLETIONS, BODY)) == V7


async def test_one_who_asks_for_a_least_version_gets_it_when_it_is_there() -> None:
    async with (
        fakes(2, serving(V7)) as (old, new),
        gateway_to(old, new, limits={"max_queue_s": 0.1}) as gateway,
        asyncio.TaskGroup() as tasks,
    ):
        waiting = tasks.create_task(ask(gateway.url, COMPLETIONS, BODY, headers=wish(least="8")))
        await eventually(lambda: gateway.service.lanes.queued == 1)
        # Longer than a request waits for room.
        await always(lambda: not waiting.done(), during=0.3)
        assert version(await ask(gateway.url, COMPLETIONS, BODY)) == V7
        new.behave(serving(V8))
        answer = await waiting
        assert (answer.status, version(answer)) == (200, V8)


async def test_one_who_asks_for_a_least_version_waits_no_longer_than_its_own_limit() -> None:
    async with fakes(1, serving(V7)) as (fake,), gateway_to(fake) as gateway:
        headers = [*wish(least="8"), ("x-request-timeout", "0.2")]
        answer = await ask(gateway.url, COMPLETIONS, BODY, headers=headers)
        assert answer.status in (503, 504)
        assert answer.json()["error"]["code"] == "version_not_served"
        assert answer.header("retry-after") is not None
        assert asked_of(fake) == 0


async def test_one_who_leaves_while_waiting_for_a_version_leaves_nothing_behind() -> None:
    async with fakes(1, serving(V7)) as (fake,), gateway_to(fake) as gateway:
        async with connected(gateway.url) as peer:
            await peer.send(request(COMPLETIONS, BODY, headers=wish(least="8")))
            await eventually(lambda: gateway.service.lanes.queued == 1)
        await eventually(lambda: gateway.service.lanes.queued == 0)


@pytest.mark.parametrize("stream", [False, True], ids=["json", "stream"])
async def test_an_answer_of_other_weights_than_were_asked_for_is_never_given(stream: bool) -> None:
    """The member has taken other weights, and its gateway has not heard of it yet."""
    slow = {"interval_s": 30}
    async with fakes(2, serving(V7)) as (old, new), gateway_to(old, new, health=slow) as gateway:
        await at(gateway, V7, V7)
        new.behave(serving(V8))
        for _ in range(6):
            answer = await record(gateway.url, COMPLETIONS, {**BODY, "stream": stream}, headers=wish("v7"))
            assert answer.head is not None
            assert (answer.head.status, answer.head.header("x-model-version")) == (200, V7)
        assert gateway.member(new).version == V8
        assert asked_of(new) <= 1


async def test_a_member_that_took_other_weights_is_known_by_its_first_answer() -> None:
    slow = {"interval_s": 30}
    async with fakes(1, serving(V7)) as (fake,), gateway_to(fake, health=slow) as gateway:
        fake.behave(serving(V8))
        answer = await ask(gateway.url, COMPLETIONS, BODY)
        assert version(answer) == V8
        assert gateway.fleet.versions == [V8]
        assert [told.version for told in gateway.records] == [V8]


@pytest.mark.fault("F8")
async def test_an_answer_that_began_under_one_version_and_ended_under_another_is_not_kept() -> None:
    slow = {"interval_s": 30}
    async with fakes(1, serving(V7)) as (fake,), gateway_to(fake, health=slow) as gateway:
        await at(gateway, V7)
        fake.behave(serving(V8))
        first = await ask(gateway.url, COMPLETIONS, SURE)
        assert (version(first), first.header("x-cache")) == (V8, "miss")
        again = await ask(gateway.url, COMPLETIONS, SURE)
        assert (version(again), again.header("x-cache")) == (V8, "miss")
        assert (await ask(gateway.url, COMPLETIONS, SURE)).header("x-cache") == "hit"


@pytest.mark.fault("F8")
@pytest.mark.parametrize("path", [COMPLETIONS, "/predict"])
async def test_kept_answers_are_of_the_version_that_is_asked_for(path: str) -> None:
    async with fakes(2) as (old, new):
        old.behave(serving(V7))
        new.behave(serving(V8))
        async with gateway_to(old, new) as gateway:
            for expected in ("miss", "hit", "hit"):
                for asked in (V7, V8):
                    answer = await ask(gateway.url, path, SURE, headers=wish(asked))
                    assert (version(answer), answer.header("x-cache")) == (asked, expected)
                    assert asked.encode() in answer.body
            assert asked_of(old) == asked_of(new) == 1


@pytest.mark.fault("F5")
async def test_those_who_ask_the_same_of_two_versions_are_two_calls() -> None:
    async with fakes(2) as (old, new):
        old.behave(Behaviour(version=V7, delay_headers_s=0.1))
        new.behave(Behaviour(version=V8, delay_headers_s=0.1))
        async with gateway_to(old, new) as gateway:
            asked = [V7, V8] * 25
            answers = await asyncio.gather(
                *(ask(gateway.url, COMPLETIONS, SURE, headers=wish(label)) for label in asked)
            )
            assert [version(answer) for answer in answers] == asked
            assert asked_of(old) == asked_of(new) == 1


async def test_prompts_for_two_versions_do_not_travel_together() -> None:
    async with fakes(2) as (old, new):
        old.behave(Behaviour(version=V7, delay_headers_s=0.05))
        new.behave(Behaviour(version=V8, delay_headers_s=0.05))
        async with gateway_to(old, new) as gateway:
            asked = [V7, V8] * 10
            bodies = ({"prompt": f"prompt {number}", "max_tokens": 2} for number in range(20))
            answers = await asyncio.gather(
                *(
                    ask(gateway.url, "/predict", body, headers=wish(label))
                    for body, label in zip(bodies, asked, strict=True)
                )
            )
            assert [version(answer) for answer in answers] == asked
            assert [answer.json()["version"] for answer in answers] == asked
            assert asked_of(old) < 10


@pytest.mark.fault("F8")
async def test_while_members_differ_equal_questions_go_to_one_version_and_are_kept() -> None:
    async with fakes(2) as (old, new):
        old.behave(serving(V7))
        new.behave(serving(V8))
        async with gateway_to(old, new) as gateway:
            for number in range(8):
                body = {**SURE, "prompt": f"question {number}"}
                answers = [await ask(gateway.url, COMPLETIONS, body) for _ in range(3)]
                assert [answer.header("x-cache") for answer in answers] == ["miss", "hit", "hit"]
                assert len({version(answer) for answer in answers}) == 1
            assert asked_of(old) + asked_of(new) == 8
            assert gateway.fleet.versions == [V7, V8]


async def test_what_is_served_is_said_everywhere() -> None:
    async with fakes(2) as (old, new):
        old.behave(serving(V7))
        new.behave(serving(V8))
        async with gateway_to(old, new) as gateway:
            gateway.fleet.divide(Split(V7, V8, 0.1))
            (model,) = (await ask(gateway.url, "/v1/models")).json()["data"]
            assert model["versions"] == [V7, V8]
            (served,) = (await ask(gateway.url, "/readyz")).json()["models"].values()
            assert served["versions"] == [V7, V8]
            (told,) = (await ask(gateway.url, "/status")).json()["models"]
            assert (told["stable"], told["candidate"], told["share"]) == (V7, V8, 0.1)


async def test_the_evidence_of_each_version_is_what_its_requests_were() -> None:
    async with fakes(2) as (old, new):
        old.behave(serving(V7))
        new.behave(Behaviour(version=V8, status=500))
        async with gateway_to(old, new, health={"traffic_failures": 100}) as gateway:
            evidence = EvidenceReader(gateway.file.parent / "run" / "metrics")
            before = await evidence.read("default")
            gateway.fleet.divide(Split(V7, V8, 0.5))
            for _ in range(20):
                await ask(gateway.url, COMPLETIONS, BODY)
            gateway.gateway.metrics.book()
            seen = await evidence.read("default")
            evidence.close()
            good, bad = (seen[label].since(before.get(label)) for label in (V7, V8))
            assert (good.requests, good.errors, good.mean_tokens) == (10, 0, 2)
            assert bad.requests == 0
            assert bad.error_ratio == 1


@pytest.mark.fault("S7")
@pytest.mark.parametrize("form", [*FORMS, "batch", "kept"])
async def test_while_all_members_change_requests_wait_and_nobody_gets_the_old_weights_after(
    form: str,
) -> None:
    """On-policy training: between two moments all weights change, and no answer is of the wrong side."""
    path, body = FORMS.get(form, ("/predict", {"prompt": ["a", "b"], "max_tokens": 2}))
    if form == "kept":
        path, body = COMPLETIONS, SURE
    async with (
        fakes(2, serving(V7)) as engines,
        gateway_to(*engines, limits={"max_queue_s": 0.1}) as gateway,
        asyncio.TaskGroup() as tasks,
    ):
        await at(gateway, V7, V7)
        if form == "kept":
            assert version(await ask(gateway.url, path, body)) == V7
            assert (await ask(gateway.url, path, body)).header("x-cache") == "hit"
        gateway.fleet.divide(Split(V7, V8, atomic=True))
        for engine in engines:
            engine.behave(swapping(V7))
        waiting = [tasks.create_task(record(gateway.url, path, body)) for _ in range(6)]
        # Longer than requests wait for room at other times.
        await always(lambda: not any(task.done() for task in waiting), during=0.3)
        for engine in engines:
            engine.behave(serving(V8))
        await always(lambda: not any(task.done() for task in waiting), during=0.1)
        gateway.fleet.divide(Split(V8, atomic=True))
        answers = await asyncio.gather(*waiting)
        got = [(a.head.status, a.head.header("x-model-version")) for a in answers if a.head is not None]
        assert got == [(200, V8)] * 6
        gateway.fleet.divide(None)
        after = await record(gateway.url, path, body)
        assert after.head is not None
        assert after.head.header("x-model-version") == V8
