"""An answer in the other form is what the engine would have sent in it: tried against one."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from backends.fake import Behaviour, Fake
from gateway.flow.cache.key import Form
from gateway.http.forms import is_whole, payloads, translate
from tests.drivers.raw import ask

COMPLETION = ("/v1/completions", {"prompt": "Hello", "max_tokens": 6, "temperature": 0})
LIST = ("/v1/completions", {"prompt": ["One", "Two"], "max_tokens": 6, "temperature": 0})
CHAT = (
    "/v1/chat/completions",
    {"messages": [{"role": "user", "content": "Hi"}], "max_tokens": 6, "temperature": 0},
)
ASKED = pytest.mark.parametrize(("path", "body"), [COMPLETION, LIST, CHAT], ids=["text", "list", "chat"])
STREAMS: dict[Form, dict[str, Any]] = {
    Form.WHOLE: {},
    Form.STREAM: {"stream": True},
    Form.STREAM_WITH_USAGE: {"stream": True, "stream_options": {"include_usage": True}},
    Form.STREAM_WITH_USAGES: {
        "stream": True,
        "stream_options": {"include_usage": True, "continuous_usage_stats": True},
    },
}
TRANSLATABLE = [
    (Form.WHOLE, Form.STREAM),
    (Form.WHOLE, Form.STREAM_WITH_USAGE),
    (Form.STREAM_WITH_USAGE, Form.WHOLE),
    (Form.STREAM_WITH_USAGE, Form.STREAM),
    (Form.STREAM_WITH_USAGES, Form.WHOLE),
    *((form, form) for form in Form),
]
IMPOSSIBLE = [(one, other) for one in Form for other in Form if (one, other) not in TRANSLATABLE]


async def said(fake: Fake, path: str, body: dict[str, Any], form: Form) -> bytes:
    answer = await ask(fake.url, path, {**body, **STREAMS[form]}, headers=[("x-request-id", "r")])
    assert answer.status == 200
    return answer.body


def joined(body: bytes, form: Form) -> Any:
    """What an answer says, without how it was cut into events: every field of each, texts put together."""
    if form is Form.WHOLE:
        return _timeless(msgspec.json.decode(body))
    events = [msgspec.json.decode(payload) for payload in payloads(body) if payload != b"[DONE]"]
    texts: dict[int, str] = {}
    choices: dict[int, dict[str, Any]] = {}
    outside: dict[str, Any] = {}
    for event in events:
        outside |= {name: value for name, value in event.items() if name != "choices"}
        for choice in event["choices"]:
            index = choice["index"]
            piece = choice.pop("text", None) or (choice.get("delta") or {}).pop("content", "")
            texts[index] = texts.get(index, "") + piece
            choices[index] = {**choices.get(index, {}), **choice, "delta": None}
    return _timeless(outside), choices, texts, body.endswith(b"data: [DONE]\n\n")


def _timeless(answer: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in answer.items() if name != "created"}


@pytest.mark.fault("F4")
@ASKED
@pytest.mark.parametrize(("kept", "wanted"), TRANSLATABLE, ids=lambda form: form.name.lower())
async def test_a_translated_answer_is_the_engines_own(
    kept: Form, wanted: Form, path: str, body: dict[str, Any]
) -> None:
    async with Fake.start(Behaviour(version="v1")) as fake:
        original = await said(fake, path, body, kept)
        translated = translate(original, kept, wanted, chat="chat" in path)
        assert translated is not None
        assert joined(translated, wanted) == joined(await said(fake, path, body, wanted), wanted)
        assert is_whole(translated, wanted)


@pytest.mark.fault("F4")
@ASKED
async def test_the_json_made_of_a_stream_has_the_fields_in_the_engines_order(
    path: str, body: dict[str, Any]
) -> None:
    async with Fake.start() as fake:
        stream = await said(fake, path, body, Form.STREAM_WITH_USAGE)
        made = translate(stream, Form.STREAM_WITH_USAGE, Form.WHOLE, chat="chat" in path)
        own = await said(fake, path, body, Form.WHOLE)
        assert made is not None
        assert _outline(msgspec.json.decode(made)) == _outline(msgspec.json.decode(own))


def _outline(value: Any) -> Any:
    if isinstance(value, dict):
        return [(name, _outline(each)) for name, each in value.items()]
    return [_outline(each) for each in value] if isinstance(value, list) else None


@ASKED
@pytest.mark.parametrize(("kept", "wanted"), IMPOSSIBLE, ids=lambda form: form.name.lower())
async def test_what_an_answer_does_not_tell_is_not_made_up(
    kept: Form, wanted: Form, path: str, body: dict[str, Any]
) -> None:
    async with Fake.start() as fake:
        assert translate(await said(fake, path, body, kept), kept, wanted, chat="chat" in path) is None


@pytest.mark.parametrize(
    "more", [{"logprobs": 1}, {"return_token_ids": True}], ids=lambda more: next(iter(more))
)
@pytest.mark.parametrize("kept", [Form.WHOLE, Form.STREAM_WITH_USAGE])
async def test_an_answer_that_holds_more_than_text_is_not_translated(
    more: dict[str, Any], kept: Form
) -> None:
    wanted = Form.STREAM if kept is Form.WHOLE else Form.WHOLE
    async with Fake.start() as fake:
        path, body = COMPLETION
        assert translate(await said(fake, path, body | more, kept), kept, wanted, chat=False) is None


def test_a_tool_call_is_not_translated() -> None:
    message = {"role": "assistant", "content": None, "tool_calls": [{"id": "1"}]}
    answer = {
        "id": "1",
        "created": 1,
        "model": "m",
        "choices": [{"index": 0, "message": message, "finish_reason": "stop"}],
        "usage": {},
    }
    assert translate(msgspec.json.encode(answer), Form.WHOLE, Form.STREAM, chat=True) is None


@pytest.mark.fault("F3")
@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"{}",
        b"[]",
        b"null",
        b'{"choices": []}',
        b'{"choices": [{"finish_reason": "abort"}]}',
        b'{"choices": [{"finish_reason": null}]}',
        b'{"choices": [{"finish_reason": "stop"}, {"finish_reason": "error"}]}',
        b'{"choices": [{"finish_reason": "tool_calls"}]}',
        b'{"error": {}, "choices": [{"finish_reason": "stop"}]}',
        b'{"choices": [{"finish_reason": "stop"}',
    ],
)
def test_an_answer_that_is_not_complete_is_not_whole(body: bytes) -> None:
    assert not is_whole(body, Form.WHOLE)


PIECE = b'data: {"choices": [{"index": 0, "finish_reason": null}]}\n\n'
END = b'data: {"choices": [{"index": 0, "finish_reason": "stop"}]}\n\n'
DONE = b"data: [DONE]\n\n"


@pytest.mark.fault("F3")
@pytest.mark.parametrize(
    ("stream", "whole"),
    [
        (PIECE + END + DONE, True),
        (b": comment\n\n" + PIECE + b": comment\n\n" + END + DONE, True),
        (PIECE + END, False),
        (PIECE + DONE, False),
        (DONE, False),
        (b"", False),
        (PIECE + b'data: {"error": {"message": "x"}}\n\n' + DONE, False),
        (END + b'data: {"choices": [{"index": 1, "finish_reason": null}]}\n\n' + DONE, False),
        (b"data: {\n\n" + END + DONE, False),
        (PIECE + b'data: {"choices": [{"index": 0, "finish_reason": "abort"}]}\n\n' + DONE, False),
    ],
)
def test_a_stream_is_whole_when_every_choice_has_ended_and_nothing_failed(stream: bytes, whole: bool) -> None:
    assert is_whole(stream, Form.STREAM) is whole
