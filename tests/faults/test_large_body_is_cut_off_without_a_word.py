"""A request is too large, and its sender learns nothing but that the connection broke."""

from __future__ import annotations

import asyncio
import gzip
from collections.abc import Iterator

import pytest

from tests.drivers.pipelined import responses
from tests.drivers.raw import Peer, Response, ask, chunked_request, connected, request
from tests.faults.seen import asked, last
from tests.gateways import FORMS, fakes, gateway_to

LIMIT = 4096
SERVER = {"max_body_bytes": LIMIT}
JSON = [("content-type", "application/json")]
PATHS = [*dict.fromkeys(path for path, _ in FORMS.values()), "/v1/embeddings", "/v1/responses", "/tokenize"]


def _body(path: str, size: int) -> bytes:
    """A valid request of exactly this size."""
    start = {
        "/v1/chat/completions": b'{"messages":[{"role":"user","content":"x"}]',
        "/v1/embeddings": b'{"input":"x"',
        "/v1/responses": b'{"input":"x"',
    }.get(path, b'{"prompt":"x"')
    return start + b" " * (size - len(start) - 1) + b"}"


def _assert_too_large(response: Response) -> None:
    assert response.status == 413
    error = response.json()["error"]
    assert error["code"] == "payload_too_large"
    assert str(LIMIT) in error["message"]
    assert response.header("x-request-id")
    assert not response.keep_alive


@pytest.mark.fault("D7")
async def test_a_body_is_taken_up_to_the_limit_and_no_further() -> None:
    async with fakes(1) as (fake,), gateway_to(fake, server=SERVER) as gateway:
        for path in PATHS:
            for size in (LIMIT - 1, LIMIT):
                body = _body(path, size)
                assert (await ask(gateway.url, path, body, headers=JSON)).status == 200, path
                if path != "/predict":
                    assert last(fake).body == body
                async with connected(gateway.url) as peer:
                    await peer.send(chunked_request(path, [body[:100], body[100:]]))
                    assert (await peer.response()).status == 200
            seen = len(asked(fake))
            body = _body(path, LIMIT + 1)
            _assert_too_large(await ask(gateway.url, path, body, headers=JSON))
            async with connected(gateway.url) as peer:
                await peer.send(chunked_request(path, [body[:100], body[100:]]))
                _assert_too_large(await peer.response())
            assert len(asked(fake)) == seen, "nothing reached the engine"


@pytest.mark.fault("D7")
async def test_an_announced_size_is_refused_before_the_body_is_sent() -> None:
    async with fakes(1) as (fake,), gateway_to(fake, server=SERVER) as gateway:
        for length in (LIMIT + 1, 10**12):
            for headers in ([], [("expect", "100-continue")]):
                async with connected(gateway.url) as peer:
                    head = request("/predict", b"", headers=headers, length=length)
                    await peer.send(head)
                    response = await peer.response()
                    _assert_too_large(response)
                    assert response.interim == ()


async def _keep_sending(peer: Peer) -> None:
    try:
        while True:
            await peer.send(b"5\r\nxxxxx\r\n" * 1000)
            await asyncio.sleep(0)
    except ConnectionError:
        pass


@pytest.mark.fault("D7")
async def test_a_sender_that_goes_on_sending_still_reads_the_refusal() -> None:
    async with fakes(1) as (fake,), gateway_to(fake, server=SERVER) as gateway:
        for head in (request("/predict", b"", length=10**9), chunked_request("/predict", [])[:-5]):
            async with connected(gateway.url) as peer, asyncio.TaskGroup() as sending:
                await peer.send(head)
                sending.create_task(_keep_sending(peer), name="sender")
                _assert_too_large(await peer.response())
                peer.close()
        assert gateway.gateway.edge.buffered == 0


@pytest.mark.fault("D7")
async def test_a_false_length_is_not_believed() -> None:
    body = _body("/v1/completions", 100)
    async with fakes(1) as (fake,), gateway_to(fake, server=SERVER) as gateway:
        async with connected(gateway.url) as peer:
            await peer.send(request("/v1/completions", body, headers=JSON, length=len(body) - 1))
            # The body is cut, and what is left of it is no request.
            assert [response.status for response in await responses(peer, ["POST"] * 2)] == [400, 400]
        seen = len(asked(fake))
        async with connected(gateway.url) as peer:
            await peer.send(request("/v1/completions", body, headers=JSON, length=len(body) + 1))
            peer.writer.write_eof()
            assert not await peer.receive()
        assert len(asked(fake)) == seen


@pytest.mark.fault("D7")
async def test_a_compressed_body_is_measured_by_what_it_holds() -> None:
    headers = [*JSON, ("content-encoding", "gzip")]
    async with fakes(1) as (fake,), gateway_to(fake, server=SERVER) as gateway:
        for path in PATHS:
            fits = gzip.compress(_body(path, LIMIT))
            assert (await ask(gateway.url, path, fits, headers=headers)).status == 200
            seen = len(asked(fake))
            for bomb in (gzip.compress(_body(path, LIMIT + 1)), gzip.compress(bytes(3_000_000))):
                assert len(bomb) < LIMIT
                response = await ask(gateway.url, path, bomb, headers=headers)
                assert response.status == 413
                assert response.json()["error"]["code"] == "payload_too_large"
            assert len(asked(fake)) == seen


@pytest.mark.fault("D7")
async def test_many_half_sent_bodies_are_bounded_in_number_and_size() -> None:
    """Bodies that wait for their rest are refused once they take too much memory together."""

    def peers() -> Iterator[bytes]:
        for _ in range(8):
            yield request("/predict", b"", length=LIMIT)

    async with fakes(1) as (fake,), gateway_to(fake, server=SERVER) as gateway:
        edge = gateway.gateway.edge
        edge.max_buffered_bytes = 4 * LIMIT
        async with asyncio.TaskGroup() as clients:
            answers = [
                clients.create_task(_half_sent(gateway.url, head), name=f"client {number}")
                for number, head in enumerate(peers())
            ]
        statuses = sorted(answer.result() for answer in answers)
        assert statuses.count(503) >= 4
        assert edge.buffered == 0


async def _half_sent(url: str, head: bytes) -> int:
    """Send all but a byte of a body; the status if that was refused, else 0."""
    async with connected(url) as peer:
        await peer.send(head + b"x" * (LIMIT - 1))
        try:
            async with asyncio.timeout(1):
                response = await peer.response()
        except TimeoutError:
            return 0
        assert response.header("retry-after") == "1"
        return response.status
