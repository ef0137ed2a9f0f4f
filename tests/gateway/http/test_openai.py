"""A glance at the OpenAI routes' bodies: nothing is refused that the engine takes."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.errors import BadRequest
from gateway.http.openai import DEFAULT_ANSWER_TOKENS, check_model, glance, session_of
from gateway.http.routes import BY_PATH

CHAT = BY_PATH[b"/v1/chat/completions"]


@pytest.mark.parametrize(
    "value", [b"true", b"1", b"1.0", b'"true"', b'"True"', b'"1"', b'"yes"', b'"on"', b'"T"']
)
def test_a_stream_is_asked_for_in_every_way_the_engine_knows(value: bytes) -> None:
    assert glance(b'{"stream": %b}' % value).streams


@pytest.mark.parametrize(
    "value", [b"false", b"0", b"null", b'"false"', b'"no"', b"2", b"[]", b"{}", b'" true"']
)
def test_and_in_no_other(value: bytes) -> None:
    assert not glance(b'{"stream": %b}' % value).streams
    assert not glance(b"{}").streams


@pytest.mark.parametrize(
    "body",
    [
        b'{"model":"m","prompt":"x","temperature":NaN}',
        b'{"model":"m","prompt":"x","logit_bias":{"1":-Infinity}}',
        b'{"model":"m","prompt":"x","seed":123456789012345678901234567890}',
        b'{"model":"m","prompt":"x","prompt":"y"}',
        b'{"model":"other","prompt":"x","model":"m"}',
        b'\xef\xbb\xbf{"model":"m","prompt":"x"}',
        b'{"model":"m","prompt":"\\ud800"}',
        b'{"model":"m","max_tokens":"16","n":"2","user":7,"stream":{}}',
        b'{"model":"m","max_tokens":-1,"n":0}',
        b'{"model":"m","max_tokens":1e999}',
        b'{"model":"m","prompt":null,"messages":null}',
        b'{"model":"m","prompt":[1,2,3]}',
        b'{"model":"m","prompt":[[1,2],[3]]}',
        b'{"model":"m","prompt":[]}',
        b'{"model":"m","messages":"not a list"}',
        b'{"model":"m","tools":[{"type":"function","function":{"name":"f"}}],"min_tokens":0}',
        b'{"model":"m","extra":' + b"[" * 500 + b"]" * 500 + b"}",
        '{"model":"m","prompt":"é"}'.encode("utf-16"),
    ],
)
def test_odd_bodies_are_the_engines_to_judge(body: bytes) -> None:
    seen = glance(body)
    assert check_model(seen.model, CHAT) == "m"
    assert not seen.streams
    assert seen.tokens(generates=True) >= 1


@pytest.mark.parametrize("body", [b"", b"null", b"[]", b'"x"', b"1", b"{", b'{"model":"m"', b"[" * 200_000])
def test_what_is_no_json_object_is_refused(body: bytes) -> None:
    with pytest.raises(BadRequest):
        glance(body)


@pytest.mark.parametrize("model", [b"1", b"[]", b"{}", b"true"])
def test_a_model_that_is_no_name_is_refused(model: bytes) -> None:
    with pytest.raises(BadRequest) as refused:
        check_model(glance(b'{"model":%b}' % model).model, CHAT)
    assert refused.value.param == "model"


def test_no_model_is_the_default_one() -> None:
    assert check_model(glance(b"{}").model, CHAT) == ""
    assert check_model(glance(b'{"model":null}').model, CHAT) == ""


def test_the_estimate_knows_every_name_of_the_limit_and_the_number_of_answers() -> None:
    for name in ("max_tokens", "max_completion_tokens", "max_output_tokens"):
        assert glance(b'{"%b":100}' % name.encode()).tokens(generates=True) == 101
    assert glance(b'{"max_tokens":100,"n":3}').tokens(generates=True) == 301
    assert glance(b"{}").tokens(generates=True) == DEFAULT_ANSWER_TOKENS + 1
    assert glance(b'{"input":"%b"}' % (b"x" * 398)).tokens(generates=False) == 101


@given(st.binary(max_size=200))
def test_no_body_whatever_breaks_the_glance(body: bytes) -> None:
    try:
        seen = glance(body)
        seen.tokens(generates=True)
        _ = seen.streams
    except BadRequest:
        pass


@pytest.mark.parametrize(
    ("body", "keys", "session"),
    [
        (b'{"user":"u"}', ("user",), "u"),
        (b'{"user":7}', ("user",), ""),
        (b'{"chat":"c","user":"u"}', ("chat", "user"), "c"),
        (b'{"chat":["c"]}', ("chat",), ""),
        (b"{}", ("chat",), ""),
        (b'{"chat":"c","t":NaN}', ("chat",), "c"),
    ],
)
def test_a_session_is_named_by_a_key_of_the_body(body: bytes, keys: tuple[str, ...], session: str) -> None:
    assert session_of(body, keys, glance(body).user) == session
