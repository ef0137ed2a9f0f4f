"""A stream is cut in an unlucky place, and what arrives is not what the engine sent."""

from __future__ import annotations

import re
from typing import Any

import msgspec
import pytest

from backends.fake import Behaviour, Fake, LineEnd, Pieces
from tests.drivers.many import many
from tests.drivers.sse import Ended, Recorded, record
from tests.gateways import FORMS, Running, fakes, gateway_to

STREAMED = [FORMS[name] for name in FORMS if name.endswith("stream")]
RELAYED = [(path, body) for path, body in STREAMED if path != "/predict"]
NAMED = [("x-request-id", "r")]
_CREATED = re.compile(rb'"created":\d+')

MANGLED = {
    "byte by byte": Behaviour(write_size=1, multibyte=True, write_gap_s=0),
    "byte by byte on the wire": Behaviour(write_size=1, pieces=Pieces.WIRE, multibyte=True, write_gap_s=0),
    "three bytes at a time": Behaviour(write_size=3, multibyte=True, write_gap_s=0),
    "CRLF": Behaviour(line_end=LineEnd.CRLF, write_size=7, write_gap_s=0),
    "CR": Behaviour(line_end=LineEnd.CR, write_size=5, write_gap_s=0),
    "no space after the colon": Behaviour(space_after_colon=False),
    "comment lines": Behaviour(comment_every=2, write_size=4, write_gap_s=0),
    "an event of a megabyte": Behaviour(event_bytes=1_000_000, tokens=2),
    "everything at once": Behaviour(
        line_end=LineEnd.CRLF,
        space_after_colon=False,
        comment_every=1,
        multibyte=True,
        write_size=2,
        write_gap_s=0,
    ),
}


def _plain(stream: Recorded) -> bytes:
    assert stream.ended is Ended.WHOLE
    return _CREATED.sub(b'"created":0', stream.content)


async def _both(gateway: Running, fake: Fake, path: str, body: dict[str, Any]) -> tuple[Recorded, Recorded]:
    """The stream as the engine sends it, and as it comes through the gateway."""
    direct = await record(fake.url, path, body, headers=NAMED)
    return direct, await record(gateway.url, path, body, headers=NAMED)


@pytest.mark.fault("D1")
@pytest.mark.parametrize("how", MANGLED)
async def test_the_bytes_of_a_stream_are_those_of_the_engine(how: str) -> None:
    async with fakes(1, MANGLED[how]) as (fake,), gateway_to(fake) as gateway:
        for path, body in RELAYED:
            direct, through = await _both(gateway, fake, path, body)
            assert direct.done
            assert _plain(through) == _plain(direct)


@pytest.mark.fault("D1")
@pytest.mark.parametrize("how", MANGLED)
async def test_a_translated_stream_says_what_the_engine_said(how: str) -> None:
    body = {"prompt": "Hello", "max_tokens": 4, "stream": True}
    async with fakes(1, MANGLED[how]) as (fake,), gateway_to(fake) as gateway:
        direct = await record(fake.url, "/v1/completions", body, headers=NAMED)
        through = await record(gateway.url, "/predict", body, headers=NAMED)
        assert through.done
        assert "".join(event.get("text", "") for event in through.json()) == direct.text()


@pytest.mark.fault("D1")
async def test_a_cut_at_any_offset_changes_nothing() -> None:
    body = {"prompt": "x", "max_tokens": 2, "stream": True}
    async with fakes(1, Behaviour(multibyte=True)) as (fake,), gateway_to(fake) as gateway:
        whole = await record(fake.url, "/v1/completions", body, headers=NAMED)
        size = len(whole.content)
        last = size - len(b'"finish_reason":null}]}\n\ndata: [DONE]\n\n')
        # Around every edge of the first and last event, and here and there between them.
        offsets = [*range(1, 20), *range(20, last, 17), *range(last, size)]
        for offset in offsets:
            fake.behave(Behaviour(multibyte=True, split_at=offset))
            outcomes = await many(2, lambda number: _one(gateway, number, body))
            relayed, translated = outcomes.all()
            assert _plain(relayed) == _plain(whole), offset
            assert "".join(event.get("text", "") for event in translated.json()) == whole.text()


async def _one(gateway: Running, number: int, body: dict[str, Any]) -> Recorded:
    return await record(gateway.url, ("/v1/completions", "/predict")[number], body, headers=NAMED)


@pytest.mark.fault("D1")
async def test_events_come_when_they_were_sent() -> None:
    """Nothing is collected on the way."""
    async with fakes(1, Behaviour(tokens=4, tokens_per_s=10)) as (fake,), gateway_to(fake) as gateway:
        outcomes = await many(len(STREAMED), lambda number: record(gateway.url, *STREAMED[number]))
        for stream in outcomes.all():
            times = [event.at_s for event in stream.events if '"' in event.data and _said(event.data)]
            assert len(times) == 4
            assert times[-1] - times[0] > 0.2


def _said(data: str) -> bool:
    event = msgspec.json.decode(data)
    choices = event.get("choices", [event])
    return any(choice.get("text") or choice.get("delta", {}).get("content") for choice in choices)
