"""Who may get an answer that was computed for somebody else."""

from __future__ import annotations

from math import inf
from typing import Any

import pytest

from gateway.flow.cache.policy import Reuse, deterministic, reuse


@pytest.mark.parametrize(
    ("fields", "certain"),
    [
        ({"temperature": 0}, True),
        ({"temperature": 0.0}, True),
        ({"temperature": 0, "n": 1}, True),
        ({"seed": 7}, True),
        ({"seed": 0, "temperature": 1}, True),
        ({}, False),
        ({"temperature": 0.1}, False),
        ({"temperature": 0, "n": 2}, False),
        ({"seed": 7, "n": 2}, False),
        ({"temperature": 0, "n": True}, False),
        ({"temperature": False}, False),
        ({"temperature": "0"}, False),
        ({"temperature": None}, False),
        ({"seed": True}, False),
        ({"seed": "7"}, False),
    ],
    ids=str,
)
@pytest.mark.fault("F2")
def test_an_answer_is_certain_at_temperature_0_or_with_a_seed(fields: dict[str, Any], certain: bool) -> None:
    assert deterministic(fields.get("temperature"), fields.get("seed"), fields.get("n")) is certain


@pytest.mark.parametrize(
    ("certain", "header", "wish", "expected"),
    [
        (True, b"", None, Reuse()),
        (False, b"", None, None),
        (True, b"no-store", None, None),
        (True, b"private, No-Store", None, None),
        (True, b"no-cache", None, Reuse(look_up=False)),
        (False, b"no-cache", None, None),
        (True, b"max-age=0", None, Reuse(look_up=False)),
        (True, b"max-age=60", None, Reuse(max_age_s=60)),
        (False, b"max-age=60", None, Reuse(max_age_s=60)),
        (False, b'max-age="60"', None, Reuse(max_age_s=60)),
        (False, b"max-age=-1", None, None),
        (False, b"max-age=", None, None),
        (False, b"max-age=99999999999999999999", None, None),
        (False, b"max-age=60, no-store", None, None),
        (True, b"something=else,,", None, Reuse()),
        (False, b"", True, Reuse()),
        (True, b"", False, None),
        (False, b"max-age=60", False, None),
        (False, b"no-store", True, None),
    ],
)
def test_the_caller_has_the_last_word(
    certain: bool, header: bytes, wish: bool | None, expected: Reuse | None
) -> None:
    assert reuse(certain, header, wish) == expected


def test_without_a_word_any_age_will_do() -> None:
    assert Reuse().max_age_s == inf
