"""Labeled sets are read whatever their kind of file, and what is wrong is refused with its place."""

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from anchor_corpus import source_of

from storage.errors import InputError
from storage.labeled_sets import label_names, numbered_labels, read_rows, training_files


def files_of(tmp_path, **files):
    for name, content in files.items():
        (tmp_path / name.replace("__", ".")).write_bytes(content)
    return source_of("own", tmp_path)


def test_only_what_is_for_training_is_read(tmp_path):
    source = files_of(
        tmp_path, train__jsonl=b"", extra_train__csv=b"", test__jsonl=b"", labels__json=b"[]", README__md=b""
    )
    assert [file.name for file in training_files(source)] == ["extra_train.csv", "train.jsonl"]


def test_without_a_training_file_all_but_the_test_files_are_read(tmp_path):
    source = files_of(tmp_path, reviews__csv=b"", test__csv=b"", valid__csv=b"")
    assert [file.name for file in training_files(source)] == ["reviews.csv"]


def test_a_set_of_test_files_alone_is_refused(tmp_path):
    with pytest.raises(InputError, match=r"acquire.datasets.own: .*no file to learn from: name one train.jsonl"):
        training_files(files_of(tmp_path, test__csv=b""))


def rows_of(tmp_path, **files):
    source = files_of(tmp_path, **files)
    return [(row.row, row.texts, row.label) for row in read_rows(training_files(source), tmp_path)]


def test_every_kind_of_file_is_read(tmp_path):
    pq.write_table(pa.table({"text": ["four"], "label": [0]}), tmp_path / "d.parquet")
    csv = 'label,text\n1,"two, ""quoted""\nlines"\n'.encode("utf-8-sig")
    found = rows_of(
        tmp_path, a__jsonl=b'{"text": "one", "label": 0}\n\n', b__csv=csv, c__tsv=b"text\tlabel\nthree\tgood\n"
    )
    assert found == [
        (1, ("one",), 0),
        (2, ('two, "quoted"\nlines',), "1"),
        (3, ("three",), "good"),
        (4, ("four",), 0),
    ]


@pytest.mark.parametrize(
    ("name", "content", "told"),
    [
        (
            "a.jsonl",
            b'{"text": "x"}',
            "row 1: needs the fields text, label or sentence1, sentence2, label (found: text)",
        ),
        ("a.jsonl", b"[1]", "row 1: not an object with a text and a label"),
        ("a.jsonl", b'{"text": "x", "label": 0}\n{"text"', "line 2: not JSON"),
        ("a.jsonl", b'{"text": " ", "label": 0}', "row 1: text is empty or no text"),
        ("a.jsonl", b'{"text": "x", "label": 0.5}', "row 1: label 0.5 is neither a whole number nor a name"),
        ("a.jsonl", b'{"text": "x", "label": true}', "row 1: label True is neither"),
        ("a.csv", b"text,label\nx\n", "line 2: not as many fields as the header"),
        ("a.csv", b'text,label\n"x" y,1\n', "after line 1: not CSV"),
        ("a.csv", b"text,label\n\xff,1\n", "not UTF-8 (byte 11)"),
        ("a.txt", b"x", "a text file has no labels"),
        ("a.xls", b"x", "unknown kind of file"),
    ],
)
def test_bad_rows_are_refused_with_their_place(tmp_path, name, content, told):
    with pytest.raises(InputError) as error:
        rows_of(tmp_path, **{name.replace(".", "__"): content})
    assert told in str(error.value)
    assert name in str(error.value)


@pytest.mark.parametrize(
    ("values", "names", "numbers"),
    [
        ({0, 1, 2}, None, {0: 0, 1: 1, 2: 2}),
        ({-1, 1}, None, {-1: 0, 1: 1}),
        ({"10", "9"}, None, {"9": 0, "10": 1}),
        ({"spam", "ham"}, None, {"ham": 0, "spam": 1}),
        ({"spam", "ham"}, ["spam", "ham"], {"spam": 0, "ham": 1}),
        ({0, 2}, ["a", "b", "c"], {0: 0, 2: 2}),
    ],
)
def test_labels_are_numbered_in_order(values, names, numbers):
    assert numbered_labels(values, names, "set") == numbers


def test_labels_beside_those_named_are_refused(tmp_path):
    source = files_of(tmp_path, labels__json=b'["bad", "good"]')
    names = label_names(source, tmp_path)
    for values in ({0, 5}, {"good", "fine"}):
        with pytest.raises(InputError, match=r"set: labels .*, but labels.json has 2: bad, good: mend either"):
            numbered_labels(values, names, "set")
    with pytest.raises(InputError, match="not a list of names"):
        label_names(files_of(tmp_path, labels__json=b"{}"), tmp_path)
