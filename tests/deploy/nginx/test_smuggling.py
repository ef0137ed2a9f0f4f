"""Two servers read one request in two ways: what is a body to nginx, a gateway answers as a request."""

from __future__ import annotations

import pytest

from tests.drivers.framing import FramingError
from tests.drivers.nginx import edge
from tests.drivers.pipelined import responses
from tests.drivers.raw import ask, connected, request
from tests.faults.seen import asked
from tests.faults.test_smuggled_request_reaches_engine import SHAPES
from tests.gateways import fakes, gateway_to

CLIENT_PATHS = {"/v1/completions"}
FORBIDDEN = {"/pause", "/admin/cache", "/metrics"}


@pytest.mark.fault("X1")
async def test_no_request_of_two_readings_becomes_two_requests() -> None:
    """Each shape has at most one answer, and what reached the engine was asked in the open."""
    async with fakes(1) as (fake,), gateway_to(fake) as gateway, edge([gateway.url]) as front:
        for name, shape in SHAPES.items():
            before = len(asked(fake))
            async with connected(front.url) as peer:
                await peer.send(shape)
                try:
                    response = await peer.response()
                except (FramingError, ConnectionResetError):
                    continue  # closed without an answer
            assert response.status < 500, name
            reached = asked(fake)[before:]
            assert {seen.path for seen in reached} <= CLIENT_PATHS, name
            assert len(reached) <= 1, name
            assert len(reached) == (1 if response.status == 200 else 0), name
        assert (await ask(front.url, "/healthz")).status == 200
        assert {record.path for record in asked(fake)}.isdisjoint(FORBIDDEN)


@pytest.mark.fault("X1")
async def test_answers_never_go_to_another_client() -> None:
    """After each odd request a plain one on the same connection to a gateway gets its own answer."""
    async with fakes(1) as (fake,), gateway_to(fake) as gateway, edge([gateway.url]) as front:
        for name, shape in SHAPES.items():
            async with connected(front.url) as peer:
                await peer.send(shape)
                try:
                    await peer.response()
                except (FramingError, ConnectionResetError):
                    pass
            own = f"own-{abs(hash(name))}"
            answer = await ask(front.url, "/v1/completions", {"prompt": "y"}, headers=[("x-request-id", own)])
            assert answer.status == 200, name
            assert answer.header("x-request-id") == own, name


@pytest.mark.fault("X1")
async def test_requests_in_a_row_get_their_answers_in_order() -> None:
    async with fakes(1) as (fake,), gateway_to(fake) as gateway, edge([gateway.url]) as front:
        async with connected(front.url) as peer:
            asked_for = [
                request("/v1/completions", {"prompt": "x"}, headers=[("x-request-id", f"n{number}")])
                for number in range(5)
            ]
            await peer.send(b"".join(asked_for))
            answers = await responses(peer, ["POST"] * 5)
        assert [answer.header("x-request-id") for answer in answers] == [f"n{number}" for number in range(5)]


@pytest.mark.fault("X1")
async def test_headers_between_two_hops_do_not_pass() -> None:
    odd = [
        ("connection", "x-secret, keep-alive"),
        ("upgrade", "h2c"),
        ("te", "trailers"),
        ("proxy-connection", "keep-alive"),
        ("keep-alive", "timeout=1"),
    ]
    async with fakes(1) as (fake,), gateway_to(fake) as gateway, edge([gateway.url]) as front:
        response = await ask(front.url, "/v1/completions", {"prompt": "x"}, headers=odd)
        assert response.status == 200
        seen = asked(fake)[0]
        assert seen.header("upgrade") is None
        assert seen.header("te") is None
