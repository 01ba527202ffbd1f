"""Texts to label come row by row from every kind of file; what is wrong is told with file and row."""

import gzip
import io
import json

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from storage.errors import InputError
from storage.records import unlabeled_texts
from storage.records.unlabeled_texts import Fields, read_file, read_stream

RECORDS = [{"text": "a café", "id": 1}, {"text": "two\nlines, and more", "id": 2}, {"text": ' "quoted" ', "id": 3}]
TEXT = Fields(("text",))


def ignore(_done):
    pass


def texts(rows):
    return [row.texts[0] for row in rows]


def csv_of(records, delimiter=","):
    quoted = [f"{one['id']}{delimiter}" + '"' + one["text"].replace('"', '""') + '"' for one in records]
    return "\r\n".join([f"id{delimiter}text", *quoted]) + "\r\n"


def json_lines(records):
    return "".join(json.dumps(one) + "\n" for one in records)


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("new.jsonl", json_lines(RECORDS).encode()),
        ("new.json", b"\xef\xbb\xbf" + json_lines(RECORDS).replace("\n", "\n\n").encode()),
        ("new.jsonl.gz", gzip.compress(json_lines(RECORDS).encode())),
        ("new.csv", csv_of(RECORDS).encode()),
        ("new.csv", b"\xef\xbb\xbf" + csv_of(RECORDS).encode()),
        ("new.tsv", csv_of(RECORDS, "\t").encode()),
    ],
    ids=["json lines", "json", "gz", "csv", "csv with a mark", "tsv"],  # bytes would be names that change with the time
)
def test_a_file_is_read_by_its_name(tmp_path, name, content):
    (tmp_path / name).write_bytes(content)
    rows = list(read_file(tmp_path / name, Fields(("text",), ("id",)), None, ignore))
    assert texts(rows) == [one["text"] for one in RECORDS]
    assert [str(row.record["id"]) for row in rows] == ["1", "2", "3"]


def test_parquet_is_read(tmp_path):
    pq.write_table(pa.Table.from_pylist(RECORDS * 50), tmp_path / "new.parquet")
    rows = list(read_file(tmp_path / "new.parquet", TEXT, None, ignore))
    assert [row.record for row in rows] == RECORDS * 50


def test_plain_lines_are_texts(tmp_path):
    (tmp_path / "new.txt").write_bytes(b'first\r\n{"second": 2}\nthird')
    assert texts(read_file(tmp_path / "new.txt", TEXT, None, ignore)) == ["first", '{"second": 2}', "third"]


def test_the_format_may_be_said(tmp_path):
    (tmp_path / "new.data").write_text(csv_of(RECORDS))
    assert len(list(read_file(tmp_path / "new.data", TEXT, "csv", ignore))) == 3
    (tmp_path / "new.data.gz").write_bytes(gzip.compress(csv_of(RECORDS).encode()))
    assert len(list(read_file(tmp_path / "new.data.gz", TEXT, "csv", ignore))) == 3
    with pytest.raises(InputError, match=r"new\.data: unknown kind of file"):
        list(read_file(tmp_path / "new.data", TEXT, None, ignore))


def test_how_far_it_is_is_told_in_bytes_of_the_file(tmp_path):
    path = tmp_path / "new.jsonl.gz"
    path.write_bytes(gzip.compress(json_lines(RECORDS).encode()))
    told = []
    list(read_file(path, TEXT, None, told.append))
    assert told[-1] == path.stat().st_size
    assert told == sorted(told)


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        (b' {"text": "a"}\n{"text": "b"}\n', ["a", "b"]),
        (b"a\nb", ["a", "b"]),
        (b'"a"\nb\n', ['"a"', "b"]),
        (b"", []),
    ],
)
def test_the_first_line_of_a_stream_says_whether_it_is_json(content, expected):
    assert texts(read_stream(io.BytesIO(content), "standard input", TEXT, None)) == expected


class Endless(io.RawIOBase):
    """A stream that never ends and remembers how much of it was read."""

    def __init__(self, line):
        self.line, self.read_bytes = line, 0

    def readable(self):
        return True

    def readinto(self, buffer):
        taken = bytes(self.line[(self.read_bytes + place) % len(self.line)] for place in range(min(len(buffer), 512)))
        buffer[: len(taken)] = taken
        self.read_bytes += len(taken)
        return len(taken)


@pytest.mark.parametrize("form", ["jsonl", "csv", "text"])
def test_no_more_is_read_than_was_asked_for(form):
    endless = Endless({"jsonl": b'{"text": "a"}\n', "csv": b"text\n", "text": b"text\n"}[form])
    rows = read_stream(io.BufferedReader(endless, 512), "standard input", TEXT, form)
    assert [next(rows).texts[0] for _ in range(3)]
    assert endless.read_bytes <= 1024


@pytest.mark.parametrize(
    ("form", "content", "message"),
    [
        ("jsonl", b'{"text": "a"}\n\n{"body": "b"}\n', r"new: line 3: no field 'text' \(found: body\)"),
        ("jsonl", b'{"text": "a"}\n{"text": ""}\n', "new: line 2: text is empty or not a string"),
        ("jsonl", b'{"text": "a"}\n{"text": " \\n"}\n', "new: line 2: text is empty or not a string"),
        ("jsonl", b'{"text": "a"}\n{"text": 3}\n', "new: line 2: text is empty or not a string"),
        ("jsonl", b'{"text": "a"}\n{"text": null}\n', "new: line 2: text is empty or not a string"),
        ("jsonl", b'{"text": "a"}\n["b"]\n', "new: line 2: a list where an object was expected"),
        ("jsonl", b'{"text": "a"}\n{"text": \n', "new: line 2: not JSON"),
        ("jsonl", b'{"text": "a"}\n{"text": "\xff"}\n', r"new: line 2: not UTF-8 \(byte 10 is 0xff\)"),
        ("csv", b"text,id\na,1\nb\n", r"new: row 2 \(line 3\): 1 field where the header has 2"),
        ("csv", b"body,id\na,1\n", r"new: line 1: no column 'text' \(found: body, id\)"),
        ("csv", b'text\na\n"b\n', r"new: row 2 \(line 3\): not CSV"),
        ("csv", b"text,id\na,1\n,2\n", r"new: row 2 \(line 3\): text is empty"),
        ("csv", b"text\na\n\xe9\n", "new: line 3: not UTF-8"),
        ("text", b"a\n\nb\n", "new: line 2: text is empty"),
        ("text", b"a\n\xe9\n", "new: line 2: not UTF-8"),
        ("text", b"a\n" + b"b" * 200, "new: line 2: longer than"),
        ("csv", b'text\na\n"' + b"b\n" * 100, r"new: row 2 \(line 3\): longer than 100 bytes"),
    ],
)
def test_what_is_wrong_is_told_with_its_row_after_the_rows_before_it(monkeypatch, form, content, message):
    monkeypatch.setattr(unlabeled_texts, "LONGEST", 100)
    found = []
    with pytest.raises(InputError, match=message) as refused:
        found += [row.texts for row in read_stream(io.BytesIO(content), "new", TEXT, form)]
    assert "\n" not in str(refused.value)
    rows = read_stream(io.BytesIO(content), "new", TEXT, form)
    if "line 1: " not in str(refused.value):
        assert next(rows).texts == ("a",)


def test_a_field_that_is_asked_for_must_be_there():
    with pytest.raises(InputError, match="line 1: no field 'id'"):
        list(read_stream(io.BytesIO(b'{"text": "a"}\n'), "new", Fields(("text",), ("id",)), None))


@pytest.mark.parametrize("fields", [Fields(("sentence1", "sentence2")), Fields(("text",), ("id",))])
def test_plain_lines_hold_one_text_and_nothing_else(fields):
    with pytest.raises(InputError, match="plain lines hold one text"):
        list(read_stream(io.BytesIO(b"a\n"), "new", fields, "text"))


def test_a_damaged_file_is_named(tmp_path):
    (tmp_path / "new.jsonl.gz").write_bytes(gzip.compress(json_lines(RECORDS).encode())[:-20])
    (tmp_path / "new.parquet").write_bytes(b"PAR1 and nothing")
    for name in ("new.jsonl.gz", "new.parquet", "none.jsonl"):
        with pytest.raises(InputError, match=name):
            list(read_file(tmp_path / name, TEXT, None, ignore))
