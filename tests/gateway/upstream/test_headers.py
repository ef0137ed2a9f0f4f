"""Headers on their way through: what ends at the gateway, what passes, what is read."""

from __future__ import annotations

import pytest

from gateway.upstream.headers import read_answer, read_request

HOP_BY_HOP = [
    b"connection",
    b"keep-alive",
    b"proxy-authenticate",
    b"proxy-authorization",
    b"proxy-connection",
    b"te",
    b"trailer",
    b"transfer-encoding",
    b"upgrade",
]


def _names(block: bytes) -> list[bytes]:
    return [line.partition(b":")[0] for line in block.split(b"\r\n") if line]


@pytest.mark.parametrize("name", HOP_BY_HOP)
def test_hop_by_hop_headers_end_here_in_both_directions(name: bytes) -> None:
    assert read_request([(name, b"close")]).block == b""
    assert read_answer([(name, b"close")]).block == b""


@pytest.mark.parametrize(
    "value", [b"x-foo", b"X-Foo", b"keep-alive, x-foo", b" x-foo , close", b"x-bar,x-foo", b",,x-foo,"]
)
def test_headers_that_connection_names_end_here(value: bytes) -> None:
    headers = [(b"x-foo", b"1"), (b"x-other", b"2"), (b"connection", value), (b"x-foo", b"3")]
    assert _names(read_request(headers).block) == [b"x-other"]
    assert _names(read_answer(headers).block) == [b"x-other"]


def test_the_gateways_own_lines_are_not_taken_away_by_a_connection_header() -> None:
    headers = [(b"connection", b"content-type, content-length, host, x-request-id")]
    assert read_request(headers, own_body=True).block == b"content-type: application/json\r\n"


@pytest.mark.parametrize(
    "name",
    [
        *(b"host", b"content-length", b"content-encoding", b"expect"),
        *(b"authorization", b"api-key", b"x-request-id", b"x-request-timeout"),
        *(b"x-model-version", b"x-changeover-token", b"x-changeover-elsewhere", b"x-changeover-anything"),
    ],
)
def test_what_is_the_gateways_own_never_reaches_an_engine(name: bytes) -> None:
    assert read_request([(name, b"forged"), (b"x-mine", b"1")]).block == b"x-mine: 1\r\n"


def test_everything_else_passes_in_its_order_and_as_often_as_it_was_sent() -> None:
    headers = [(b"x-b", b"1"), (b"x-a", b"2"), (b"x-b", b"3"), (b"traceparent", b"t"), (b"accept", b"*/*")]
    assert read_request(headers).block == b"x-b: 1\r\nx-a: 2\r\nx-b: 3\r\ntraceparent: t\r\naccept: */*\r\n"


def test_what_the_gateway_reads_is_read() -> None:
    asked = read_request(
        [
            (b"authorization", b"Bearer k"),
            (b"content-encoding", b" GZIP "),
            (b"x-request-id", b"r"),
            (b"x-request-timeout", b"2"),
            (b"cache-control", b"no-cache"),
            (b"x-session-id", b"s"),
        ],
        session_headers=frozenset((b"x-session-id",)),
    )
    assert (asked.authorization, asked.content_encoding, asked.request_id) == (b"Bearer k", b"gzip", b"r")
    assert (asked.timeout, asked.cache_control, asked.session) == (b"2", b"no-cache", b"s")


def test_the_engine_is_told_about_the_body_that_the_gateway_writes() -> None:
    headers = [(b"content-type", b"text/plain"), (b"accept-encoding", b"br"), (b"accept", b"text/plain")]
    assert read_request(headers, own_body=True).block == b"content-type: application/json\r\n"


@pytest.mark.parametrize(
    "name", [b"x-request-id", b"x-model-version", b"x-cache", b"x-changeover-elsewhere", b"server", b"date"]
)
def test_the_marks_of_the_gateway_are_not_taken_from_an_engine(name: bytes) -> None:
    told = read_answer([(name, b"forged"), (b"content-type", b"application/json")])
    assert told.block == b"content-type: application/json\r\n"


def test_what_an_engine_says_is_read() -> None:
    told = read_answer(
        [
            (b"content-length", b"12"),
            (b"content-type", b"text/event-stream; charset=utf-8"),
            (b"content-encoding", b"GZIP"),
            (b"x-model-version", b"v2"),
            (b"x-changeover-elsewhere", b"draining"),
            (b"retry-after", b"3"),
        ]
    )
    assert (told.length, told.version, told.elsewhere) == (12, b"v2", b"draining")
    assert told.content_encoding == b"gzip"
    assert _names(told.block) == [b"content-type", b"content-encoding", b"retry-after"]
