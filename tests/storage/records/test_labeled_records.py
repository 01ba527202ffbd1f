"""Rows of labeled files: every kind, whatever length and encoding, each refusal with its line."""

import gzip

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from storage.errors import InputError
from storage.records.labeled_records import LONGEST, records
from support.labeled_folders import write_named_parquet

RATED = 'id\tsentiment\ttext\r\n1\t2.5\t"Great, it\'s "fine\r\n\r\n1_2\t-0.4\tshort " one\r\n'


def read(path, content):
    path.write_bytes(content)
    return [values for _, values in records(path, path.name)]


def test_a_row_has_the_number_of_its_line_or_in_a_table_of_its_row(tmp_path):
    for name, content, numbers in (
        ("a.jsonl", b'\n{"a": 1}\n\n{"a": 2}\n', [2, 4]),
        ("a.csv", b"a\n\n1\n\n2\n", [1, 2]),
        ("a.txt", RATED.encode(), [2, 4]),
        ("b.txt", b"NUM:date When ?\nHUM:ind Who ?\nNUM:date When ?\n", [2, 3]),
    ):
        (tmp_path / name).write_bytes(content)
        assert [row for row, _ in records(tmp_path / name, name)] == numbers, name


def test_rated_lines_are_read_with_their_quotes_as_they_are(tmp_path):
    wanted = [
        {"id": "1", "sentiment": "2.5", "text": '"Great, it\'s "fine'},
        {"id": "1_2", "sentiment": "-0.4", "text": 'short " one'},
    ]
    assert read(tmp_path / "a.txt", RATED.encode()) == wanted
    without_header = RATED.split("\r\n", 1)[1]
    assert read(tmp_path / "b.txt", without_header.encode("utf-8-sig")) == wanted


def test_text_without_tabs_is_no_labeled_file(tmp_path):
    with pytest.raises(InputError, match=r"a.txt: a text file has no labels: convert it"):
        read(tmp_path / "a.txt", b"just some words\n")
    with pytest.raises(InputError, match=r"a.txt: line 2: 2 fields where 3 belong \(id, sentiment, text\)"):
        read(tmp_path / "a.txt", b"1\t2.5\tgood\n2\t2.5\n")


def test_a_compressed_file_is_read_and_a_damaged_one_refused(tmp_path):
    whole = gzip.compress(b'{"a": 1}\n' * 1000)
    assert len(read(tmp_path / "a.jsonl.gz", whole)) == 1000
    with pytest.raises(InputError, match=r"a.jsonl.gz: damaged or cut short"):
        read(tmp_path / "a.jsonl.gz", whole[:-20])


def test_a_line_of_ten_megabytes_is_refused_with_its_number(tmp_path):
    long = b"x" * 10_000_000
    for name, content in (
        ("a.jsonl", b'{"text": "short", "label": 0}\n{"text": "' + long + b'", "label": 1}\n'),
        ("a.csv", b"text,label\n" + long + b",1\n"),
        ("a.txt", b"1\t2\tshort\n2\t2\t" + long),
    ):
        with pytest.raises(InputError) as error:
            read(tmp_path / name, content)
        assert f"{name}: line 2: longer than {LONGEST:,} bytes: cut or remove it" in str(error.value)
        assert len(str(error.value)) < 300


def test_numbers_that_parquet_says_the_names_of_become_names(tmp_path):
    rows = [{"text": "one", "label": 1}, {"text": "two", "label": 0}, {"text": "three", "label": -1}]
    write_named_parquet(tmp_path / "a.parquet", rows, ["bad", "good"])
    assert [row["label"] for _, row in records(tmp_path / "a.parquet", "a.parquet")] == ["good", "bad", -1]


@pytest.mark.parametrize("metadata", [{}, {"huggingface": "{"}, {"huggingface": "[]"}, {"huggingface": '{"info": 3}'}])
def test_other_metadata_changes_nothing(tmp_path, metadata):
    pq.write_table(pa.table({"label": [1]}).replace_schema_metadata(metadata), tmp_path / "a.parquet")
    assert list(records(tmp_path / "a.parquet", "a.parquet")) == [(1, {"label": 1})]


def test_a_file_that_is_not_there_is_refused(tmp_path):
    with pytest.raises(InputError, match=r"gone.jsonl: cannot be read"):
        list(records(tmp_path / "gone.jsonl", "gone.jsonl"))
