from __future__ import annotations

import pytest

from gateway.observe.redact import MASK, Redactor

SECRET = "hunter2-and-more"


@pytest.mark.fault("X2")
@pytest.mark.parametrize(
    "text",
    [
        f"Authorization: Bearer {SECRET}",
        f"authorization: Basic {SECRET}",
        f"authorization: Token {SECRET} and more",
        f"{{'authorization': 'Bearer {SECRET}'}}",
        f"[(b'authorization', b'Bearer {SECRET}')]",
        f"[(b'x-api-key', b'{SECRET}')]",
        f'{{"api_key": "{SECRET}"}}',
        f"GET /v1/models?api_key={SECRET}&x=1",
        f"password={SECRET}",
        f"Cookie: session={SECRET}; other=1",
        f"redis://user:{SECRET}@127.0.0.1:6379/0",
        f"rediss://:{SECRET}@cache/0",
        f"openai said sk-{SECRET}",
        f"prompt\n  Not a string [type=string_type, input_value='{SECRET}', input_type=str]",
        f"x [type=x, input_value={{'a':\n '{SECRET}'}}, input_type=dict]",
        f"TOKEN: {SECRET}",
    ],
)
def test_an_unknown_secret_is_found_by_its_place(text: str) -> None:
    redacted = Redactor()(text)
    assert SECRET not in redacted
    assert MASK in redacted


@pytest.mark.fault("X2")
def test_a_known_secret_is_found_anywhere() -> None:
    redact = Redactor([SECRET, "hunter2"])
    assert redact(f"it is {SECRET}, I think") == f"it is {MASK}, I think"
    assert redact.known(f"<{SECRET}>") == f"<{MASK}>"


@pytest.mark.parametrize(
    "text",
    [
        "A member left  member=10.0.0.1:8000",
        "1,024 tokens of prompt, 12 of answer",
        "max_tokens=16 is too small",
        "Unexpected token , at position 5",
        "connecting to http://10.0.0.1:8000/v1 failed",
        "the basics are fine",
    ],
)
def test_ordinary_text_stays(text: str) -> None:
    assert Redactor(["abc"])(text) == text
