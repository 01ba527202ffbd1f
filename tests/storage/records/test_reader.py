"""One reader for every format: the same records, with file, row and offset, whatever they are kept in."""

import gzip
from contextlib import nullcontext
from io import BytesIO

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from storage.errors import InputError
from storage.records.parts import Part
from storage.records.reader import Expected, WholeText, reader_of, reader_of_lines

RECORDS = [{"id": "1", "text": "one"}, {"id": "2", "text": "two\nlines"}, {"id": "3", "text": "ünï"}]
JSON = '{"id":"1","text":"one"}\n\n{"id":"2","text":"two\\nlines"}\n{"id":"3","text":"ünï"}'.encode()
CSV = '\ufeffid,text\n1,one\n\n2,"two\nlines"\n3,ünï\n'.encode()
FILES = {
    "a.jsonl": JSON,
    "a.jsonl.gz": gzip.compress(JSON),
    "a.csv": CSV,
    "a.csv.zst": pa.compress(CSV, "zstd", asbytes=True),
    "a.tsv": CSV.replace(b",", b"\t"),
}


def read(folder, name, content, expected=Expected(), **options):  # noqa: B008  (frozen)
    (folder / name).write_bytes(content)
    return list(reader_of(Part(folder / name, name), expected, **options))


@pytest.mark.parametrize("name", FILES)
def test_records_are_the_same_in_every_format_and_lie_where_they_say(tmp_path, name):
    records = read(tmp_path, name, FILES[name])
    assert [record.values for record in records] == RECORDS
    assert {record.file for record in records} == {name}
    content = JSON if "jsonl" in name else FILES["a.tsv"] if "tsv" in name else CSV
    for record, identity in zip(records, "123", strict=True):
        piece = content[record.offset : record.offset + record.size]
        assert identity.encode() in piece[:8]
        assert piece.endswith((b"\n", b"}"))


def test_lines_are_counted_with_the_blank_ones_and_rows_without(tmp_path):
    assert [record.row for record in read(tmp_path, "a.jsonl", JSON)] == [1, 3, 4]
    assert [record.row for record in read(tmp_path, "a.csv", CSV)] == [1, 2, 3]


def test_parquet_has_rows_and_no_offsets(tmp_path):
    pq.write_table(pa.Table.from_pylist(RECORDS), tmp_path / "a.parquet")
    records = list(reader_of(Part(tmp_path / "a.parquet", "a.parquet")))
    assert [(record.values, record.row, record.offset) for record in records] == [
        (values, row, None) for row, values in enumerate(RECORDS, start=1)
    ]


def test_rows_of_parquet_before_one_that_is_not_utf8_are_read(tmp_path):
    column = pa.array([b"good", b"fine", b"bad \xff"], pa.binary()).view(pa.string())
    pq.write_table(pa.table({"text": column}), tmp_path / "a.parquet")
    records = iter(reader_of(Part(tmp_path / "a.parquet", "a.parquet")))
    assert [next(records).values["text"] for _ in range(2)] == ["good", "fine"]
    with pytest.raises(InputError, match=r"a\.parquet: row 3: not UTF-8 \(byte 4 is 0xff\)"):
        next(records)


def test_a_text_file_is_lines_or_one_text(tmp_path):
    content = "\ufeffone\r\n\ntwo".encode()
    lines = read(tmp_path, "a.txt", content)
    assert [(record.values, record.row, record.offset) for record in lines] == [
        ({"text": "one"}, 1, 0),
        ({"text": ""}, 2, 8),
        ({"text": "two"}, 3, 9),
    ]
    (whole,) = read(tmp_path, "a.txt", content, text_as=WholeText)
    assert whole.values == {"text": "one\r\n\ntwo"}


@pytest.mark.parametrize("name", ["a.jsonl", "a.csv", "a.tsv", "a.txt"])
@pytest.mark.parametrize("content", [b"", b"\xef\xbb\xbf"], ids=["nothing", "a mark"])
def test_an_empty_file_has_no_records(tmp_path, name, content):
    records = read(tmp_path, name, content)
    assert [record.values for record in records] == ([{"text": ""}] if name == "a.txt" and content else [])


def test_a_field_of_csv_may_be_a_whole_book(tmp_path):
    book = "many words " * 100_000
    (record,) = read(tmp_path, "a.csv", f"text\n{book}\n".encode())
    assert record.values == {"text": book}


def test_lines_and_rows_may_be_bounded(tmp_path):
    with pytest.raises(InputError, match=r"a\.jsonl: line 2: longer than 20 bytes: cut or remove it"):
        read(tmp_path, "a.jsonl", b'{"text": "a"}\n{"text": "' + b"b" * 20, Expected(longest_line=20))
    with pytest.raises(InputError, match=r"a\.csv: row 2 \(line 3\): longer than 20 bytes: correct the row's quotes"):
        read(tmp_path, "a.csv", b'text\na\n"' + b"b\n" * 20, Expected(longest_row=20))


@pytest.mark.parametrize(
    ("name", "place"), [("a.jsonl", "line 1: no field"), ("a.csv", "line 1: no column"), ("a.parquet", "no column")]
)
def test_columns_that_are_expected_must_be_there(tmp_path, name, place):
    path = tmp_path / name
    if name == "a.parquet":
        pq.write_table(pa.Table.from_pylist(RECORDS), path)
    else:
        path.write_bytes(FILES[name])
    with pytest.raises(InputError) as refused:
        list(reader_of(Part(path, name), Expected(("text", "label"), advice="add it")))
    assert str(refused.value) == f"{path}: {place} 'label' (found: id, text): add it"


def test_how_much_of_a_file_was_read_is_told(tmp_path):
    told = []
    read(tmp_path, "a.jsonl.gz", FILES["a.jsonl.gz"], counted=told.append)
    assert told[-1] == len(FILES["a.jsonl.gz"])


def test_a_stream_of_which_a_line_was_read_is_read_from_its_beginning():
    stream = BytesIO(CSV)
    first = stream.readline()
    reader = reader_of_lines(nullcontext(stream), "standard input", "csv", first=first)
    places = []
    for record, values in zip(reader, RECORDS, strict=True):
        assert record.values == values
        places.append(reader.place(record.row).removeprefix("standard input: "))
    assert places == ["row 1 (line 2)", "row 2 (line 4)", "row 3 (line 6)"]
