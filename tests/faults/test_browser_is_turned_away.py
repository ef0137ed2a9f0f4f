"""A page calls the gateway, and the browser hides the answer because its CORS headers are missing."""

from __future__ import annotations

import pytest

from backends.fake import Behaviour
from tests.drivers.raw import Response, ask
from tests.faults.seen import asked
from tests.gateways import FORMS, fakes, gateway_to

ORIGIN = "https://app.example"
CORS = {"cors": {"origins": [ORIGIN]}, "max_body_bytes": 4096}
KEYS = {"keys": [{"name": "a", "sha256": "0" * 64}]}


def _preflight(origin: str = ORIGIN) -> list[tuple[str, str]]:
    return [
        ("origin", origin),
        ("access-control-request-method", "POST"),
        ("access-control-request-headers", "authorization, content-type"),
    ]


def _allows(response: Response) -> str | None:
    return response.header("access-control-allow-origin")


@pytest.mark.fault("D8")
async def test_a_browser_may_ask_without_a_key_whether_it_may_call() -> None:
    async with fakes(1) as (fake,), gateway_to(fake, server=CORS, auth=KEYS) as gateway:
        for path in (*(path for path, _ in FORMS.values()), "/v1/models", "/healthz"):
            response = await ask(gateway.url, path, method="OPTIONS", headers=_preflight())
            assert response.status in (200, 204)
            assert _allows(response) == ORIGIN
            assert "POST" in (response.header("access-control-allow-methods") or "")
            assert "authorization" in (response.header("access-control-allow-headers") or "")
        assert not asked(fake)


@pytest.mark.fault("D8")
async def test_every_answer_to_a_page_may_be_read_by_it() -> None:
    async with fakes(1) as (fake,), gateway_to(fake, server=CORS) as gateway:
        origin = [("origin", ORIGIN)]
        for path, body in FORMS.values():
            assert _allows(await ask(gateway.url, path, body, headers=origin)) == ORIGIN
            assert _allows(await ask(gateway.url, path, b"[]", headers=origin)) == ORIGIN
            too_large = await ask(gateway.url, path, bytes(5000), headers=origin)
            assert (too_large.status, _allows(too_large)) == (413, ORIGIN)
        for path in ("/healthz", "/v1/models", "/nowhere", "/predict"):
            assert _allows(await ask(gateway.url, path, headers=origin)) == ORIGIN
        fake.behave(Behaviour(status=400))
        for path, body in FORMS.values():
            refused = await ask(gateway.url, path, body, headers=origin)
            assert (refused.status, _allows(refused)) == (400, ORIGIN)


@pytest.mark.fault("D8")
async def test_a_refusal_of_a_key_may_be_read_by_the_page() -> None:
    async with fakes(1) as (fake,), gateway_to(fake, server=CORS, auth=KEYS) as gateway:
        for path, body in FORMS.values():
            refused = await ask(gateway.url, path, body, headers=[("origin", ORIGIN)])
            assert (refused.status, _allows(refused)) == (401, ORIGIN)


@pytest.mark.fault("D8")
async def test_another_page_may_not_read_anything() -> None:
    async with fakes(1) as (fake,), gateway_to(fake, server=CORS) as gateway:
        evil = _preflight("https://evil.example")
        response = await ask(gateway.url, "/predict", method="OPTIONS", headers=evil)
        assert response.status == 400
        assert response.json()["error"]["type"] == "invalid_request_error"
        assert _allows(response) is None
        for path, body in FORMS.values():
            answer = await ask(gateway.url, path, body, headers=[("origin", "https://evil.example")])
            assert _allows(answer) is None


@pytest.mark.fault("D8")
async def test_without_configured_origins_nothing_is_said_of_them() -> None:
    async with fakes(1) as (fake,), gateway_to(fake) as gateway:
        assert (await ask(gateway.url, "/predict", method="OPTIONS", headers=_preflight())).status == 405
        for path, body in FORMS.values():
            answer = await ask(gateway.url, path, body, headers=[("origin", ORIGIN)])
            assert answer.status == 200
            assert _allows(answer) is None


@pytest.mark.fault("D8")
async def test_any_page_may_read_everything_where_that_is_configured() -> None:
    cors = {"cors": {"origins": ["*"]}}
    async with fakes(1) as (fake,), gateway_to(fake, server=cors) as gateway:
        for path, body in FORMS.values():
            answer = await ask(gateway.url, path, body, headers=[("origin", ORIGIN)])
            assert _allows(answer) in (ORIGIN, "*")
            assert answer.header("access-control-allow-credentials") is None
