from __future__ import annotations

from pathlib import Path

import pytest

from loadtests.traces import Arrival, TraceUnreadable, parse_trace, read_trace, slice_trace

AZURE_2023 = """TIMESTAMP,ContextTokens,GeneratedTokens
2023-11-16 18:17:03.9799600,374,44
2023-11-16 18:17:04.0799600,396,109
"""
AZURE_2024 = """TIMESTAMP,ContextTokens,GeneratedTokens
2024-05-10 00:00:00.009930+00:00,2162,5
2024-05-10 00:00:01.009930+00:00,2399,6
"""
BURST_GPT = """Timestamp,Model,Request tokens,Response tokens,Total tokens,Log Type
5,ChatGPT,472,18,490,Conversation log
45,ChatGPT,1087,230,1317,Conversation log
"""
MOONCAKE = """{"timestamp": 3000, "input_length": 6758, "output_length": 500, "hash_ids": [0, 1, 2]}
{"timestamp": 0, "input_length": 7322, "output_length": 490, "hash_ids": [0, 14]}
"""


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (AZURE_2023, [Arrival(0.0, 374, 44), Arrival(0.1, 396, 109)]),
        (AZURE_2024, [Arrival(0.0, 2162, 5), Arrival(1.0, 2399, 6)]),
        (BURST_GPT, [Arrival(0.0, 472, 18), Arrival(40.0, 1087, 230)]),
        (MOONCAKE, [Arrival(0.0, 7322, 490, (0, 14)), Arrival(3.0, 6758, 500, (0, 1, 2))]),
    ],
    ids=["azure 2023", "azure 2024", "burstgpt", "mooncake"],
)
def test_each_public_format_is_read_from_its_first_request_on(text: str, expected: list[Arrival]) -> None:
    found = parse_trace(text.splitlines(keepends=True))
    assert [(a.prompt_tokens, a.answer_tokens, a.blocks) for a in found] == [
        (a.prompt_tokens, a.answer_tokens, a.blocks) for a in expected
    ]
    assert [a.at_s for a in found] == pytest.approx([a.at_s for a in expected], abs=1e-4)


def test_a_byte_order_mark_and_a_last_empty_line_do_no_harm(tmp_path: Path) -> None:
    path = tmp_path / "trace.csv"
    path.write_text(AZURE_2023 + "\n", encoding="utf-8-sig")
    assert len(read_trace(path)) == 2


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("a,b\n1,2\n", "known format"),
        ("", "known format"),
        (AZURE_2023 + "yesterday,1,2\n", "line 4"),
        (BURST_GPT + "50,ChatGPT,many,1,1,x\n", "line 4"),
        (MOONCAKE + '{"timestamp": 1}\n', "line 3"),
        ("TIMESTAMP,ContextTokens,GeneratedTokens\n", "no requests"),
    ],
)
def test_a_trace_that_cannot_be_read_says_where(text: str, said: str) -> None:
    with pytest.raises(TraceUnreadable, match=said):
        parse_trace(text.splitlines(keepends=True))


def test_a_replay_twice_as_fast_holds_twice_as_much() -> None:
    arrivals = [Arrival(float(second), 1, 1) for second in range(10)]
    assert [a.at_s for a in slice_trace(arrivals, 2.0)] == [0, 1]
    assert [a.at_s for a in slice_trace(arrivals, 2.0, speed=2)] == [0, 0.5, 1, 1.5]
