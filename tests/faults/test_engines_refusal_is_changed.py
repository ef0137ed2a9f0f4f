"""The engine says exactly what is wrong, and its client reads something else."""

from __future__ import annotations

import gzip

import pytest

from backends.fake import Behaviour, Framing
from gateway.observe.outcome import Outcome
from tests.drivers.raw import Response, ask
from tests.faults.seen import last
from tests.gateways import FORMS, fakes, gateway_to

WHOLE = [FORMS[name] for name in FORMS if not name.endswith("stream")]
BODIES = {
    "vLLM's own": None,
    "nested JSON": '{"error":{"message":"no","details":[{"a":{"b":["c"]}}]},"detail":[1]}',
    "HTML": "<html>\n\n<body>data: no</body></html>",
    "nothing": "",
    "text": "no",
    "what looks like a stream": "data: no\n\n",
}
TYPES = {
    "HTML": "text/html; charset=utf-8",
    "nothing": "text/plain",
    "text": "text/plain",
    "what looks like a stream": "text/plain",
}


@pytest.mark.fault("D3")
@pytest.mark.parametrize("kind", BODIES)
@pytest.mark.parametrize("framing", [Framing.AUTO, Framing.CHUNKED, Framing.CLOSE])
async def test_a_refusal_passes_with_status_type_body_and_retry_after(kind: str, framing: Framing) -> None:
    async with fakes(1) as (fake,), gateway_to(fake) as gateway:
        for status in (400, 401, 404, 413, 422, 429, 500, 501):
            behaviour = Behaviour(
                status=status,
                body=BODIES[kind],
                content_type=TYPES.get(kind),
                headers={"retry-after": "7", "x-custom": "1"},
                framing=framing,
            )
            fake.behave(behaviour)
            for path, body in FORMS.values():
                response = await ask(gateway.url, path, body)
                assert response.status == status, path
                if BODIES[kind] is not None:
                    assert response.body.decode() == BODIES[kind]
                else:
                    assert response.json()["error"]["code"] == status
                assert response.header("content-type") == TYPES.get(kind, "application/json")
                assert response.header("retry-after") == "7"
                assert response.header("x-custom") == "1"
                assert len(response.head.all("x-request-id")) == 1
        assert gateway.outcomes.keys() == {Outcome.CLIENT_ERROR, Outcome.BACKEND_ERROR}


@pytest.mark.fault("D3")
async def test_a_503_that_nobody_can_take_over_passes_too() -> None:
    full = Behaviour(status=503, headers={"retry-after": "7"})
    async with fakes(1, full) as (fake,), gateway_to(fake, health={"traffic_failures": 1000}) as gateway:
        for path, body in FORMS.values():
            response = await ask(gateway.url, path, body)
            assert response.status == 503
            assert response.header("retry-after") == "7"
            assert response.header("content-type") == "application/json"


@pytest.mark.fault("D3")
async def test_statuses_that_no_standard_names_pass() -> None:
    async with fakes(1) as (fake,), gateway_to(fake) as gateway:
        for status in (299, 418, 451, 499, 599):
            fake.behave(Behaviour(status=status, body="x", content_type="text/plain"))
            response = await ask(gateway.url, "/v1/completions", {"prompt": "x"})
            assert (response.status, response.body) == (status, b"x")


@pytest.mark.fault("D3")
async def test_an_answer_without_a_body_has_none() -> None:
    async with fakes(1) as (fake,), gateway_to(fake) as gateway:
        for status in (204, 304):
            fake.behave(Behaviour(status=status, body=""))
            for path, body in WHOLE:
                response = await ask(gateway.url, path, body)
                assert response.status in (status, 502), path


@pytest.mark.fault("D3")
async def test_whoever_asks_for_a_stream_and_gets_json_gets_it_as_json() -> None:
    plain = Behaviour(body='{"choices":[{"index":0,"text":"x"}]}')
    async with fakes(1, plain) as (fake,), gateway_to(fake) as gateway:
        for path, body in FORMS.values():
            response = await ask(gateway.url, path, body)
            assert response.status == 200
            assert response.header("content-type") == "application/json"


def _assert_consistent(response: Response, gzipped: bool) -> None:
    assert (response.header("content-encoding") == "gzip") is gzipped
    if gzipped:
        gzip.decompress(response.body)
    response.json()


@pytest.mark.fault("D4")
@pytest.mark.parametrize("framing", [Framing.LENGTH, Framing.CHUNKED, Framing.CLOSE])
async def test_body_headers_and_length_of_a_compressed_answer_agree(framing: Framing) -> None:
    """The strict parser of these tests fails if a length and a body disagree."""
    async with fakes(1, Behaviour(gzip=True, framing=framing)) as (fake,), gateway_to(fake) as gateway:
        for path, body in WHOLE:
            for headers in ([("accept-encoding", "gzip")], [("accept-encoding", "identity")], []):
                response = await ask(gateway.url, path, body, headers=headers)
                assert response.status == 200
                _assert_consistent(response, gzipped=path != "/predict")
                if path == "/predict":
                    assert last(fake).header("accept-encoding") is None
                    assert response.json()["text"]
        fake.behave(Behaviour(gzip=True, framing=framing, status=400))
        for path, body in FORMS.values():
            _assert_consistent(await ask(gateway.url, path, body), gzipped=True)


@pytest.mark.fault("D4")
async def test_a_compressed_stream_can_be_read() -> None:
    body = {"prompt": "x", "stream": True, "max_tokens": 3}
    async with fakes(1, Behaviour(gzip=True)) as (fake,), gateway_to(fake) as gateway:
        response = await ask(gateway.url, "/v1/completions", body)
        assert response.header("content-encoding") == "gzip"
        assert response.decoded.endswith(b"data: [DONE]\n\n")
        response = await ask(gateway.url, "/predict", body)
        assert response.status in (200, 502)
        assert b"\x1f\x8b" not in response.body


HOP_BY_HOP = {
    "connection": "x-foo, keep-alive",
    "x-foo": "1",
    "keep-alive": "timeout=3",
    "te": "trailers",
    "trailer": "x-late",
    "proxy-authorization": "Basic eDp5",
    "proxy-connection": "keep-alive",
}


@pytest.mark.fault("D5")
async def test_what_concerns_one_connection_ends_at_the_gateway() -> None:
    trace = "00-" + "a" * 32 + "-" + "b" * 16 + "-01"
    sent = [*HOP_BY_HOP.items(), ("x-custom", "kept"), ("traceparent", trace)]
    async with fakes(1) as (fake,), gateway_to(fake) as gateway:
        for path, body in FORMS.values():
            assert (await ask(gateway.url, path, body, headers=sent)).status == 200
            seen = last(fake)
            assert [name for name in HOP_BY_HOP if seen.header(name) is not None] == []
            assert seen.header("x-custom") == "kept"
            assert seen.header("traceparent") == trace
            assert seen.header("host") == fake.url.removeprefix("http://")


@pytest.mark.fault("D5")
async def test_what_concerns_the_engines_connection_does_not_reach_the_client() -> None:
    headers = {"connection": "x-foo", "x-foo": "1", "keep-alive": "timeout=3", "x-custom": "kept"}
    async with fakes(1, Behaviour(headers=headers)) as (fake,), gateway_to(fake) as gateway:
        for path, body in FORMS.values():
            response = await ask(gateway.url, path, body)
            assert response.status == 200
            assert response.header("x-foo") is None
            assert response.header("keep-alive") is None
            if path != "/predict":
                assert response.header("x-custom") == "kept"
            assert response.keep_alive
