"""Which fields are trained on, and which records are odd."""

from __future__ import annotations

import pytest

from training.config.kinds import Method
from training.config.tree import Data
from training.data.records import OddRecord, layout_of, prepare

DATA = Data(path="x")
TALK = [{"from": "human", "value": "hi"}, {"from": "gpt", "value": "hello"}]


def prepared(record: dict[str, object], method: Method = Method.SFT, data: Data = DATA) -> dict[str, object]:
    return prepare(record, layout_of(record, data, method))


@pytest.mark.parametrize(
    ("record", "wanted"),
    [
        ({"text": "a", "id": 1}, {"text": "a"}),
        ({"content": "a"}, {"text": "a"}),
        ({"prompt": "a", "completion": "b"}, {"prompt": "a", "completion": "b"}),
        ({"prompt": "a", "response": "b"}, {"prompt": "a", "completion": "b"}),
        ({"instruction": "a", "input": "c", "output": "b"}, {"prompt": "a\n\nc", "completion": "b"}),
        ({"instruction": "a", "input": "", "output": "b"}, {"prompt": "a", "completion": "b"}),
        (
            {"conversations": TALK},
            {"messages": [{"role": "user", "content": "hi"}, {"role": "assistant", "content": "hello"}]},
        ),
    ],
)
def test_common_layouts_are_known(record: dict[str, object], wanted: dict[str, object]) -> None:
    assert prepared(record) == wanted


def test_named_fields_win() -> None:
    record: dict[str, object] = {"text": "a", "body": "b", "q": "c"}
    assert prepared(record, data=Data(path="x", text_field="body")) == {"text": "b"}
    pair = Data(path="x", prompt_field="q", completion_field="body")
    assert prepared(record, data=pair) == {"prompt": "c", "completion": "b"}


def test_reinforcement_learning_keeps_what_reward_functions_want() -> None:
    record: dict[str, object] = {"question": "1+1?", "answer": "2", "level": 1}
    assert prepared(record, Method.GRPO) == {"prompt": "1+1?", "answer": "2", "level": 1}


@pytest.mark.parametrize(
    ("record", "said"),
    [
        ({}, "has no field text or content or sentence; its fields are none"),
        ({"txt": "a"}, "its fields are txt"),
        ({"text": ""}, "text is empty"),
        ({"text": " \n"}, "text is empty"),
        ({"text": None}, "has no text"),
        ({"text": 3}, "text should be text, but is the value 3"),
        ({"text": ["a"]}, "should be text, but is a list of 1"),
        ({"text": "a\x00"}, "zero byte"),
        ({"prompt": "a", "completion": ""}, "completion is empty"),
        ({"messages": []}, "should be a list of messages"),
        ({"messages": [{"role": "user"}]}, r"messages\[0\].content should be text, but is missing"),
        ({"messages": [{"content": "x"}]}, r"messages\[0\] has no role"),
        ({"messages": ["x"]}, "should be a mapping with role and content, but is text"),
    ],
)
def test_odd_records_are_told(record: dict[str, object], said: str) -> None:
    with pytest.raises(OddRecord, match=said):
        prepared(record)
