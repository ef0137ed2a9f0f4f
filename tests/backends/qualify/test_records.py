"""Records in the store: the newest of exactly this combination counts, and only if it is whole."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from backends.qualify.combination import Combination
from backends.qualify.judge import Verdict
from backends.qualify.record import SCHEMA, Record, RecordInvalid, decode, encode, seal
from backends.qualify.records import FOLDER, KEPT, every, find, keep, why_none
from checkpoints.store.local import LocalFiles

HERE = Combination(
    architecture="LlamaForCausalLM",
    config="c0",
    tensors="t0",
    engine="vllm 0.32.0",
    device="cpu x86_64",
    dtype="auto bfloat16",
    quantization="none",
    tensor_parallel=1,
    compiled=False,
    multiprocessing=False,
    options="",
)


def record(
    combination: Combination = HERE, *, verdict: Verdict = Verdict.QUALIFIED, second: int = 0
) -> Record:
    return Record(
        schema=SCHEMA,
        combination=combination,
        verdict=verdict,
        reason="equal",
        checks=(),
        moved=None,
        floor=None,
        reload_s=0.1,
        seconds=60.0,
        at=f"2026-11-30T12:00:{second:02}.000000+00:00",
        by="somebody@somewhere",
    )


@pytest.fixture
def files(tmp_path: Path) -> LocalFiles:
    return LocalFiles(tmp_path)


def test_a_record_is_found_by_its_combination(files: LocalFiles) -> None:
    kept = keep(files, record())

    assert find(files, HERE) == kept
    assert list(every(files)) == [kept]


@pytest.mark.parametrize(
    "change",
    [{"engine": "vllm 0.33.0"}, {"config": "c1"}, {"tensor_parallel": 2}, {"multiprocessing": True}],
    ids=["build", "config", "tensor parallel", "process mode"],
)
def test_a_record_of_another_build_or_configuration_is_not_used(
    files: LocalFiles, change: dict[str, object]
) -> None:
    keep(files, record())
    other = msgspec.structs.replace(HERE, **change)

    assert find(files, other) is None
    assert why_none(files, other).startswith("the nearest record is of ")
    assert next(iter(change)) in why_none(files, other)


def test_without_any_record_it_says_so(files: LocalFiles) -> None:
    assert find(files, HERE) is None
    assert why_none(files, HERE) == "nothing was qualified yet"


def test_the_newest_record_counts_and_old_ones_go(files: LocalFiles) -> None:
    for second in range(KEPT + 3):
        keep(files, record(second=second))
    keep(files, record(verdict=Verdict.WRONG, second=59))

    found = find(files, HERE)

    assert found is not None
    assert not found.qualified
    assert len(files.names(f"{FOLDER}/{HERE.key}")) == KEPT


def test_a_record_that_was_altered_or_cut_short_counts_as_none(files: LocalFiles) -> None:
    wrong = encode(seal(record(verdict=Verdict.WRONG)))
    for name, raw in (("1.json", wrong.replace(b'"wrong"', b'"qualified"')), ("2.json", wrong[:-40])):
        files.create(f"{FOLDER}/{HERE.key}/{name}", raw)
        with pytest.raises(RecordInvalid):
            decode(raw)

    assert find(files, HERE) is None


def test_a_record_that_lies_under_another_combinations_key_is_not_used(files: LocalFiles) -> None:
    other = msgspec.structs.replace(HERE, tensor_parallel=2)
    files.create(f"{FOLDER}/{HERE.key}/1.json", encode(seal(record(other))))

    assert find(files, HERE) is None
