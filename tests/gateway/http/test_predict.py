"""`/predict`: what may be asked, what is wrong with the rest, and what the engine is asked."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from gateway.errors import BadRequest
from gateway.http import predict


def _upstream(**fields: Any) -> tuple[str, dict[str, Any]]:
    path, body = predict.upstream(predict.read(msgspec.json.encode(fields)))
    return path.decode(), msgspec.json.decode(body)


def _refusal(body: bytes) -> BadRequest:
    with pytest.raises(BadRequest) as refused:
        predict.read(body)
    msgspec.json.decode(refused.value.body())
    return refused.value


@pytest.mark.parametrize("prompt", ["Hello", ["a", "b"], [1, 2, 3], [[1, 2], [3]], [[]], ["a"], "é🙂"])
def test_a_prompt_goes_to_completions_as_it_is(prompt: Any) -> None:
    path, body = _upstream(prompt=prompt)
    assert path == "/v1/completions"
    assert body == {"prompt": prompt, "max_tokens": predict.DEFAULT_MAX_TOKENS}


def test_messages_go_to_chat_as_they_are() -> None:
    messages = [{"role": "user", "content": [{"type": "text", "text": "Hi"}], "name": "x", "unknown": 1}]
    path, body = _upstream(messages=messages, model="m", max_tokens=3)
    assert path == "/v1/chat/completions"
    assert body == {"model": "m", "messages": messages, "max_tokens": 3}


def test_sampling_and_parameters_are_handed_on() -> None:
    sampling = {"temperature": 0, "top_p": 0.5, "top_k": 5, "stop": ["x"], "seed": -1, "max_tokens": 1}
    _, body = _upstream(prompt="x", parameters={"repetition_penalty": 1.1, "guided": {"a": [1]}}, **sampling)
    assert body == {"prompt": "x", **sampling, "repetition_penalty": 1.1, "guided": {"a": [1]}}


def test_a_stream_is_asked_for_with_its_usage() -> None:
    _, body = _upstream(prompt="x", stream=True)
    assert (body["stream"], body["stream_options"]) == (True, {"include_usage": True})
    _, body = _upstream(prompt="x", stream=False)
    assert not {"stream", "stream_options"} & body.keys()


def test_the_callers_own_time_limit_stays_here() -> None:
    _, body = _upstream(prompt="x", timeout=2.5)
    assert "timeout" not in body


@pytest.mark.parametrize(
    ("name", "near"),
    [
        *(("promt", "prompt"), ("max_token", "max_tokens"), ("temprature", "temperature")),
        *(("topp", "top_p"), ("steam", "stream"), ("message", "messages"), ("Model", "model")),
    ],
)
def test_a_misspelt_field_is_named_with_the_nearest_right_one(name: str, near: str) -> None:
    error = _refusal(msgspec.json.encode({"prompt": "x", name: 1}))
    assert error.param == name
    assert f"`{near}`" in error.message


def test_a_parameter_of_the_engine_at_the_top_is_sent_to_its_place() -> None:
    error = _refusal(b'{"prompt":"x","repetition_penalty":1.1}')
    assert "`parameters`" in error.message


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({}, "prompt"),
        ({"prompt": None}, "prompt"),
        ({"prompt": "x", "messages": [{"role": "user"}]}, "prompt"),
        ({"prompt": ""}, "prompt"),
        ({"prompt": []}, "prompt"),
        ({"prompt": ["a", 1]}, "prompt"),
        ({"prompt": 7}, "prompt"),
        ({"prompt": {"text": "x"}}, "prompt"),
        ({"prompt": [1.5]}, "prompt"),
        ({"messages": []}, "messages"),
        ({"messages": "Hi"}, "messages"),
        ({"messages": ["Hi"]}, "messages"),
        ({"prompt": "x", "max_tokens": 0}, "max_tokens"),
        ({"prompt": "x", "max_tokens": "16"}, "max_tokens"),
        ({"prompt": "x", "temperature": -1}, "temperature"),
        ({"prompt": "x", "temperature": "hot"}, "temperature"),
        ({"prompt": "x", "top_p": 0}, "top_p"),
        ({"prompt": "x", "top_p": 1.5}, "top_p"),
        ({"prompt": "x", "top_k": -2}, "top_k"),
        ({"prompt": "x", "stop": 1}, "stop"),
        ({"prompt": "x", "seed": "x"}, "seed"),
        ({"prompt": "x", "stream": "true"}, "stream"),
        ({"prompt": "x", "timeout": 0}, "timeout"),
        ({"prompt": "x", "parameters": []}, "parameters"),
        ({"prompt": "x", "parameters": {"stream": True}}, "parameters"),
        ({"prompt": "x", "parameters": {"model": "y"}}, "parameters"),
        ({"prompt": "x", "model": 1}, "model"),
    ],
)
def test_what_is_wrong_is_named(fields: dict[str, Any], param: str) -> None:
    error = _refusal(msgspec.json.encode(fields))
    assert error.param == param
    assert error.status == 400


@pytest.mark.parametrize(
    "body",
    [
        *(b"", b"null", b"[]", b"1", b"{", b'{"prompt":"x"', b'{"prompt":"\xff"}', b"[" * 200_000),
        *(b'{"prompt":"x","temperature":NaN}', b'{"prompt":"\\ud800"}', b'{"prompt":"x","seed":1e999}'),
        b'{"prompt":5,"\\ud800":1}',
        b'{"prompt":"x","\\udc00\\ud800":1}',
        b'{"prompt":' + b"[" * 5000 + b"]" * 5000 + b"}",
        b'{"prompt":"x","parameters":{"a":' + b"[" * 200_000,
        b'{"prompt":"x","seed":' + b"9" * 5000 + b"}",
    ],
)
def test_what_cannot_be_read_is_refused_with_an_error_that_can_be_sent(body: bytes) -> None:
    assert _refusal(body).status == 400


def test_whether_the_answer_is_a_list_follows_from_what_was_asked() -> None:
    def many(**fields: Any) -> bool:
        return predict.is_many(predict.read(msgspec.json.encode(fields)))

    assert not many(prompt="x")
    assert not many(prompt=[1, 2])
    assert not many(messages=[{"role": "user"}])
    assert many(prompt=["x"])
    assert many(prompt=[[1, 2]])
    assert many(prompt="x", parameters={"n": 2})
    assert not many(prompt="x", parameters={"n": 1})
    assert not many(prompt="x", parameters={"n": "2"})


def test_equal_beginnings_look_equal_to_the_router() -> None:
    def seen(**fields: Any) -> bytes:
        return predict.prompt_bytes(predict.read(msgspec.json.encode(fields)))

    assert seen(prompt="abcdef")[:3] == seen(prompt="abcxyz")[:3]
    assert seen(prompt=[1, 2, 3]) != seen(prompt="1,2,3")
