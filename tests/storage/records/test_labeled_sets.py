"""Datasets are read whatever their kind of file, and what is wrong is refused with its place."""

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from storage.errors import InputError
from storage.records.labeled_sets import (
    Columns,
    are_unlabeled,
    is_tested,
    label_names,
    numbered_labels,
    place_of,
    read_rows,
    rows_for_testing,
    split_files,
    training_files,
)
from storage.sources.source import AcquiredSource, SourceFile
from support.anchor_corpus import source_of


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


@pytest.mark.parametrize(
    ("names", "used"),
    [
        (["default/train/0000.parquet", "default/test/0000.parquet"], ["default/train/0000.parquet"]),
        (["my_test.csv", "eval.jsonl", "train-test-split.txt", "reviews.csv"], ["reviews.csv"]),
        (["constrained.jsonl", "other.jsonl"], ["constrained.jsonl", "other.jsonl"]),
        (["data/train-00000-of-00002.parquet", "data/dev2.csv", "extra.csv"], ["data/train-00000-of-00002.parquet"]),
        (["Training/a.csv", "VAL/a.csv", "contest.csv"], ["Training/a.csv"]),
        (["latest.csv", "devices.csv"], ["devices.csv", "latest.csv"]),
    ],
)
def test_what_a_file_is_for_are_whole_words_of_its_path(names, used):
    files = tuple(SourceFile(name, f"data/{name}", 0, "") for name in names)
    source = AcquiredSource("own", "path:own", "", "data", files)
    assert [file.name for file in training_files(source)] == used


def test_the_file_and_row_of_an_example_are_found_again(tmp_path):
    row = b'{"text": "one", "label": 0}\n'
    files = training_files(files_of(tmp_path, a__jsonl=row * 3, b__jsonl=b"\n" + row * 2))
    found = [place_of(files, tmp_path, number) for number in (1, 3, 5, 6)]
    assert [(file.name, row) for file, row in filter(None, found)] == [
        ("a.jsonl", 1),
        ("a.jsonl", 3),
        ("b.jsonl", 2),  # its first line is blank
        ("b.jsonl", 3),
    ]
    assert [row.row for row in read_rows(files, tmp_path)] == [1, 2, 3, 5, 6]
    assert [place_of(files, tmp_path, number) for number in (0, 4, 7)] == [None] * 3


def test_half_of_a_set_without_test_files_is_tested_whatever_the_order_of_its_rows(tmp_path):
    rows = [f'{{"text": "text {number}", "label": 0}}\n'.encode() for number in range(200)]
    wanted = [number + 1 for number in range(200) if is_tested([f"text {number}"])]
    assert 80 < len(wanted) < 120
    files = {"a__jsonl": b"".join(rows[:50]), "b__jsonl": b"".join(rows[50:])}
    assert rows_for_testing(files_of(tmp_path, **files), tmp_path, Columns()) == wanted
    files = {"a__jsonl": b"".join(rows[::-1]), "b__jsonl": b""}
    assert rows_for_testing(files_of(tmp_path, **files), tmp_path, Columns()) == [
        201 - number for number in wanted[::-1]
    ]
    assert rows_for_testing(files_of(tmp_path, **files, dev__jsonl=rows[0]), tmp_path, Columns()) == []


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
        ("a.jsonl", b"[1]", "line 1: a list where an object was expected: write one JSON object per line"),
        ("a.jsonl", b'{"text": "x", "label": 0}\n{"text"', "line 2: not JSON"),
        ("a.jsonl", b'{"text": " ", "label": 0}', "row 1: text is empty or not a string"),
        ("a.jsonl", b'{"text": "x", "label": 0.5}', "row 1: label 0.5 is neither a whole number nor a name"),
        ("a.jsonl", b'{"text": "x", "label": null}', "row 1: label None is neither"),
        ("a.jsonl", b'{"text": "x", "label": " "}', "row 1: label ' ' is neither"),
        ("a.jsonl", b'{"text": "x", "label": [1]}', "row 1: label [1] is neither"),
        ("a.csv", b"text,label\nx\n", "row 1 (line 2): 1 field where the header has 2"),
        ("a.csv", b"text;label\nx;1\n", "(found: text;label): rename them; ';' seems to separate its columns: save it"),
        (
            "a.csv",
            b"text;label\nx, y;1\n",
            "2 fields where the header has 1: correct the row's quotes or delimiters; ';'",
        ),
        ("a.csv", b"text\tlabel\nx\t1\n", "; a tab seems to separate its columns: save it with commas, or with tabs"),
        ("a.csv", b"text,text,label\nx,y,1\n", "line 1: the column 'text' occurs twice: rename one of the two"),
        ("a.csv", b'text,label\n"x" y,1\n', "row 1 (line 2): not CSV"),
        ("a.csv", b"text,label\n\xff,1\n", "line 2: not UTF-8 (byte 0 is 0xff)"),
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
        ({"--5", "7"}, None, {"--5": 0, "7": 1}),  # no number
        ({"9" * 5000, "7"}, None, {"7": 0, "9" * 5000: 1}),  # nor one that Python would read
        ({"spam", "ham"}, ["spam", "ham"], {"spam": 0, "ham": 1}),
        ({0, 2}, ["a", "b", "c"], {0: 0, 2: 2}),
        ({1, 2, 5}, ["1", "2", "3", "4", "5"], {1: 0, 2: 1, 5: 4}),
        ({"1", "5"}, ["1", "2", "3", "4", "5"], {"1": 0, "5": 4}),
        ({0, 4}, ["1", "2", "3", "4", "5"], {0: 0, 4: 4}),
    ],
)
def test_labels_are_numbered_in_order(values, names, numbers):
    assert numbered_labels(values, names, "set") == numbers


def test_labels_beside_those_named_are_refused(tmp_path):
    source = files_of(tmp_path, labels__json=b'["bad", "good"]')
    names = label_names(source, tmp_path)
    for values in ({0, 5}, {"good", "fine"}):
        with pytest.raises(InputError, match=r"set: labels .*, but labels.json has 2: bad, good: correct either"):
            numbered_labels(values, names, "set")
    with pytest.raises(InputError, match="not a list of names"):
        label_names(files_of(tmp_path, labels__json=b"{}"), tmp_path)


def test_files_are_told_apart_by_what_they_are_for():
    names = ["data/validation-00000-of-00001.parquet", "data/train-00000-of-00001.parquet", "data/test-0.parquet"]
    files = tuple(SourceFile(name, f"data/{name}", 0, "") for name in (*names, "README.md", "data/more.parquet"))
    found = split_files(AcquiredSource("own", "hf:own", "", "data", files))
    assert [[file.name for file in some] for some in (found.train, found.validation, found.test)] == [
        [names[1]],
        [names[0]],
        [names[2]],
    ]


def test_originals_beside_readable_files_are_passed_over():
    names = ["train_5500.label", "question_types.txt", "train.jsonl", "test.jsonl", "TREC_10.label"]
    files = tuple(SourceFile(name, name, 0, "") for name in names)
    found = split_files(AcquiredSource("trec", "hf:trec", "", "", files))
    assert [file.name for file in (*found.train, *found.test)] == ["train.jsonl", "test.jsonl"]


@pytest.mark.parametrize("label", ["-1", "null", '""'])
def test_files_without_a_label_in_any_row_are_known(tmp_path, label):
    bare = f'{{"text": "one", "label": {label}}}\n'.encode()
    source = files_of(tmp_path, a__jsonl=bare * 3, b__jsonl=bare + b'{"text": "two", "label": 0}\n')
    assert are_unlabeled(source.files[:1], tmp_path)
    assert not are_unlabeled(source.files, tmp_path)


def test_labels_may_be_true_or_whole_numbers_with_a_point(tmp_path):
    rows = b'{"text": "one", "label": true}\n{"text": "two", "label": 4.0}\n'
    assert [label for _, _, label in rows_of(tmp_path, a__jsonl=rows)] == ["true", 4]


def test_a_rating_must_be_a_number(tmp_path):
    columns = Columns(labels=("stars",), ratings=("stars",))
    source = files_of(tmp_path, a__jsonl=b'{"text": "one", "stars": -2.5}\n{"text": "two", "stars": "NaN"}\n')
    rows = read_rows(source.files, tmp_path, columns)
    assert next(rows).label == "-2.5"
    with pytest.raises(InputError, match=r"a.jsonl: row 2: rating 'NaN' is not a number"):
        next(rows)


def test_a_text_that_is_a_book_is_refused_in_parquet_too(tmp_path):
    pq.write_table(pa.table({"text": ["x", "x" * 1_000_001], "label": [0, 1]}), tmp_path / "a.parquet")
    with pytest.raises(InputError, match=r"a.parquet: row 2: a text of more than 1,000,000 characters"):
        rows_of(tmp_path)


def test_a_labels_file_that_is_no_json_is_refused(tmp_path):
    with pytest.raises(InputError, match=r"labels.json: not a list of names"):
        label_names(files_of(tmp_path, labels__json=b"[one"), tmp_path)
