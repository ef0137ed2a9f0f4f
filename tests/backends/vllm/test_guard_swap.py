"""The guard while weights change: who passes, what becomes of requests in flight, their label."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

import msgspec
import pytest

from backends.contract import ELSEWHERE_HEADER, GUARD_PATH, PROBE_HEADER, VERSION_HEADER
from backends.vllm.asgi import Cut
from backends.vllm.guard import ELSEWHERE_VARIABLE, TOKEN_VARIABLE, VERSION_VARIABLE, Guard
from tests.backends.vllm.test_guard import TOKEN, Answer, ask, set_guard

PROBE = ((PROBE_HEADER.encode(), b"1"),)
WORK = "/v1/completions"


class Engine:
    """Answers in two pieces of this type, the second when it is let; notes bodies and cancellations."""

    def __init__(self, content_type: bytes = b"text/event-stream; charset=utf-8") -> None:
        self.content_type = content_type
        self.bodies: list[Any] = []
        self.cancelled = 0
        self.answers = True
        """Else it never begins."""
        self.reached = asyncio.Event()
        self.go_on = asyncio.Event()

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        self.bodies.append((await receive())["body"])
        try:
            if not self.answers:
                self.reached.set()
                await asyncio.Event().wait()
            headers = [(b"content-type", self.content_type)]
            await send({"type": "http.response.start", "status": 200, "headers": headers})
            await send({"type": "http.response.body", "body": b"data: one\n\n", "more_body": True})
            self.reached.set()
            await self.go_on.wait()
        except asyncio.CancelledError:
            self.cancelled += 1
            raise
        await send({"type": "http.response.body", "body": b"data: [DONE]\n\n"})


@pytest.fixture
def engine() -> Engine:
    return Engine()


@pytest.fixture
def guard(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> Iterator[Guard]:
    monkeypatch.setenv(TOKEN_VARIABLE, TOKEN)
    monkeypatch.setenv(VERSION_VARIABLE, "v1")
    yield Guard(engine)


async def in_flight(guard: Guard) -> int:
    count: int = (await ask(guard, GUARD_PATH, token=TOKEN)).json()["in_flight"]
    return count


async def test_an_engine_starts_out_of_rotation_when_it_is_told_so(
    engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(TOKEN_VARIABLE, TOKEN)
    monkeypatch.setenv(ELSEWHERE_VARIABLE, "uncertain")
    answer = await ask(Guard(engine), WORK, method="POST")

    assert (answer.status, answer.headers[ELSEWHERE_HEADER]) == (503, "uncertain")
    assert engine.bodies == []


@pytest.mark.parametrize("path", [WORK, "/health"])
async def test_only_the_agents_probe_passes_while_weights_change(
    guard: Guard, engine: Engine, path: str
) -> None:
    engine.go_on.set()
    await set_guard(guard, draining=True, reason="swapping")

    own = await ask(guard, path, method="POST", token=TOKEN, more=PROBE)
    others = [
        await ask(guard, path, method="POST"),
        await ask(guard, path, method="POST", more=PROBE),
        await ask(guard, path, method="POST", token="guess", more=PROBE),
        await ask(guard, path, method="POST", token=TOKEN),
    ]

    assert own.status == 200
    assert [(other.status, other.headers[ELSEWHERE_HEADER]) for other in others] == [(503, "swapping")] * 4
    assert len(engine.bodies) == 1


async def test_a_probe_is_no_request_of_a_client(guard: Guard, engine: Engine) -> None:
    async with asyncio.TaskGroup() as group:
        probe = group.create_task(ask(guard, WORK, method="POST", token=TOKEN, more=PROBE))
        await engine.reached.wait()
        assert await in_flight(guard) == 0
        await set_guard(guard, end="cut")
        engine.go_on.set()
        assert (await probe).body.endswith(b"[DONE]\n\n")


@pytest.mark.fault("S7")
async def test_an_answer_keeps_the_version_with_which_it_began(guard: Guard, engine: Engine) -> None:
    engine.answers = False
    async with asyncio.TaskGroup() as group:
        waiting = group.create_task(ask(guard, WORK, method="POST"))
        await engine.reached.wait()
        await set_guard(guard, version="v2")
        await set_guard(guard, end="abort")
        assert (await waiting).headers[VERSION_HEADER] == "v1"


@pytest.mark.fault("S7")
async def test_a_stream_that_is_aborted_ends_with_an_error_event(guard: Guard, engine: Engine) -> None:
    async with asyncio.TaskGroup() as group:
        streaming = group.create_task(ask(guard, WORK, method="POST"))
        await engine.reached.wait()
        await set_guard(guard, draining=True, reason="swapping", end="abort")
        answer = await streaming

    first, last = answer.body.removesuffix(b"\n\n").split(b"\n\n")
    assert first == b"data: one"
    assert msgspec.json.decode(last.removeprefix(b"data: "))["error"]["type"] == "weights_changed"
    assert (engine.cancelled, await in_flight(guard)) == (1, 0)


@pytest.mark.fault("S7")
async def test_a_stream_that_is_cut_has_no_orderly_end(guard: Guard, engine: Engine) -> None:
    async with asyncio.TaskGroup() as group:
        streaming = group.create_task(catch(ask(guard, WORK, method="POST")))
        await engine.reached.wait()
        await set_guard(guard, draining=True, reason="swapping", end="cut")
        assert isinstance(await streaming, Cut)

    assert (engine.cancelled, await in_flight(guard)) == (1, 0)


async def test_an_answer_that_is_no_stream_is_cut_even_if_it_may_be_aborted(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv(TOKEN_VARIABLE, TOKEN)
    engine = Engine(b"application/json")
    guard = Guard(engine)
    async with asyncio.TaskGroup() as group:
        answering = group.create_task(catch(ask(guard, WORK, method="POST")))
        await engine.reached.wait()
        await set_guard(guard, end="abort")
        assert isinstance(await answering, Cut)


@pytest.mark.parametrize("end", ["abort", "cut"])
async def test_a_request_that_has_no_byte_yet_is_sent_elsewhere(
    guard: Guard, engine: Engine, end: str
) -> None:
    engine.answers = False
    async with asyncio.TaskGroup() as group:
        waiting = group.create_task(ask(guard, WORK, method="POST"))
        await engine.reached.wait()
        await set_guard(guard, draining=True, reason="swapping", end=end)
        answer = await waiting

    assert (answer.status, answer.headers[ELSEWHERE_HEADER]) == (503, "swapping")


async def test_a_client_that_leaves_is_not_taken_for_one_that_was_ended(guard: Guard, engine: Engine) -> None:
    async with asyncio.TaskGroup() as group:
        streaming = group.create_task(ask(guard, WORK, method="POST"))
        await engine.reached.wait()
        streaming.cancel()
    assert streaming.cancelled()
    assert await in_flight(guard) == 0


async def test_requests_for_the_model_are_requests_for_its_adapter(guard: Guard, engine: Engine) -> None:
    engine.go_on.set()
    assert (await set_guard(guard, adapter={"model": "m", "name": "m-v2"})).status == 200

    for body in ({"model": "m", "prompt": "é"}, {"prompt": "x"}, {"model": "other"}):
        await ask(guard, WORK, method="POST", body=msgspec.json.encode(body))
    await ask(guard, WORK, method="POST", body=b"no json")
    await set_guard(guard, adapter=None)
    await ask(guard, WORK, method="POST", body=b'{"model": "m"}')

    assert [msgspec.json.decode(body) for body in engine.bodies[:3]] == [
        {"model": "m-v2", "prompt": "é"},
        {"prompt": "x", "model": "m-v2"},
        {"model": "other"},
    ]
    assert engine.bodies[3:] == [b"no json", b'{"model": "m"}']


@pytest.mark.parametrize(
    "wanted",
    [
        {"end": "now"},
        {"reason": "tired"},
        {"adapter": "v2"},
        {"adapter": {"model": "m"}},
        {"adapter": {"model": 1, "name": "x"}},
    ],
)
async def test_nonsense_about_a_swap_changes_nothing(guard: Guard, wanted: dict[str, object]) -> None:
    assert (await set_guard(guard, draining=True, **wanted)).status == 400
    assert (await ask(guard, GUARD_PATH, token=TOKEN)).json()["draining"] is False


async def catch(asking: Any) -> Answer | BaseException:
    try:
        answer: Answer = await asking
    except Exception as error:
        return error
    return answer
