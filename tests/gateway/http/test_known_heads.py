"""Heads that came before are taken as read; everything else about a request is as if they had not."""

from __future__ import annotations

import pytest

from gateway.http.heads import MAX_KNOWN, Known, KnownHeads
from gateway.http.routes import BY_PATH
from gateway.upstream.headers import Asked
from tests.drivers.pipelined import responses
from tests.drivers.raw import connected, request
from tests.faults.seen import asked, last
from tests.gateways import fakes, gateway_to

HEAD = b"POST /predict HTTP/1.1\r\nhost: x\r\ncontent-length: 2\r\n\r\n"


def known(length: int, asked: Asked | None = None) -> Known:
    return Known(BY_PATH[b"/predict"], [], b"", asked or Asked(), length)


def test_a_head_is_kept_with_the_length_of_the_body_behind_it() -> None:
    heads = KnownHeads()
    heads.learn(HEAD + b"{}", known(2))
    assert list(heads) == [HEAD]


@pytest.mark.parametrize(
    ("data", "what"),
    [
        (HEAD + b"{}", known(3)),
        (HEAD + b"{}" + HEAD + b"{}", known(2)),
        (HEAD.replace(b"host: x\r\n", b"host: x\n") + b"{}", known(2)),
        (b"\r\n\r\n" + HEAD + b"{}", known(2)),
        (HEAD.replace(b"x", b"x" * 3000) + b"{}", known(2)),
        (HEAD + b"{}", known(2, Asked(request_id=b"mine"))),
        (HEAD + b"{}", known(2, Asked(traceparent=b"00-1-2-01"))),
    ],
    ids=["another length", "a twin", "bare LF", "blank lines before", "too long", "named", "traced"],
)
def test_nothing_else_is_kept(data: bytes, what: Known) -> None:
    heads = KnownHeads()
    heads.learn(data, what)
    assert not heads


def test_it_never_holds_more_than_its_bound() -> None:
    heads = KnownHeads()
    for number in range(MAX_KNOWN + 10):
        heads.learn(HEAD.replace(b"host: x", b"host: %d" % number) + b"{}", known(2))
        assert len(heads) <= MAX_KNOWN


async def test_the_same_head_again_is_answered_in_whatever_cuts_it_comes() -> None:
    whole = request("/v1/completions", {"prompt": "one"})
    other = request("/v1/completions", {"prompt": "two"})
    end = whole.index(b"\r\n\r\n") + 4
    assert whole[:end] == other[:end]
    async with fakes(1) as (fake,), gateway_to(fake) as gateway, connected(gateway.url) as peer:
        for cut in (0, 0, 1, end - 2, end, end + 1, len(other) - 1, 0):
            for part in filter(None, (other[:cut], other[cut:])):
                await peer.send(part)
            assert (await peer.response()).status == 200
            assert b"two" in last(fake).body
            await peer.send(whole)
            assert (await peer.response()).status == 200
            assert b"one" in last(fake).body


async def test_requests_behind_a_known_head_are_seen_one_by_one() -> None:
    whole = request("/v1/completions", {"prompt": "one"})
    async with fakes(1) as (fake,), gateway_to(fake) as gateway, connected(gateway.url) as peer:
        await peer.send(whole)
        assert (await peer.response()).status == 200
        await peer.send(whole * 3)
        assert [response.status for response in await responses(peer, ["POST"] * 3)] == [200] * 3
        await peer.send(whole)
        assert (await peer.response()).status == 200
        assert len(asked(fake)) == 5


async def test_more_than_a_known_head_announces_is_no_part_of_its_body() -> None:
    whole = request("/v1/completions", {"prompt": "one"})
    async with fakes(1) as (fake,), gateway_to(fake) as gateway, connected(gateway.url) as peer:
        for _ in range(2):
            await peer.send(whole + whole[:20])
            await peer.send(whole[20:])
            assert [response.status for response in await responses(peer, ["POST"] * 2)] == [200, 200]
        assert [seen.body for seen in asked(fake)] == [whole.partition(b"\r\n\r\n")[2]] * 4
