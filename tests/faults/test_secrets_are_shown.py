"""A prompt or a key turns up where it should not: in a log, a metric, a trace, another's error."""

from __future__ import annotations

import hashlib
import logging
import signal
from functools import partial
from typing import Any

import pytest

from backends.fake import Behaviour, Cut, Ending, Point
from tests.drivers.framing import FramingError
from tests.drivers.leaving import WhileWaiting, leave
from tests.drivers.many import many
from tests.drivers.process import running_gateway
from tests.drivers.raw import ask, chunked_request, connected, request
from tests.drivers.waiting import eventually, paced
from tests.gateways import FORMS, fakes, gateway_to, settings_for

PROMPT = "the-patient-is-called-Rosalind"
KEY = "client-key-hunter2"
ENGINE_KEY = "engine-key-swordfish"
SECRETS = (PROMPT, KEY, ENGINE_KEY)
HEADERS = [
    ("authorization", f"Bearer {KEY}"),
    ("cookie", f"session={KEY}"),
    ("x-api-key", KEY),
    ("api-key", KEY),
]
AUTH = {"keys": [{"name": "a", "sha256": hashlib.sha256(KEY.encode()).hexdigest()}]}
LIMITS = {"first_byte_s": 0.2, "silence_s": 0.2, "heartbeat_s": 0.2, "connect_s": 0.2, "total_s": 0.5}

FAILURES = [
    Behaviour(),
    Behaviour(status=400, body=f'{{"error":{{"message":"{PROMPT} is too long"}}}}'),
    Behaviour(status=500, body=f"<html>{PROMPT}</html>", content_type="text/html"),
    Behaviour(status=503),
    Behaviour(cut=Cut(how=Ending.RESET, after=Point.NOTHING)),
    Behaviour(cut=Cut(how=Ending.RESET, after=Point.CHUNKS, count=1)),
    Behaviour(cut=Cut(how=Ending.SILENCE, after=Point.CHUNKS, count=1)),
    Behaviour(cut=Cut(how=Ending.ERROR_EVENT, after=Point.CHUNKS, count=1, message=PROMPT)),
    Behaviour(delay_headers_s=5),
    Behaviour(text=f"{PROMPT} and {PROMPT}"),
    Behaviour(body=PROMPT),
    Behaviour(length_error=5),
    Behaviour(empty_choices=True),
]


def _with_prompt(path: str, body: dict[str, Any]) -> dict[str, Any]:
    said: dict[str, Any] = (
        {"messages": [{"role": "user", "content": PROMPT}]} if "messages" in body else {"prompt": PROMPT}
    )
    return {**body, **said}


async def _try(url: str, asked: bytes) -> bytes:
    """Everything that the gateway itself had to say; empty where the connection broke."""
    async with connected(url) as peer:
        await peer.send(asked)
        try:
            await peer.response()
        except (FramingError, ConnectionError):
            pass
        return bytes(peer.received)


async def _try_one(url: str, asked: list[bytes], number: int) -> bytes:
    return await _try(url, asked[number])


WRONG: list[bytes] = [
    b"",
    PROMPT.encode(),
    b'"' + PROMPT.encode() + b'"',
    b'{"prompt":"' + PROMPT.encode(),
    b'{"prompt":"' + PROMPT.encode() + b'","max_tokens":"' + PROMPT.encode() + b'"}',
    b'{"prompt":["' + PROMPT.encode() + b'",1]}',
    b'{"prompt":"' + PROMPT.encode() + b'\xff"}',
    b'{"prompt":{"' + PROMPT.encode() + b'":1}}',
    b'{"messages":[{"role":"user","content":"' + PROMPT.encode() + b'"}],"prompt":"x","seed":"s"}',
    b"x" * 5000 + PROMPT.encode(),
]


@pytest.mark.fault("X2")
@pytest.mark.parametrize("level", ["debug", "info", "warning", "error"])
async def test_secrets_are_in_no_log_metric_or_error(level: str) -> None:
    async with fakes(1) as (fake,):
        settings = settings_for(
            fake.url,
            auth=AUTH,
            timeouts=LIMITS,
            logging={"level": level, "format": "console" if level == "info" else "json"},
            server={"max_body_bytes": 4096, "settle_s": 0},
            health={"traffic_failures": 1000},
        )
        settings["endpoints"] = [{"url": fake.url, "api_key": ENGINE_KEY}]
        async with running_gateway(settings) as gateway:
            for behaviour in FAILURES:
                fake.behave(behaviour)
                asked_at_once = [
                    request(path, _with_prompt(path, body), headers=HEADERS) for path, body in FORMS.values()
                ]
                await many(len(asked_at_once), partial(_try_one, gateway.url, asked_at_once))
            for path in dict.fromkeys(path for path, _ in FORMS.values()):
                for wrong in WRONG:
                    said = await _try(gateway.url, request(path, wrong, headers=HEADERS))
                    assert KEY.encode() not in said
                    if path == "/predict":
                        assert PROMPT.encode() not in said, wrong
                for headers in ([("authorization", f"Bearer {KEY}x")], [("authorization", f"Basic {KEY}")]):
                    said = await _try(gateway.url, request(path, {"prompt": PROMPT}, headers=headers))
                    assert KEY.encode() not in said
                asked = request(path, {"prompt": PROMPT}, headers=HEADERS)
                await leave(gateway.url, asked, WhileWaiting(lambda: paced(0.02)))
                await _try(
                    gateway.url, chunked_request(path, [b"{"], headers=HEADERS) + b"junk " + PROMPT.encode()
                )
            await _try(gateway.url, request(f"/v1/{PROMPT}?key={KEY}", headers=HEADERS))
            await _try(gateway.url, request("/predict", headers=HEADERS))
            metrics = (await ask(gateway.url, "/metrics")).body.decode()
            status = (await ask(gateway.url, "/status")).body.decode()
            gateway.signal(signal.SIGTERM)
            assert await gateway.ended() == 0
            for secret in SECRETS:
                assert secret not in metrics
                assert secret not in status
                assert secret not in gateway.log, [
                    line for line in gateway.log.splitlines() if secret in line
                ][:3]
            assert len(gateway.log) > 0 or level in ("warning", "error")


@pytest.mark.fault("X2")
async def test_a_failure_inside_the_gateway_is_logged_without_the_request(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """An error that nobody foresaw is the likeliest to show what it was about."""
    async with fakes(1) as (fake,), gateway_to(fake) as gateway:
        await eventually(lambda: gateway.fleet.ready)
        with caplog.at_level(logging.DEBUG):
            for path in ("/predict", "/v1/completions"):
                response = await ask(gateway.url, path, {"prompt": PROMPT, "n": [PROMPT]}, headers=HEADERS)
                assert response.status in (200, 400, 422, 500)
        assert PROMPT not in repr(gateway.records), "what traces and lines are made of"
        assert PROMPT not in caplog.text
        assert KEY not in caplog.text
