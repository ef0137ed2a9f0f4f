"""A request is wrong, and its sender gets a failure of the server, or an error in a shape of its own."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from backends.fake import Behaviour, Cut, Ending, Point, Rule
from tests.drivers.raw import Response, ask, connected, request
from tests.drivers.waiting import eventually
from tests.faults.seen import asked
from tests.gateways import FORMS, QUICK, fakes, gateway_to, serving

JSON = [("content-type", "application/json")]
PATHS = [
    *dict.fromkeys(path for path, _ in FORMS.values()),
    *("/v1/embeddings", "/v1/responses", "/tokenize", "/detokenize"),
]
NO_OBJECTS = {
    "nothing": b"",
    "a blank": b" ",
    "a list": b"[]",
    "null": b"null",
    "a number": b"1",
    "a text": b'"prompt"',
    "a truncated object": b'{"prompt": "x"',
    "a truncated text": b'{"prompt": "x',
    "another format": b"prompt=x",
    "XML": b"<prompt/>",
    "two objects": b'{"prompt":"x"}{"prompt":"y"}',
    "single quotes": b"{'prompt':'x'}",
    "a deep hole": b'{"prompt":' + b"[" * 100_000,
    "zeros": bytes(100),
    "gzip that nobody announced": bytes.fromhex("1f8b0800"),
    "half a character": b'{"prompt":"\xc3',
}


def assert_shape(response: Response) -> dict[str, Any]:
    """The error, after checking that it has the shape of every error."""
    assert response.header("content-type") == "application/json"
    page = response.json()
    assert page.keys() == {"error"}
    error: dict[str, Any] = page["error"]
    assert error.keys() == {"message", "type", "param", "code"}
    assert error["message"]
    assert isinstance(error["type"], str)
    return error


@pytest.mark.fault("D9")
async def test_a_body_that_is_no_json_object_is_a_400_on_every_route() -> None:
    async with fakes(1) as (fake,), gateway_to(fake) as gateway:
        for path in PATHS:
            for name, body in NO_OBJECTS.items():
                response = await ask(gateway.url, path, body, headers=JSON)
                assert response.status == 400, (path, name)
                assert_shape(response)
                assert response.header("x-request-id")
                assert response.keep_alive
        assert not asked(fake)


@pytest.mark.fault("D9")
async def test_half_a_character_in_a_name_is_a_400() -> None:
    """JSON can say what UTF-8 cannot; the error must still be sayable."""
    async with fakes(1) as (fake,), gateway_to(fake) as gateway:
        for body in (b'{"prompt":5,"\\ud800":1}', b'{"prompt":"x","parameters":{"\\ud800":NaN}}'):
            response = await ask(gateway.url, "/predict", body, headers=JSON)
            assert response.status == 400
            assert_shape(response)
    models = [{"name": name, "endpoints": ["http://127.0.0.1:9"]} for name in ("a", "b")]
    async with serving({**QUICK, "models": models}) as gateway:
        response = await ask(gateway.url, "/v1/completions", b'{"model":"\\ud800"}', headers=JSON)
        assert response.status == 404
        assert assert_shape(response)["code"] == "model_not_found"


@pytest.mark.fault("D8")
@pytest.mark.fault("D9")
async def test_every_error_of_the_gateways_own_has_one_shape() -> None:
    wrong = [
        ("GET", "/nowhere", 404),
        ("POST", "/nowhere", 404),
        ("GET", "/", 404),
        ("GET", "/predict", 405),
        ("PUT", "/predict", 405),
        ("DELETE", "/v1/completions", 405),
        ("PATCH", "/v1/chat/completions", 405),
        ("OPTIONS", "/v1/chat/completions", 405),
        ("POST", "/healthz", 405),
        ("POST", "/metrics", 405),
        ("POST", "/v1/models", 405),
        ("POST", "/predict/", 404),
        ("GET", "/healthz/", 404),
        ("GET", "/v1/models/nobody", 404),
        ("GET", "/v1/models/a%2Fb", 404),
        ("GET", "/%ff%fe", 404),
        ("BREW", "/predict", 400),
    ]
    async with fakes(1) as (fake,), gateway_to(fake) as gateway:
        for method, path, status in wrong:
            body = b"{}" if method in ("POST", "PUT", "PATCH") else None
            response = await ask(gateway.url, path, body, method=method)
            assert response.status == status, (method, path)
            assert_shape(response)
            if status == 405:
                assert response.header("allow")


@pytest.mark.fault("D8")
async def test_health_can_be_asked_by_head() -> None:
    async with fakes(1) as (fake,), gateway_to(fake) as gateway:
        for path in ("/healthz", "/health", "/readyz"):
            response = await ask(gateway.url, path, method="HEAD")
            assert response.status == 200
            assert response.body == b""
            assert (await ask(gateway.url, path)).status == 200


@pytest.mark.fault("D3")
@pytest.mark.fault("D9")
async def test_a_failure_behind_the_gateway_has_the_usual_shape_in_every_form() -> None:
    lost = Behaviour(cut=Cut(how=Ending.RESET, after=Point.NOTHING))
    async with fakes(1, lost) as (fake,), gateway_to(fake) as gateway:
        for path, body in FORMS.values():
            response = await ask(gateway.url, path, body)
            assert response.status in (502, 503)
            assert_shape(response)
            assert len(response.head.all("x-request-id")) == 1


@pytest.mark.fault("D3")
async def test_an_answer_that_is_none_is_a_502() -> None:
    """What the gateway must read, for `/predict`, and cannot."""
    for behaviour in (
        Behaviour(body="<html>"),
        Behaviour(body="{}"),
        Behaviour(empty_choices=True),
        Behaviour(rules=(Rule(body=""),)),
    ):
        async with fakes(1, behaviour) as (fake,), gateway_to(fake) as gateway:
            response = await ask(gateway.url, "/predict", {"prompt": "x"})
            assert response.status == 502
            assert_shape(response)
            assert len(response.head.all("x-request-id")) == 1


@pytest.mark.fault("D9")
async def test_a_wrong_key_and_no_key_are_a_401_with_a_hint() -> None:
    keys = {"keys": [{"name": "a", "sha256": "0" * 64}]}
    async with fakes(1) as (fake,), gateway_to(fake, auth=keys) as gateway:
        for path, body in FORMS.values():
            for headers in ([], [("authorization", "Bearer nothing")], [("authorization", "Basic eDp5")]):
                response = await ask(gateway.url, path, body, headers=headers)
                assert response.status == 401
                assert assert_shape(response)["code"] == "invalid_api_key"
                assert response.header("www-authenticate") == "Bearer"
        assert (await ask(gateway.url, "/v1/models")).status == 401
        assert not asked(fake)


@pytest.mark.fault("D9")
async def test_a_wrong_time_limit_is_a_400() -> None:
    async with fakes(1) as (fake,), gateway_to(fake) as gateway:
        for value in ("soon", "0", "-1", "nan", "inf", "1e9", ""):
            response = await ask(
                gateway.url, "/predict", {"prompt": "x"}, headers=[("x-request-timeout", value)]
            )
            assert response.status == (200 if value == "" else 400), value
        assert msgspec.json.decode(response.body)


@pytest.mark.fault("D9")
async def test_a_connection_too_many_is_told_so_and_the_others_go_on() -> None:
    async with fakes(1) as (fake,), gateway_to(fake, server={"max_connections": 2}) as gateway:
        async with connected(gateway.url) as first, connected(gateway.url) as second:
            for peer in (first, second):
                await peer.send(request("/healthz"))
                assert (await peer.response("GET")).status == 200
            async with connected(gateway.url) as third:
                refused = await third.response()
                assert refused.status == 503
                assert_shape(refused)
                assert refused.header("retry-after") == "5"
            await first.send(request("/predict", {"prompt": "x"}))
            assert (await first.response()).status == 200
        await eventually(lambda: not gateway.gateway.edge.connections)
        assert (await ask(gateway.url, "/healthz")).status == 200
