"""A request can be read in two ways: what the gateway does not see in it, an engine answers."""

from __future__ import annotations

import pytest

from tests.drivers.pipelined import responses
from tests.drivers.raw import ask, connected, request
from tests.faults.seen import asked
from tests.gateways import fakes, gateway_to

INNER = b"POST /pause HTTP/1.1\r\nhost: x\r\ncontent-length: 0\r\n\r\n"
BODY = b'{"prompt":"x"}'
HEAD = b"POST /v1/completions HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\n"


def _framed(*lines: bytes, body: bytes = BODY + INNER) -> bytes:
    return HEAD + b"".join(line + b"\r\n" for line in lines) + b"\r\n" + body


def _chunked(size_line: bytes) -> bytes:
    return _framed(b"transfer-encoding: chunked", body=size_line + BODY + b"\r\n0\r\n\r\n")


SHAPES = {
    "a length and chunks": _framed(b"content-length: 14", b"transfer-encoding: chunked"),
    "chunks and a length": _framed(b"transfer-encoding: chunked", b"content-length: 14"),
    "two lengths": _framed(b"content-length: 14", b"content-length: 90"),
    "two equal lengths": _framed(b"content-length: 14", b"content-length: 14"),
    "a list of lengths": _framed(b"content-length: 14, 14"),
    "a signed length": _framed(b"content-length: +14"),
    "a negative length": _framed(b"content-length: -1"),
    "a length in hexadecimal": _framed(b"content-length: 0xe"),
    "a length with a blank in it": _framed(b"content-length: 1 4"),
    "an empty length": _framed(b"content-length:"),
    "a huge length": _framed(b"content-length: 99999999999999999999999"),
    "a blank before the colon": _framed(b"content-length : 14"),
    "a folded header": _framed(b"x-a: b", b" c: d", b"content-length: 14"),
    "a folded coding": _framed(b"transfer-encoding:", b" chunked"),
    "a coding that only looks like chunks": _framed(b"transfer-encoding: xchunked"),
    "chunks that are not last": _framed(b"transfer-encoding: chunked, gzip"),
    "two codings": _framed(b"transfer-encoding: chunked", b"transfer-encoding: identity"),
    "a coding behind a tab": _framed(b"transfer-encoding:\tchunked", b"content-length: 14"),
    "a coding behind a vertical tab": _framed(b"transfer-encoding:\x0bchunked"),
    "a bare LF behind a header": HEAD + b"content-length: 14\n\r\n" + BODY + INNER,
    "bare LFs throughout": _framed(b"content-length: 14").replace(b"\r\n", b"\n"),
    "a bare CR in a header": _framed(b"x-a: b\rcontent-length: 90", b"content-length: 14"),
    "a zero byte in a header": _framed(b"x-a: \x00", b"content-length: 14"),
    "a name with a blank": _framed(b"x a: b", b"content-length: 14"),
    "a header without a colon": _framed(b"xa", b"content-length: 14"),
    "an empty name": _framed(b": b", b"content-length: 14"),
    "a chunk size with a sign": _framed(
        b"transfer-encoding: chunked", body=b"+e\r\n" + BODY + b"\r\n0\r\n\r\n"
    ),
    "a chunk size with 0x": _framed(b"transfer-encoding: chunked", body=b"0xe\r\n" + BODY + b"\r\n0\r\n\r\n"),
    "a chunk longer than said": _framed(
        b"transfer-encoding: chunked", body=b"2\r\n" + BODY + b"\r\n0\r\n\r\n"
    ),
    "a chunk size that overflows": _chunked(b"f" * 17 + b"\r\n"),
    "a chunk line with a bare LF": _framed(
        b"transfer-encoding: chunked", body=b"e\n" + BODY + b"\r\n0\r\n\r\n"
    ),
    "no version": b"POST /v1/completions\r\n\r\n" + INNER,
    "a version from the future": HEAD.replace(b"HTTP/1.1", b"HTTP/3.0") + b"\r\n",
    "a method in lower case": HEAD.replace(b"POST", b"post") + b"\r\n",
    "two blanks in the request line": HEAD.replace(b" HTTP", b"  x HTTP") + b"content-length: 0\r\n\r\n",
    "HTTP/2 without asking": b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
    "TLS": b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
    "a tunnel": b"CONNECT 127.0.0.1:80 HTTP/1.1\r\nhost: x\r\n\r\n" + INNER,
}


@pytest.mark.fault("X1")
@pytest.mark.fault("D5")
async def test_a_request_of_two_readings_is_refused_in_the_usual_shape_and_reaches_no_engine() -> None:
    async with fakes(1) as (fake,), gateway_to(fake) as gateway:
        for name, shape in SHAPES.items():
            async with connected(gateway.url) as peer:
                await peer.send(shape)
                response = await peer.response()
                assert 400 <= response.status < 500, name
                assert response.json()["error"].keys() == {"message", "type", "param", "code"}, name
                assert not response.keep_alive, name
                assert not asked(fake), name
        assert (await ask(gateway.url, "/healthz")).status == 200


@pytest.mark.fault("X1")
@pytest.mark.fault("D5")
async def test_a_body_is_a_body_whatever_it_holds() -> None:
    """What looks like a request inside a body is not one."""
    hidden = b'{"prompt":"' + INNER.replace(b"\r\n", b"\\r\\n") + b'"}' + b" " * 5
    for body in (hidden, b'{"prompt":"x"}' + b"\r\n" * 4):
        async with fakes(1) as (fake,), gateway_to(fake) as gateway, connected(gateway.url) as peer:
            await peer.send(
                request("/v1/completions", body, headers=[("content-type", "application/json")]) * 2
            )
            assert [response.status for response in await responses(peer, ["POST"] * 2)] == [200] * 2
            assert [seen.path for seen in asked(fake)] == ["/v1/completions"] * 2
            assert [seen.body for seen in asked(fake)] == [body] * 2


@pytest.mark.fault("D5")
async def test_a_flood_of_headers_is_refused_while_it_comes() -> None:
    floods = {
        "many lines": HEAD + b"x: y\r\n" * 20_000,
        "many lines in one read": HEAD + b"x: y\r\n" * 300 + b"content-length: 0\r\n\r\n",
        "a long line": HEAD + b"x: " + b"y" * 1_000_000,
        "a head over the limit in one read": HEAD + b"x: " + b"y" * 65_500 + b"\r\ncontent-length: 0\r\n\r\n",
        "a long path": b"POST /" + b"y" * 1_000_000,
        "a long path in one read": b"GET /" + b"y" * 66_000 + b" HTTP/1.1\r\nhost: x\r\n\r\n",
    }
    async with fakes(1) as (fake,), gateway_to(fake) as gateway:
        for name, flood in floods.items():
            async with connected(gateway.url) as peer:
                await peer.send(flood)
                response = await peer.response()
                assert response.status == 431, name
                assert response.json()["error"]["code"] == "request_header_fields_too_large"
        assert not asked(fake)


@pytest.mark.fault("D5")
async def test_a_head_just_below_the_limit_passes() -> None:
    headers = [(f"x-{number}", "y" * 200) for number in range(250)]
    async with fakes(1) as (fake,), gateway_to(fake) as gateway:
        response = await ask(gateway.url, "/v1/completions", {"prompt": "x"}, headers=headers)
        assert response.status == 200
        assert asked(fake)[0].header("x-249") == "y" * 200
