"""One of each mistake that a file can hold, with the line and the words that its author gets."""

from __future__ import annotations

import pytest

from gateway.settings.tree import Settings
from tests.gateway.settings.conftest import Refused
from tests.gateway.settings.mistakes import MISTAKES


@pytest.mark.parametrize("text, message", MISTAKES.values(), ids=MISTAKES.keys())
def test_a_mistake_is_named_with_file_line_and_remedy(refused: Refused, text: str, message: str) -> None:
    [problem] = refused(text)
    assert str(problem) == message


def test_all_mistakes_are_told_at_once_in_the_order_of_the_file(refused: Refused) -> None:
    problems = refused(
        """\
server: {port: x, prot: 1}
cache: {type: Redos}
timeouts: {heartbeat_s: 90, silence_s: 30, connect_s: soon}
models: [{name: a, engine: {}}, {name: a, engine: {replicas: -1}}]
endpoints: [http://a:1]
run_dir: ${NO_SUCH}
server: {}
""",
        {"CHANGEOVER_SERVER__WRKERS": "1", "CHANGEOVER_LIMITS__MAX_QUEUED": "-1"},
        {"routing.polcy": "prefix", "health.stall_s": "0"},
    )
    assert [(problem.line, problem.key or problem.origin.name) for problem in problems] == [
        (1, "server.port"),
        (1, "server.prot"),
        (2, "cache.type"),
        (3, "timeouts.connect_s"),
        (3, "timeouts.heartbeat_s"),
        (4, "models.1.engine.replicas"),
        (4, "models"),
        (4, "models.1.name"),
        (6, "run_dir"),
        (7, "server"),
        (None, "CHANGEOVER_SERVER__WRKERS"),
        (None, "limits.max_queued"),
        (None, "routing.polcy"),
        (None, "health.stall_s"),
    ]


def test_no_contradiction_is_invented_with_the_default_of_a_faulty_value(refused: Refused) -> None:
    [problem] = refused("timeouts: {heartbeat_s: 90, silence_s: an hour}\n")
    assert problem.key == "timeouts.silence_s"


def test_a_default_contradicts_nobody() -> None:
    assert Settings.model_validate({"timeouts": {"silence_s": 1}}).timeouts.heartbeat_s == 15


@pytest.mark.parametrize(
    "name, suggestion",
    [
        ("CHANGEOVER_SERVER_PORT", "did you mean CHANGEOVER_SERVER__PORT?"),
        ("CHANGEOVER_SERVER__PROT", "did you mean CHANGEOVER_SERVER__PORT?"),
        ("CHANGEOVER_PORT", "did you mean CHANGEOVER_SERVER__PORT?"),
        ("CHANGEOVER_LOG_LEVEL", "did you mean CHANGEOVER_LOGGING__LEVEL?"),
        ("CHANGEOVER_ENGINES__REPLICAS", "did you mean CHANGEOVER_ENGINE__REPLICAS?"),
        ("CHANGEOVER_XYZ__ABC", None),
    ],
)
def test_a_variable_that_was_meant_as_a_setting_is_refused(
    refused: Refused, name: str, suggestion: str | None
) -> None:
    [problem] = refused("", {name: "8001"})
    assert str(problem).startswith(
        f"environment {name}: is no setting; {suggestion or 'settings begin with'}"
    )


def test_a_flag_that_is_no_setting_is_refused_with_the_nearest(refused: Refused) -> None:
    assert [str(problem) for problem in refused("", {}, {"server.prt": "1", "x": "1"})] == [
        "flag --set server.prt: is no setting; did you mean server.port?",
        "flag --set x: is no setting; `changeover check` shows all",
    ]


def test_a_list_from_the_environment_that_is_no_yaml_is_refused(refused: Refused) -> None:
    [problem] = refused("", {"CHANGEOVER_ENDPOINTS": "[http://a:1"})
    assert str(problem).startswith("environment CHANGEOVER_ENDPOINTS: endpoints: is not valid YAML: ")


def test_a_place_behind_the_end_of_a_list_is_refused(refused: Refused) -> None:
    [problem] = refused("", {}, {"models.3.name": "a"})
    assert problem.what == "cannot be set: there is no such place in what stands above it"


@pytest.mark.parametrize("bad", [b"server: {host: \xff}\n", b"\xff\xfea"])
def test_an_encoding_that_is_not_understood_is_named(refused: Refused, bad: bytes) -> None:
    [problem] = refused(bad)
    assert "save the file as UTF-8" in problem.what


def test_a_huge_file_is_refused_before_it_is_read_as_yaml(refused: Refused) -> None:
    [problem] = refused(b"#" * (1024 * 1024 + 1))
    assert problem.what == "is larger than 1024 KiB; is it the right file?"


def test_aliases_that_multiply_are_refused(refused: Refused) -> None:
    lines = ["a0: &a0 [x, x, x, x, x, x, x, x, x]"]
    lines += [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 9)}]" for n in range(1, 9)]
    problems = refused("\n".join(lines))
    assert sum("holds more than a configuration does" in problem.what for problem in problems) == 1


def test_brackets_nested_a_thousand_deep_are_refused(refused: Refused) -> None:
    [problem] = refused("server: " + "[" * 1000 + "]" * 1000)
    assert problem.what == "is nested too deeply"
