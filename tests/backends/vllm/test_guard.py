"""The guard, driven as the ASGI application that it is."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import msgspec
import pytest

from backends.contract import ELSEWHERE_HEADER, GUARD_PATH, TOKEN_HEADER, VERSION_HEADER
from backends.vllm.guard import OPEN_PATHS, TOKEN_VARIABLE, VERSION_VARIABLE, WORK_PATHS, Guard

TOKEN = "t0ken"
CONTROL_PATHS = (
    "/pause",
    "/resume",
    "/is_paused",
    "/abort_requests",
    "/collective_rpc",
    "/update_weight_version",
    "/update_weights",
    "/start_weight_update",
    "/finish_weight_update",
    "/init_weight_transfer_engine",
    "/shutdown_weight_transfer_engine",
    "/weight_info",
    "/weight_checker",
    "/get_world_size",
    "/reset_prefix_cache",
    "/reset_mm_cache",
    "/reset_encoder_cache",
    "/sleep",
    "/wake_up",
    "/is_sleeping",
    "/release_kv_cache_memory",
    "/server_info",
    "/start_profile",
    "/stop_profile",
    "/scale_elastic_ep",
    "/is_scaling_elastic_ep",
    "/fault_tolerance/status",
    "/v1/load_lora_adapter",
    "/v1/unload_lora_adapter",
    "/inference/v1/generate",
    "/inference/v1/abort_requests",
    "/invocations",
    "/tokenizer_info",
    "/kv_event_sources",
    "/docs",
    "/openapi.json",
    GUARD_PATH,
)


@dataclass
class Answer:
    status: int = 0
    headers: dict[str, str] = field(default_factory=dict)
    body: bytes = b""

    def json(self) -> Any:
        return msgspec.json.decode(self.body)


class Engine:
    """Stands for vLLM: notes what reaches it; streams two pieces, the second when it is let."""

    def __init__(self) -> None:
        self.reached: list[str] = []
        self.halfway = asyncio.Event()
        self.go_on = asyncio.Event()
        self.go_on.set()

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        self.reached.append(scope["path"])
        headers = [(b"content-type", b"text/plain"), (VERSION_HEADER.encode(), b"forged")]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        await send({"type": "http.response.body", "body": b"one ", "more_body": True})
        self.halfway.set()
        await self.go_on.wait()
        await send({"type": "http.response.body", "body": b"two"})


@pytest.fixture
def engine() -> Engine:
    return Engine()


@pytest.fixture
def guard(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> Iterator[Guard]:
    monkeypatch.setenv(TOKEN_VARIABLE, TOKEN)
    monkeypatch.setenv(VERSION_VARIABLE, "v1")
    yield Guard(engine)


async def ask(
    guard: Guard,
    path: str,
    *,
    method: str = "GET",
    token: str | bytes | None = None,
    body: bytes = b"",
    raw_path: bytes | None = None,
    root_path: str = "",
    more: tuple[tuple[bytes, bytes], ...] = (),
) -> Answer:
    headers = [(b"host", b"engine"), *more]
    if token is not None:
        headers.append((TOKEN_HEADER.encode(), token if isinstance(token, bytes) else token.encode()))
    scope = {
        "type": "http",
        "method": method,
        "path": path,
        "raw_path": path.encode() if raw_path is None else raw_path,
        "root_path": root_path,
        "query_string": b"",
        "headers": headers,
    }
    answer = Answer()

    async def receive() -> dict[str, Any]:
        return {"type": "http.request", "body": body, "more_body": False}

    async def send(message: Any) -> None:
        if message["type"] == "http.response.start":
            answer.status = message["status"]
            pairs = [(name.decode(), value.decode()) for name, value in message["headers"]]
            assert len({name for name, _ in pairs}) == len(pairs), "a header came twice"
            answer.headers = dict(pairs)
        else:
            answer.body += message.get("body", b"")

    await guard(scope, receive, send)
    return answer


async def set_guard(guard: Guard, **wanted: object) -> Answer:
    return await ask(guard, GUARD_PATH, method="POST", token=TOKEN, body=msgspec.json.encode(wanted))


@pytest.mark.parametrize("path", CONTROL_PATHS)
async def test_a_control_path_is_not_found_without_the_token(guard: Guard, engine: Engine, path: str) -> None:
    answer = await ask(guard, path, method="POST")

    assert answer.status == 404
    assert answer.json()["error"] == {"message": "Not Found", "type": "not_found", "param": None, "code": 404}
    assert engine.reached == []


@pytest.mark.parametrize("path", [path for path in CONTROL_PATHS if path != GUARD_PATH])
async def test_a_control_path_opens_with_the_token(guard: Guard, engine: Engine, path: str) -> None:
    answer = await ask(guard, path, method="POST", token=TOKEN)

    assert (answer.status, engine.reached) == (200, [path])


@pytest.mark.parametrize("path", sorted(WORK_PATHS | OPEN_PATHS))
async def test_clients_need_no_token(guard: Guard, engine: Engine, path: str) -> None:
    answer = await ask(guard, path, method="POST")

    assert (answer.status, engine.reached) == (200, [path])


@pytest.mark.parametrize("token", ["", "T0KEN", "t0ken ", "t0ke", b"\xff\xfe"])
async def test_a_wrong_token_opens_nothing(guard: Guard, engine: Engine, token: str | bytes) -> None:
    assert (await ask(guard, "/pause", method="POST", token=token)).status == 404
    assert engine.reached == []


@pytest.mark.parametrize(
    ("path", "raw_path"),
    [
        ("/pause", b"/%70ause"),
        ("/v1/completions", b"/v1/%63ompletions"),
        ("//pause", b"//pause"),
        ("/pause/", b"/pause/"),
        ("/v1/../pause", b"/v1/../pause"),
        ("/V1/completions", b"/V1/completions"),
        ("/v1/completions/", b"/v1/completions/"),
        ("/health;x", b"/health;x"),
        ("/health\x00", b"/health%00"),
        ("", b""),
    ],
)
async def test_an_odd_path_is_no_way_around(guard: Guard, engine: Engine, path: str, raw_path: bytes) -> None:
    assert (await ask(guard, path, method="POST", raw_path=raw_path)).status == 404
    assert engine.reached == []


async def test_a_mounted_application_is_closed(guard: Guard, engine: Engine) -> None:
    assert (await ask(guard, "/v1/completions", root_path="/v1")).status == 404
    assert engine.reached == []


async def test_without_a_token_in_the_environment_nothing_opens_a_control_path(
    engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv(TOKEN_VARIABLE, raising=False)
    guard = Guard(engine)

    assert (await ask(guard, "/pause", token="")).status == 404
    assert (await ask(guard, "/pause")).status == 404


async def test_every_answer_names_the_version_even_over_the_engines_own(guard: Guard) -> None:
    answers = [
        await ask(guard, "/v1/completions", method="POST"),
        await ask(guard, "/health"),
        await ask(guard, "/pause"),
        await ask(guard, GUARD_PATH, token=TOKEN),
    ]

    assert [answer.headers[VERSION_HEADER] for answer in answers] == ["v1"] * 4


async def test_a_new_version_is_named_from_the_next_answer_on(guard: Guard) -> None:
    assert (await set_guard(guard, version="v2")).json()["version"] == "v2"

    assert (await ask(guard, "/v1/completions", method="POST")).headers[VERSION_HEADER] == "v2"


async def test_a_draining_engine_sends_new_requests_elsewhere(guard: Guard, engine: Engine) -> None:
    await set_guard(guard, draining=True)

    answer = await ask(guard, "/v1/chat/completions", method="POST")

    assert answer.status == 503
    assert answer.headers[ELSEWHERE_HEADER] == "draining"
    assert answer.json()["error"]["type"] == "draining"
    assert engine.reached == []
    assert (await ask(guard, "/health")).headers[ELSEWHERE_HEADER] == "draining"
    assert (await ask(guard, "/collective_rpc", method="POST", token=TOKEN)).status == 200, (
        "it can be swapped"
    )


async def test_a_request_counts_until_its_last_byte(guard: Guard, engine: Engine) -> None:
    engine.go_on.clear()
    async with asyncio.TaskGroup() as group:
        streaming = group.create_task(ask(guard, "/v1/completions", method="POST"))
        await engine.halfway.wait()
        during = (await set_guard(guard, draining=True)).json()
        engine.go_on.set()
        answer = await streaming
    after = (await ask(guard, GUARD_PATH, token=TOKEN)).json()

    assert (during["in_flight"], after["in_flight"]) == (1, 0)
    assert answer.body == b"one two", "what runs when draining begins is finished"


async def test_a_client_that_leaves_no_longer_counts(guard: Guard, engine: Engine) -> None:
    engine.go_on.clear()
    async with asyncio.TaskGroup() as group:
        streaming = group.create_task(ask(guard, "/v1/completions", method="POST"))
        await engine.halfway.wait()
        streaming.cancel()

    assert (await ask(guard, GUARD_PATH, token=TOKEN)).json()["in_flight"] == 0


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"no json",
        b"[]",
        b'{"version": ""}',
        b'{"version": "a\\r\\nx: y"}',
        b'{"version": "\xc3\xa9"}',
        b'{"version": 2}',
        b'{"draining": 1}',
        b'{"draining": true, "in_flight": 0}',
        b'{"version": "v9", "draining": "yes"}',
    ],
)
async def test_a_guard_that_is_told_nonsense_changes_nothing(guard: Guard, body: bytes) -> None:
    answer = await ask(guard, GUARD_PATH, method="POST", token=TOKEN, body=body)

    assert answer.status == 400
    state = (await ask(guard, GUARD_PATH, token=TOKEN)).json()
    assert state == {"version": "v1", "draining": False, "in_flight": 0}


async def test_a_websocket_is_closed_unheard(guard: Guard, engine: Engine) -> None:
    sent: list[Any] = []

    async def receive() -> dict[str, Any]:
        return {"type": "websocket.connect"}

    async def send(message: Any) -> None:
        sent.append(message)

    await guard({"type": "websocket", "path": "/v1/realtime", "headers": []}, receive, send)

    assert sent == [{"type": "websocket.close", "code": 1008}]
    assert engine.reached == []
