"""An engine dies, leaves or is swapped in the middle of an answer, and the user gets half a sentence."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from backends.fake import Behaviour, Cut, Ending, Fake, Point, Rule
from gateway.observe.outcome import Outcome
from tests.drivers.leaving import AfterEvents, leave
from tests.drivers.raw import request
from tests.drivers.sse import Recorded, record
from tests.gateways import fakes, gateway_to

VERSION = "v1-aaaaaaaa"
TOKENS = 12
ON = {"continuation": "on"}
USAGE = {"include_usage": True}
GREEDY: dict[str, Any] = {"max_tokens": TOKENS, "temperature": 0, "stream": True}
CHAT: dict[str, Any] = {"messages": [{"role": "user", "content": "Hello"}]}
FORMS: dict[str, tuple[str, dict[str, Any]]] = {
    "completions": ("/v1/completions", {"prompt": "Hello", **GREEDY}),
    "completions with usage": ("/v1/completions", {"prompt": "Hello", **GREEDY, "stream_options": USAGE}),
    "completions with usages": (
        "/v1/completions",
        {"prompt": "Hello", **GREEDY, "stream_options": {**USAGE, "continuous_usage_stats": True}},
    ),
    "completions of ids": ("/v1/completions", {"prompt": [1, 2, 3], **GREEDY}),
    "completions, sampled": ("/v1/completions", {"prompt": "Hello", **GREEDY, "temperature": 0.7}),
    "completions with logprobs": ("/v1/completions", {"prompt": "Hello", **GREEDY, "logprobs": 1}),
    "completions with token ids": (
        "/v1/completions",
        {"prompt": "Hello", **GREEDY, "return_token_ids": True},
    ),
    "chat": ("/v1/chat/completions", {**CHAT, **GREEDY}),
    "chat with usage": ("/v1/chat/completions", {**CHAT, **GREEDY, "stream_options": USAGE}),
    "chat with logprobs": ("/v1/chat/completions", {**CHAT, **GREEDY, "logprobs": True}),
    "predict": ("/predict", {"prompt": "Hello", **GREEDY}),
    "predict, sampled": ("/predict", {"prompt": "Hello", **GREEDY, "temperature": 0.7}),
    "predict of a chat": ("/predict", {**CHAT, **GREEDY}),
}


def dying(how: Ending, chunks: int, first: int = 1) -> Behaviour:
    """An engine that cuts the first answers short, whoever began them."""
    rule = Rule(first=first, cut=Cut(how=how, after=Point.CHUNKS, count=chunks), tokens_per_s=500)
    return Behaviour(version=VERSION, tokens_per_s=500, rules=(rule,))


def comparable(stream: Recorded) -> list[Any]:
    """Its events without what names the request; log-probabilities depend on the position in a call."""
    events = stream.json()
    for event in events:
        event.pop("id", None)
        event.pop("created", None)
        event.pop("system_fingerprint", None)
        for choice in event.get("choices", ()):
            logprobs = choice.get("logprobs")
            if logprobs is not None:
                choice["logprobs"] = _names(logprobs)
    return [event for event in events if event.get("choices") != []] + [
        event for event in events if event.get("choices") == []
    ]


def _names(logprobs: dict[str, Any]) -> Any:
    if "content" in logprobs:
        return [entry["token"] for entry in logprobs["content"]]
    return logprobs["tokens"], logprobs["text_offset"]


async def whole(path: str, body: dict[str, Any]) -> Recorded:
    """What an engine answers that nothing befalls, through no gateway at all but for `/predict`."""
    async with fakes(1, Behaviour(version=VERSION)) as (fake,):
        if path != "/predict":
            return await record(fake.url, path, body)
        async with gateway_to(fake) as gateway:
            return await record(gateway.url, path, body)


HOWS = [
    *((Ending.RESET, form) for form in FORMS),
    *(
        (how, form)
        for how in (Ending.CLOSE, Ending.END)
        for form in ("completions with usage", "chat", "predict")
    ),
]


@pytest.mark.fault("S13")
@pytest.mark.parametrize(("how", "form"), HOWS)
async def test_an_answer_goes_on_as_if_nothing_had_happened(how: Ending, form: str) -> None:
    path, body = FORMS[form]
    expected = await whole(path, body)
    async with (
        fakes(2, dying(how, 5)) as (a, b),
        gateway_to(a, b, retries=ON, cache={"type": "off"}) as gateway,
    ):
        stream = await record(gateway.url, path, body)
        assert stream.errors == []
        assert stream.done
        assert stream.text() == expected.text()
        assert comparable(stream) == comparable(expected)
        assert len({event["id"] for event in stream.json()}) == 1
        assert await gateway.metric("changeover_continuations_total", outcome="continued") >= 1
        [seen] = gateway.records
        assert (seen.outcome, seen.version) == (Outcome.OK, VERSION)


@pytest.mark.parametrize("chunks", range(1, TOKENS + 2))
@pytest.mark.parametrize("form", ["completions with usage", "chat with usage"])
async def test_wherever_it_breaks_every_token_comes_once(form: str, chunks: int) -> None:
    path, body = FORMS[form]
    expected = await whole(path, body)
    async with fakes(2, dying(Ending.RESET, chunks)) as (a, b), gateway_to(a, b, retries=ON) as gateway:
        stream = await record(gateway.url, path, body)
        assert stream.errors == []
        assert stream.text() == expected.text()
        assert stream.json()[-1]["usage"] == expected.json()[-1]["usage"]


async def test_a_frozen_engine_is_left_behind() -> None:
    path, body = FORMS["completions"]
    expected = await whole(path, body)
    behaviour = dying(Ending.SILENCE, 4)
    async with (
        fakes(2, behaviour) as (a, b),
        gateway_to(a, b, retries=ON, timeouts={"silence_s": 0.3, "heartbeat_s": 0.2}) as gateway,
    ):
        stream = await record(gateway.url, path, body)
        assert (stream.text(), stream.errors) == (expected.text(), [])


async def test_what_went_on_elsewhere_is_kept_and_given_again() -> None:
    path, body = FORMS["completions with usage"]
    expected = await whole(path, body)
    async with fakes(2, dying(Ending.RESET, 5)) as (a, b), gateway_to(a, b, retries=ON) as gateway:
        first = await record(gateway.url, path, body)
        again = await record(gateway.url, path, body)
        assert first.text() == again.text() == expected.text()
        assert again.head is not None
        assert again.head.header("x-cache") == "hit"


REFUSED: dict[str, dict[str, Any]] = {
    "a seeded sampler": {"seed": 3, "temperature": 1},
    "`n`": {"n": 2},
    "`presence_penalty`": {"presence_penalty": 0.5},
    "`response_format`": {"response_format": {"type": "json_object"}},
    "`echo`": {"echo": True},
    "several prompts": {"prompt": ["Hello", "Hi"]},
}


@pytest.mark.fault("S13")
@pytest.mark.parametrize("reason", REFUSED)
async def test_what_cannot_go_on_ends_in_an_error_that_says_why(reason: str) -> None:
    path, body = FORMS["completions"]
    async with fakes(2, dying(Ending.RESET, 5)) as (a, b), gateway_to(a, b, retries=ON) as gateway:
        stream = await record(gateway.url, path, {**body, **REFUSED[reason]})
        [error] = stream.errors
        assert reason in error["message"]
        assert not stream.done
        assert gateway.outcomes == {Outcome.TRUNCATED: 1}
        assert await gateway.metric("changeover_continuations_total", outcome="impossible") == 1


async def test_never_on_other_weights() -> None:
    path, body = FORMS["completions"]
    behaviour = dying(Ending.RESET, 5)
    other = msgspec.structs.replace(behaviour, version="v2-bbbbbbbb")
    async with (
        Fake.start(behaviour, name="a") as a,
        Fake.start(other, name="b") as b,
        gateway_to(a, b, retries=ON, timeouts={"stream_total_s": 1}) as gateway,
    ):
        stream = await record(gateway.url, path, body)
        assert len(stream.errors) == 1
        used = {fake.name for fake in (a, b) if fake.stats.requests["/v1/completions"]}
        assert len(used) == 1


async def test_a_client_that_leaves_meanwhile_holds_nothing() -> None:
    path, body = FORMS["completions"]
    slow = Rule(paths=("/detokenize",), delay_headers_s=5)
    behaviour = dying(Ending.RESET, 5)
    behaviour = msgspec.structs.replace(behaviour, rules=(*behaviour.rules, slow))
    async with fakes(2, behaviour) as (a, b), gateway_to(a, b, retries=ON) as gateway:
        await leave(gateway.url, request(path, body), AfterEvents(5))
        await gateway.comes_to_rest()


async def test_engines_that_run_elsewhere_get_every_request_byte_for_byte() -> None:
    path, body = FORMS["completions"]
    async with fakes(1, Behaviour(version=VERSION)) as (fake,), gateway_to(fake) as gateway:
        await record(gateway.url, path, body)
        assert not gateway.service.continues
        [sent] = fake.stats.bodies(path)
        assert msgspec.json.decode(sent) == body
