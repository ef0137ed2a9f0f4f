from __future__ import annotations

import pytest

from loadtests.tokens import TokenTimes

STREAM = (
    b': keep-alive\n\ndata: {"choices":[{"delta":{"role":"assistant","content":""}}]}\n\n'
    b'data: {"choices":[{"delta":{"content":"Hi"}}]}\n\n'
    b'data: {"text": " there", "index": 0}\r\n\r\n'
    b'data: {"choices":[{"text":"!","finish_reason":"stop"}]}\n\n'
    b'data: {"choices":[],"usage":{"total_tokens":3}}\n\ndata: [DONE]\n\n'
)


@pytest.mark.parametrize("size", [1, 2, 7, 1000])
def test_tokens_are_events_with_text_however_the_bytes_are_cut(size: int) -> None:
    tokens = TokenTimes()
    for moment, start in enumerate(range(0, len(STREAM), size)):
        tokens.feed(STREAM[start : start + size], float(moment))
    assert tokens.first_at is not None
    assert len(tokens.gaps) == 2
    assert tokens.done and not tokens.failed


def test_gaps_are_the_times_between_reads() -> None:
    tokens = TokenTimes()
    event = b'data: {"text":"a"}\n\n'
    tokens.feed(event, 1.0)
    tokens.feed(event + event, 1.5)
    assert tokens.first_at == 1.0
    assert tokens.gaps == [0.5, 0.0]


def test_an_error_event_is_no_token_and_fails_the_stream() -> None:
    tokens = TokenTimes()
    tokens.feed(b'data: {"error": {"message": "text": "x"}}\n\n', 1.0)
    assert tokens.failed and tokens.first_at is None and not tokens.done
