"""What people are told about an engine that ended."""

from __future__ import annotations

import pytest

from backends.vllm.reasons import explain_exit, phase

TRACE = [
    "(EngineCore pid=7) ERROR 11-30 12:46:17 [core.py:1510] EngineCore failed to start.",
    "Traceback (most recent call last):",
    '  File "/x/core.py", line 1, in run',
]


def test_an_engine_killed_from_outside_is_not_blamed_on_its_log() -> None:
    end = explain_exit(137, [])

    assert end.reason == "it was killed (SIGKILL): out of memory, or someone did it"
    assert not end.permanent


def test_an_engine_that_runs_out_of_memory_says_what_to_make_smaller() -> None:
    end = explain_exit(1, [*TRACE, "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2 GiB."])

    assert end.reason.startswith("out of memory: use a smaller model")
    assert "    | torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2 GiB." in end.reason


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("huggingface_hub.errors.RepositoryNotFoundError: 404", "the model was not found"),
        ("vllm serve: error: unrecognized arguments: --nonsense", "check engine.extra_args"),
        ("ModuleNotFoundError: No module named 'backends'", "make setup-engine"),
        ("ValueError: 9 heads must be divisible by tensor parallel size (2).", "tensor_parallel_size"),
    ],
)
def test_what_another_start_would_not_mend_is_permanent(line: str, words: str) -> None:
    end = explain_exit(1, [*TRACE, line])

    assert words in end.reason
    assert end.permanent


def test_an_unknown_end_quotes_the_engines_last_errors_without_its_prefixes() -> None:
    lines = [*TRACE, "(EngineCore pid=7) ERROR 11-30 12:46:17 [core.py:1510] RuntimeError: it broke"]

    assert explain_exit(1, lines).reason == "it ended with exit code 1\n    | RuntimeError: it broke"


def test_a_signal_is_named() -> None:
    assert explain_exit(128 + 11, []).reason == "it was ended by signal 11"


def test_lines_of_a_start_are_told_in_words() -> None:
    assert (
        phase("(EngineCore pid=1) INFO [cpu_model_runner.py:68] Starting to load model /m...")
        == "loading weights"
    )
    assert phase("Enforce eager set, disabling torch.compile") is None
