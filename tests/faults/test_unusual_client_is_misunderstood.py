"""A client speaks HTTP in an unusual but legal way, and is cut off, left waiting or misunderstood."""

from __future__ import annotations

import asyncio
import gzip
from typing import Any

import msgspec
import pytest

from backends.fake import Behaviour, Fake, Rule, Say
from tests.drivers.pipelined import responses
from tests.drivers.raw import ask, chunked_request, connected, request
from tests.drivers.slow import ask_slowly
from tests.drivers.waiting import eventually
from tests.faults.seen import last
from tests.gateways import FORMS, Running, fakes, gateway_to


def _json(body: dict[str, Any]) -> bytes:
    return msgspec.json.encode(body)


@pytest.mark.fault("D5")
async def test_a_body_in_chunks_is_answered() -> None:
    async with fakes(1) as (fake,), gateway_to(fake) as gateway, connected(gateway.url) as peer:
        for path, body in FORMS.values():
            content = _json(body)
            for pieces in ([content], [content[:1], content[1:]], [bytes([byte]) for byte in content]):
                await peer.send(chunked_request(path, pieces))
                response = await peer.response()
                assert response.status == 200, response.body
                assert response.keep_alive


@pytest.mark.fault("D5")
async def test_a_request_sent_byte_by_byte_is_answered() -> None:
    async with fakes(1) as (fake,), gateway_to(fake) as gateway:
        for path, body in FORMS.values():
            response = await ask_slowly(gateway.url, request(path, body))
            assert response.status == 200


@pytest.mark.fault("D5")
async def test_a_client_that_asks_whether_to_send_its_body_is_told_to() -> None:
    async with fakes(1) as (fake,), gateway_to(fake) as gateway, connected(gateway.url) as peer:
        for path, body in FORMS.values():
            whole = request(path, body, headers=[("expect", "100-continue")])
            head, _, content = whole.partition(b"\r\n\r\n")
            peer.received.clear()
            await peer.send(head + b"\r\n\r\n")
            while b"\r\n\r\n" not in bytes(peer.received):
                assert await peer.receive()
            assert bytes(peer.received) == b"HTTP/1.1 100 Continue\r\n\r\n"
            await peer.send(content)
            assert (await peer.response()).status == 200
            assert last(fake).header("expect") is None


@pytest.mark.fault("D5")
async def test_a_client_of_http_1_0_is_answered_until_the_connection_closes() -> None:
    async with fakes(1) as (fake,), gateway_to(fake) as gateway:
        for path, body in FORMS.values():
            async with connected(gateway.url) as peer:
                await peer.send(request(path, body).replace(b"HTTP/1.1", b"HTTP/1.0"))
                response = await peer.response()
                assert response.status == 200
                assert not response.keep_alive
                assert response.header("transfer-encoding") is None
                await peer.ends()


@pytest.mark.fault("D5")
async def test_a_client_of_http_1_0_may_keep_its_connection() -> None:
    old = request("/predict", {"prompt": "x"}, headers=[("connection", "keep-alive")])
    async with fakes(1) as (fake,), gateway_to(fake) as gateway, connected(gateway.url) as peer:
        for _ in range(2):
            await peer.send(old.replace(b"HTTP/1.1", b"HTTP/1.0"))
            response = await peer.response()
            assert response.header("connection") == "keep-alive"


@pytest.mark.fault("D5")
async def test_connection_close_is_obeyed() -> None:
    async with fakes(1) as (fake,), gateway_to(fake) as gateway:
        for path, body in FORMS.values():
            async with connected(gateway.url) as peer:
                await peer.send(request(path, body, headers=[("connection", "close")]))
                response = await peer.response()
                assert response.status == 200
                assert not response.keep_alive
                await peer.ends()


@pytest.mark.fault("D5")
@pytest.mark.parametrize("offered", ["h2c", "websocket", "TLS/1.0"])
async def test_a_client_that_offers_another_protocol_is_answered_in_this_one(offered: str) -> None:
    """Java's HTTP client offers h2c with every first request."""
    headers = [
        ("connection", "Upgrade, HTTP2-Settings"),
        ("upgrade", offered),
        ("http2-settings", "AAMAAABk"),
    ]
    async with fakes(1) as (fake,), gateway_to(fake) as gateway, connected(gateway.url) as peer:
        for path, body in FORMS.values():
            for asked in (
                request(path, body, headers=headers),
                chunked_request(path, [_json(body)], headers=headers),
            ):
                await peer.send(asked)
                assert (await peer.response()).status == 200
                seen = last(fake)
                assert seen.header("upgrade") is None
                assert seen.header("http2-settings") is None
        await peer.send(request("/predict", FORMS["predict"][1], headers=headers) * 50)
        assert [response.status for response in await responses(peer, ["POST"] * 50)] == [200] * 50
        await peer.send(request("/healthz", headers=headers))
        assert (await peer.response("GET")).status == 200


@pytest.mark.fault("D5")
async def test_an_absolute_url_is_a_path() -> None:
    async with fakes(1) as (fake,), gateway_to(fake) as gateway:
        for path, body in FORMS.values():
            for prefix in ("http://gateway.example", "http://gateway.example:8000"):
                assert (await ask(gateway.url, prefix + path, body)).status == 200
            assert (await ask(gateway.url, path + "?api-version=1", body)).status == 200
        assert (await ask(gateway.url, "http://gateway.example/healthz")).status == 200
        paths = {seen.path for seen in fake.stats.seen if seen.method == "POST"}
        assert paths == {"/v1/completions", "/v1/chat/completions"}


async def _answers_in_order(gateway: Running, fake: Fake, asked: list[tuple[str, str]]) -> None:
    """Send all at once; each hot answer must carry its own prompt."""
    wire = b""
    for number, (kind, path) in enumerate(asked):
        if kind == "GET":
            wire += request(path)
        else:
            wire += request(path, {"prompt": f"nonce-{number:03}", "stream": kind == "STREAM"})
    async with connected(gateway.url) as peer:
        await peer.send(wire)
        found = await responses(peer, ["GET" if kind == "GET" else "POST" for kind, _ in asked])
    for number, ((kind, _), response) in enumerate(zip(asked, found, strict=True)):
        assert response.status == 200
        if kind == "GET":
            assert response.body == b'{"status":"ok"}'
        else:
            assert _said(response.body) == f"nonce-{number:03}"


def _said(body: bytes) -> str:
    """The text of an answer or of a stream's events."""
    events = [line[6:] for line in body.split(b"\n") if line.startswith(b"data: {")] or [body]
    said = ""
    for event in map(msgspec.json.decode, events):
        choices = event.get("choices") or ([event] if "text" in event else [])
        said += "".join(choice["text"] for choice in choices)
    return said


@pytest.mark.fault("C5")
@pytest.mark.parametrize(
    "asked",
    [
        pytest.param([("POST", "/predict")] * 5, id="whole answers"),
        pytest.param([("STREAM", "/v1/completions")] * 5, id="streams"),
        pytest.param([("GET", "/healthz"), ("POST", "/predict")] * 3, id="cold and hot"),
        pytest.param([("POST", "/v1/completions"), ("GET", "/healthz")] * 3, id="hot and cold"),
        pytest.param(
            [("STREAM", "/predict"), ("GET", "/healthz"), ("GET", "/health"), ("POST", "/v1/completions")]
            * 2,
            id="everything",
        ),
    ],
)
async def test_pipelined_requests_are_answered_in_their_order(asked: list[tuple[str, str]]) -> None:
    slow_first = Rule(contains="nonce-000", delay_headers_s=0.1, say=Say.PROMPT, tokens=3)
    echo = Behaviour(say=Say.PROMPT, tokens=3, rules=(slow_first,))
    async with fakes(1, echo) as (fake,), gateway_to(fake) as gateway:
        await _answers_in_order(gateway, fake, asked)


@pytest.mark.fault("C5")
async def test_a_hundred_pipelined_requests_are_answered() -> None:
    async with fakes(1, Behaviour(say=Say.PROMPT, tokens=3)) as (fake,), gateway_to(fake) as gateway:
        await _answers_in_order(gateway, fake, [("POST", "/v1/completions")] * 100)
        assert fake.stats.max_in_flight == 1


@pytest.mark.fault("C5")
async def test_what_follows_a_last_request_is_not_answered_and_reaches_no_engine() -> None:
    last = request("/v1/completions", {"prompt": "last"}, headers=[("connection", "close")])
    async with fakes(1, Behaviour(delay_headers_s=0.05)) as (fake,), gateway_to(fake) as gateway:
        for behind in (request("/v1/completions", {"prompt": "behind"}), b"\r\n", b"garbage\r\n\r\n"):
            async with connected(gateway.url) as peer:
                await peer.send(last + behind)
                response = await peer.response()
                assert response.status == 200
                await peer.ends()
        assert [b"behind" in seen.body for seen in fake.stats.seen if seen.method == "POST"] == [False] * 3


@pytest.mark.fault("C5")
async def test_garbage_behind_a_request_ends_the_connection_and_nothing_else() -> None:
    async with fakes(1, Behaviour(delay_headers_s=0.1)) as (fake,), gateway_to(fake) as gateway:
        async with connected(gateway.url) as peer:
            await peer.send(request("/v1/completions", {"prompt": "x"}) + b"garbage\r\n\r\n")
            with pytest.raises((ConnectionResetError, AssertionError)):
                await peer.response()
        await eventually(lambda: fake.stats.in_flight == 0)
        assert (await ask(gateway.url, "/healthz")).status == 200


@pytest.mark.fault("C1")
async def test_a_long_answer_is_not_cut_because_the_next_request_waits_behind_it() -> None:
    """Its client is not slow in sending it: nothing is read from it meanwhile."""
    slow = Behaviour(rules=(Rule(contains="first", tokens=7, tokens_per_s=4),))

    async def pipelined(url: str, second: bytes, cut: int) -> None:
        async with connected(url) as peer:
            first = request("/v1/completions", {"prompt": "first", "stream": True})
            await peer.send(first + second[:cut])
            [response] = await responses(peer, ["POST"])
            assert response.body.endswith(b"data: [DONE]\n\n")
            await peer.send(second[cut:])
            assert (await peer.response()).status == 200

    async with (
        fakes(1, slow) as (fake,),
        gateway_to(fake, server={"header_timeout_s": 0.2}) as gateway,
        asyncio.TaskGroup() as clients,
    ):
        for second in (request("/v1/completions", {"prompt": "second"}), request("/healthz")):
            for cut in (10, len(second) - 5):
                clients.create_task(pipelined(gateway.url, second, cut), name=f"cut {cut}")


@pytest.mark.fault("D5")
@pytest.mark.parametrize(
    "part",
    [
        pytest.param(b"POST /pre", id="half a request line"),
        pytest.param(b"POST /predict HTTP/1.1\r\nhost: x\r\nx-slow: ", id="half a head"),
        pytest.param(b"POST /predict HTTP/1.1\r\nhost: x\r\ncontent-length: 100\r\n\r\n{", id="half a body"),
        pytest.param(b"POST /no HTTP/1.1\r\nhost: x\r\ncontent-length: 9\r\n\r\n{", id="half a cold body"),
    ],
)
async def test_a_client_that_never_finishes_its_request_is_let_go(part: bytes) -> None:
    async with fakes(1) as (fake,), gateway_to(fake, server={"header_timeout_s": 0.2}) as gateway:
        async with connected(gateway.url) as peer:
            await peer.send(part)
            async with asyncio.timeout(3):
                try:
                    while await peer.receive():
                        pass
                except ConnectionResetError:
                    pass
        await eventually(lambda: not gateway.gateway.edge.connections)


@pytest.mark.fault("D5")
async def test_an_idle_connection_is_closed_after_its_time_and_not_before() -> None:
    async with (
        fakes(1) as (fake,),
        gateway_to(fake, server={"keep_alive_s": 0.3}) as gateway,
        connected(gateway.url) as peer,
    ):
        await peer.send(request("/predict", {"prompt": "x"}))
        assert (await peer.response()).keep_alive
        async with asyncio.timeout(3):
            await peer.ends()


@pytest.mark.fault("D7")
async def test_a_compressed_request_reaches_the_engine_plain() -> None:
    async with fakes(1) as (fake,), gateway_to(fake) as gateway:
        for path, body in FORMS.values():
            content = _json(body)
            for encoding in ("gzip", "x-gzip", "GZIP"):
                headers = [("content-encoding", encoding), ("content-type", "application/json")]
                response = await ask(gateway.url, path, gzip.compress(content), headers=headers)
                assert response.status == 200
                seen = last(fake)
                assert seen.header("content-encoding") is None
                if path != "/predict":
                    assert seen.body == content
