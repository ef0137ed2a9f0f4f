"""Two requests get one answer if, and only if, nothing that could change it differs."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gateway.flow.cache.key import Form, Question, at_version, question

BASE: dict[str, Any] = {
    "model": "m",
    "prompt": "Hello",
    "max_tokens": 4,
    "temperature": 0,
    "top_p": 0.9,
    "top_k": 5,
    "stop": ["a"],
    "seed": 1,
    "n": 1,
    "logprobs": 1,
    "response_format": {"type": "json_object"},
    "tools": [{"type": "function", "function": {"name": "f", "parameters": {}}}],
    "user": "alice",
    "unheard_of": 1,
}

numbers = st.integers(-(2**53), 2**53) | st.floats(allow_nan=False, allow_infinity=False)
values = st.recursive(
    st.none() | st.booleans() | numbers | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=8,
)
untimed = settings(deadline=None, max_examples=40)


def ask(fields: dict[str, Any], *, stream: bool = False, **of: str) -> Question:
    body = msgspec.json.encode(fields)
    asked = question(of.get("tenant", ""), of.get("model", "m"), of.get("path", "/p").encode(), body, stream)
    assert asked is not None
    return asked


def as_equal(value: Any) -> Any:
    """Equal where the key must be: numbers by value, but true is not 1."""
    if isinstance(value, bool):
        return ("bool", value)
    if isinstance(value, dict):
        return ("object", {name: as_equal(each) for name, each in value.items()})
    if isinstance(value, list):
        return ("array", [as_equal(each) for each in value])
    return value


@pytest.mark.fault("F1")
@pytest.mark.parametrize("field", BASE)
@untimed
@given(other=values)
def test_a_field_that_is_changed_alone_makes_another_key(field: str, other: Any) -> None:
    same = as_equal(other) == as_equal(BASE[field])
    assert (ask({**BASE, field: other}) == ask(BASE)) is same


@pytest.mark.fault("F1")
@pytest.mark.parametrize("field", BASE)
def test_a_field_that_is_left_out_makes_another_key(field: str) -> None:
    assert ask({name: value for name, value in BASE.items() if name != field}) != ask(BASE)


@pytest.mark.fault("F1")
@untimed
@given(name=st.text(), value=values)
def test_a_field_that_nobody_knows_makes_another_key(name: str, value: Any) -> None:
    if name not in BASE and name not in ("stream", "stream_options"):
        assert ask({**BASE, name: value}) != ask(BASE)


@pytest.mark.fault("F1")
@untimed
@given(fields=st.dictionaries(st.text(), values, max_size=6), random=st.randoms(use_true_random=False))
def test_the_order_of_keys_does_not_matter(fields: dict[str, Any], random: Any) -> None:
    def shuffled(value: Any) -> Any:
        if isinstance(value, list):
            return [shuffled(each) for each in value]
        if not isinstance(value, dict):
            return value
        names = list(value)
        random.shuffle(names)
        return {name: shuffled(value[name]) for name in names}

    fields = {name: value for name, value in fields.items() if not name.startswith("stream")}
    assert ask(shuffled(fields)) == ask(fields)


@pytest.mark.fault("F1")
@untimed
@given(number=st.integers(-(2**53) + 1, 2**53 - 1))
def test_a_whole_number_may_be_written_as_a_float(number: int) -> None:
    def digest(text: str) -> Question | None:
        return question("", "m", b"/p", b'{"x": [%b]}' % text.encode(), False)

    assert digest(f"{number}.0") == digest(str(number))
    assert digest(f"{number}e0") == digest(str(number))


@pytest.mark.fault("F1")
def test_numbers_that_no_float_tells_apart_are_told_apart() -> None:
    asked = {question("", "m", b"/p", b'{"x": %d}' % (2**70 + i), False) for i in range(3)}
    assert len(asked) == 3 or asked == {None}


@pytest.mark.fault("F1")
def test_true_is_not_1_and_text_is_not_a_number() -> None:
    assert len({ask({"x": value}).digest for value in (1, True, "1", [1], None, "true")}) == 6


@pytest.mark.fault("E3")
def test_every_form_of_a_prompt_is_another_question() -> None:
    prompts = ["1,2,3", [1, 2, 3], ["1,2,3"], ["1", "2", "3"], [[1, 2, 3]], [[1], [2], [3]], "", None, []]
    asked = {ask({"prompt": prompt}).digest for prompt in prompts} | {ask({}).digest}
    assert len(asked) == len(prompts) + 1


@pytest.mark.fault("F7")
@untimed
@given(one=st.text(), other=st.text())
def test_two_tenants_never_share_a_key(one: str, other: str) -> None:
    assume = one != other
    try:
        one.encode()
        other.encode()
    except UnicodeEncodeError:
        return
    assert (ask(BASE, tenant=one) == ask(BASE, tenant=other)) is not assume


def test_tenant_model_and_path_cannot_be_taken_for_each_other() -> None:
    asked = [
        ask(BASE, tenant="a", model="b"),
        ask(BASE, tenant="ab", model=""),
        ask(BASE, tenant="", model="ab"),
        ask(BASE, tenant="a", model="", path="b/p"),
    ]
    assert len(set(asked)) == len(asked)


@pytest.mark.fault("F8")
@untimed
@given(one=st.binary(), other=st.binary())
def test_two_versions_never_share_a_key(one: bytes, other: bytes) -> None:
    digest = ask(BASE).digest
    assert (at_version(digest, one) == at_version(digest, other)) is (one == other)


@pytest.mark.fault("F4")
def test_the_form_of_the_answer_is_asked_apart_from_what_it_says() -> None:
    plain = ask(BASE)
    streamed = ask({**BASE, "stream": True}, stream=True)
    counted = ask({**BASE, "stream": True, "stream_options": {"include_usage": True}}, stream=True)
    assert plain.digest == streamed.digest == counted.digest
    assert (plain.form, streamed.form, counted.form) == (Form.WHOLE, Form.STREAM, Form.STREAM_WITH_USAGE)
    assert len({plain.same_bytes, streamed.same_bytes, counted.same_bytes}) == 3


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"[]",
        b"null",
        b'{"x": NaN}',
        b'{"x": 1e999}',
        b'{"x": "\\ud800"}',
        b'{"stream_options": {}}',
        b'{"x": ' + b"[" * 100_000,
    ],
    ids=lambda body: body[:24].decode(),
)
def test_what_cannot_be_compared_is_no_question(body: bytes) -> None:
    assert question("", "m", b"/p", body, False) is None


@pytest.mark.parametrize("options", [{"include_usage": 1}, {"other": True}, [], "x", 1])
def test_strange_options_of_a_stream_are_the_engines_to_judge(options: Any) -> None:
    body = json.dumps({"stream": True, "stream_options": options}).encode()  # noqa: TID251
    assert question("", "m", b"/p", body, True) is None
