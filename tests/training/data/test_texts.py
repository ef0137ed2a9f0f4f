"""Line-based files as people have them."""

from __future__ import annotations

import gzip
from pathlib import Path

import pytest

from training.config.kinds import TextUnit
from training.data.errors import DataError
from training.data.formats import read_records, suffix_of
from training.data.reading import Read


def read(folder: Path, name: str, content: bytes, unit: TextUnit = TextUnit.PARAGRAPH) -> list[Read]:
    path = folder / name
    path.write_bytes(gzip.compress(content) if name.endswith(".gz") else content)
    return list(read_records(path, unit))


def test_json_lines_pass_over_blank_lines_and_name_bad_ones(tmp_path: Path) -> None:
    content = b'\xef\xbb\xbf{"text": "a"}\r\n\n[1]\n{"text": \n{"text": "\xc3\xa9"}'
    for name in ("a.jsonl", "a.jsonl.gz", "b.json"):
        found = read(tmp_path, name, content)
        assert [each.record for each in found] == [{"text": "a"}, None, None, {"text": "é"}]
        assert found[1].place == f"{name} line 3"
        assert "should be an object" in found[1].problem
        assert "is not valid JSON" in found[2].problem


def test_a_json_array_is_read_item_by_item(tmp_path: Path) -> None:
    found = read(tmp_path, "a.json", b' [{"text": "a"}, 3]')
    assert [(each.place, each.record) for each in found] == [
        ("a.json item 0", {"text": "a"}),
        ("a.json item 1", None),
    ]


def test_separated_values_with_quotes_tabs_and_rows_of_wrong_length(tmp_path: Path) -> None:
    found = read(tmp_path, "a.csv", b'text,label\n"a\nb",1\nonly one\n\nc,2\n')
    assert [each.record for each in found] == [
        {"text": "a\nb", "label": "1"},
        None,
        {"text": "c", "label": "2"},
    ]
    assert found[1].problem == "has 1 cells, but there are 2 columns"
    assert read(tmp_path, "a.tsv", b"text\tn\na,b\t1\n")[0].record == {"text": "a,b", "n": "1"}
    assert read(tmp_path, "empty.csv", b"") == []


def test_plain_text_is_lines_paragraphs_or_whole(tmp_path: Path) -> None:
    content = b"one\ntwo\n\n\nthree\n"
    by_unit = {unit: [each.record for each in read(tmp_path, "a.txt", content, unit)] for unit in TextUnit}
    assert by_unit[TextUnit.LINE] == [{"text": "one"}, {"text": "two"}, {"text": "three"}]
    assert by_unit[TextUnit.PARAGRAPH] == [{"text": "one\ntwo"}, {"text": "three"}]
    assert by_unit[TextUnit.FILE] == [{"text": "one\ntwo\n\n\nthree"}]
    assert read(tmp_path, "b.md", content)[1].place == "b.md line 5"


@pytest.mark.parametrize(
    ("name", "content", "said"),
    [
        ("a.jsonl", b'{"text": "\xff"}', "is not UTF-8"),
        ("a.txt", "grün".encode("latin-1"), "is not UTF-8"),
        ("a.csv", b"text,text\na,b\n", "not unique"),
        ("a.csv", b'text\n"a', "is not valid CSV"),
        ("a.json", b'[{"text": ', "is not valid JSON"),
    ],
)
def test_files_that_cannot_be_read_are_named(tmp_path: Path, name: str, content: bytes, said: str) -> None:
    with pytest.raises(DataError, match=said) as caught:
        read(tmp_path, name, content)
    assert name in str(caught.value)


def test_a_file_that_is_not_what_it_is_called_is_named(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl.gz"
    path.write_bytes(b"no gzip")
    with pytest.raises(DataError, match="cannot be read"):
        list(read_records(path, TextUnit.LINE))


def test_formats_are_known_by_name() -> None:
    assert suffix_of("A.JSONL") == ".jsonl"
    assert suffix_of("a.csv.gz") == ".csv"
    assert suffix_of("a.parquet.gz") is None
    assert suffix_of("weights.bin") is None
