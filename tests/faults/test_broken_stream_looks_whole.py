"""An answer breaks off, and its reader takes half of it for all of it."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from backends.fake import Behaviour, Cut, Ending, Framing, Point
from gateway.observe.outcome import Outcome
from tests.drivers.framing import FramingError
from tests.drivers.raw import ask
from tests.drivers.sse import Ended, record
from tests.gateways import FORMS, fakes, gateway_to

STREAMED = [FORMS[name] for name in FORMS if name.endswith("stream")]
WHOLE = [FORMS[name] for name in FORMS if not name.endswith("stream")]
DETERMINISTIC = {"temperature": 0, "max_tokens": 12}
RETRIES = {"attempts": 0}


@pytest.mark.fault("D2")
@pytest.mark.parametrize("how", [Ending.RESET, Ending.CLOSE, Ending.END])
async def test_a_stream_that_breaks_off_ends_in_an_error_event(how: Ending) -> None:
    broken = Behaviour(cut=Cut(how=how, after=Point.CHUNKS, count=5))
    async with fakes(1, broken) as (fake,), gateway_to(fake) as gateway:
        for path, body in STREAMED:
            stream = await record(gateway.url, path, {**body, **DETERMINISTIC})
            assert stream.status == 200
            assert stream.ended is Ended.WHOLE, "the HTTP message itself is in order"
            assert not stream.done
            assert len(stream.events) == 6
            [error] = stream.errors
            assert error.keys() == {"message", "type", "param", "code"}
        assert gateway.outcomes == {Outcome.TRUNCATED: len(STREAMED)}
        assert gateway.members[0].failures == len(STREAMED)


@pytest.mark.fault("D2")
async def test_a_broken_answer_is_not_kept_for_the_next_who_asks() -> None:
    broken = Behaviour(cut=Cut(how=Ending.RESET, after=Point.CHUNKS, count=2))
    for path, body in FORMS.values():
        asked = {**body, **DETERMINISTIC}
        async with fakes(1, broken) as (fake,), gateway_to(fake, retries=RETRIES) as gateway:
            if asked.get("stream"):
                assert not (await record(gateway.url, path, asked)).done
            else:
                fake.behave(Behaviour(cut=Cut(how=Ending.RESET, after=Point.BYTES, count=50)))
                try:
                    assert (await ask(gateway.url, path, asked)).status >= 500
                except (FramingError, ConnectionResetError):
                    pass
            fake.behave(Behaviour())
            assert (await ask(gateway.url, path, asked)).status == 200
            assert fake.stats.requests["/v1/chat/completions"] + fake.stats.requests["/v1/completions"] == 2


@pytest.mark.fault("D2")
async def test_an_engine_that_says_that_it_failed_is_quoted() -> None:
    failing = Behaviour(
        cut=Cut(how=Ending.ERROR_EVENT, after=Point.CHUNKS, count=2, message='a "quoted"\nline é \\ end')
    )
    async with fakes(1, failing) as (fake,), gateway_to(fake) as gateway:
        for path, body in STREAMED:
            stream = await record(gateway.url, path, body)
            assert [error["message"] for error in stream.errors] == ['a "quoted"\nline é \\ end']


@pytest.mark.fault("D2")
@pytest.mark.parametrize("framing", [Framing.LENGTH, Framing.CHUNKED])
@pytest.mark.parametrize("how", [Ending.RESET, Ending.CLOSE])
async def test_a_whole_answer_that_breaks_off_never_looks_whole(how: Ending, framing: Framing) -> None:
    broken = Behaviour(framing=framing, cut=Cut(how=how, after=Point.BYTES, count=50))
    async with fakes(1, broken) as (fake,), gateway_to(fake) as gateway:
        for path, body in WHOLE:
            if path == "/predict":
                assert (await ask(gateway.url, path, body)).status == 502
            else:
                with pytest.raises((FramingError, ConnectionResetError)):
                    await ask(gateway.url, path, body)
        assert Outcome.OK not in gateway.outcomes


@pytest.mark.fault("D2")
@pytest.mark.parametrize("error", [-7, 7])
async def test_a_length_that_lies_never_makes_half_an_answer_whole(error: int) -> None:
    lying = Behaviour(framing=Framing.LENGTH, length_error=error, close=True)
    async with fakes(1, lying) as (fake,), gateway_to(fake, retries=RETRIES) as gateway:
        for path, body in WHOLE:
            try:
                response = await ask(gateway.url, path, body)
            except (FramingError, ConnectionResetError):
                continue
            if error > 0 or path == "/predict":
                assert response.status == 502
            else:
                with pytest.raises(msgspec.DecodeError):
                    response.json()


@pytest.mark.fault("D2")
@pytest.mark.parametrize("how", [Ending.RESET, Ending.CLOSE])
@pytest.mark.parametrize("after", [Point.NOTHING, Point.HEAD])
async def test_a_stream_that_breaks_before_its_first_event_goes_elsewhere(how: Ending, after: Point) -> None:
    """Engines send a stream's head before they have computed anything."""
    async with fakes(2) as (broken, sound), gateway_to(broken, sound) as gateway:
        broken.behave(Behaviour(cut=Cut(how=how, after=after)))
        for _ in range(2):
            for path, body in STREAMED:
                stream = await record(gateway.url, path, body)
                assert stream.done
                assert not stream.errors
        assert gateway.outcomes.keys() == {Outcome.OK}


@pytest.mark.fault("D2")
async def test_nobody_else_to_ask_makes_it_an_error_with_a_status() -> None:
    broken: dict[str, Any] = {"how": Ending.RESET, "after": Point.HEAD}
    async with fakes(1, Behaviour(cut=Cut(**broken))) as (fake,), gateway_to(fake) as gateway:
        for path, body in STREAMED:
            response = await ask(gateway.url, path, body)
            assert response.status == 502
            assert response.header("content-type") == "application/json"
