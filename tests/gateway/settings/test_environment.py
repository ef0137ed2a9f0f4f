"""Every variable with our prefix that the project uses is documented as a setting or as something else."""

from __future__ import annotations

import re
from pathlib import Path

from gateway.settings.environment import OTHER_VARIABLES, assignments, variable
from gateway.settings.options import options

ROOT = Path(__file__).parents[3]
PACKAGES = ("gateway", "backends", "checkpoints", "training", "deploy")


def test_the_project_s_own_variables_are_known() -> None:
    used = {
        name
        for package in PACKAGES
        for path in (ROOT / package).rglob("*.py")
        for name in re.findall(r'"(CHANGEOVER_[A-Z_]*[A-Z])"', path.read_text(encoding="utf-8"))
    }
    assert used
    assert not used - set(OTHER_VARIABLES)


def test_every_option_can_be_set_by_its_variable() -> None:
    for option in options():
        found, problems = assignments({variable(option.key): "x"})
        assert [len(found), problems] == [1, []], option.key


def test_no_other_variable_is_taken_for_a_setting() -> None:
    assert assignments(dict.fromkeys(OTHER_VARIABLES, "x")) == ([], [])


def test_a_value_is_not_in_the_representation() -> None:
    [found], _ = assignments({"CHANGEOVER_ADMIN__TOKEN": "sesame"})
    assert "sesame" not in repr(found)
