"""The built-in reward functions, and those of others."""

from __future__ import annotations

import pytest

from training.rewards import BUILTIN, RewardError, reward_function


def test_each_built_in_reward_gives_one_number_for_each_completion() -> None:
    for name, reward in BUILTIN.items():
        found = reward(
            completions=["Paris", [{"role": "assistant", "content": "12"}]], answer=["paris", "= 12"]
        )
        assert len(found) == 2, name
        assert all(each is None or 0 <= each <= 1 for each in found), name


def test_answers_are_compared_by_what_counts() -> None:
    assert reward_function("exact_answer")(completions=[" Paris\n", "Rome"], answer=["paris", "paris"]) == [
        1,
        0,
    ]
    assert reward_function("last_number")(
        completions=["so 1,200 and 3.50", "none"], answer=["#### 3.5", "7"]
    ) == [1, 0]
    assert reward_function("lower_case")(completions=["abC", "12"]) == [2 / 3, 0]
    assert reward_function("ascii_letters")(completions=["a b!", ""]) == [0.75, 0]


def test_a_function_of_ones_own_is_found_by_its_path() -> None:
    assert reward_function("math:fabs")(-4)


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("exact", "not built in"),
        ("no_such_module:f", "cannot be imported"),
        ("math:nothing", "cannot"),
        ("math:pi", "no function"),
    ],
)
def test_what_is_no_reward_function_is_told(name: str, said: str) -> None:
    with pytest.raises(RewardError, match=said):
        reward_function(name)
