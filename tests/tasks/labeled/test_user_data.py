"""A user's own file or folder becomes examples, with any names of fields; what is wrong is said in one line."""

from pathlib import Path

import pytest

from model.text.datasets import dataset_template
from storage.errors import InputError
from support.labeled_folders import shown, texts_and_labels, write_rows
from tasks.labeled import dataset as labeled_data
from tasks.labeled.numbered_rows import LeftOut
from tasks.labeled.user_data import read_user_data


def test_own_data_has_any_field_names_and_its_labels_are_its_words(tmp_path):
    rows = [{"review": f"r{n}", "stars": float(1 + n % 5), "id": n} for n in range(20)]
    dataset = read_user_data(write_rows(tmp_path / "my.jsonl", rows), ["review"], "stars")
    assert (dataset.name, dataset.form.labels, dataset.form.fields) == ("my", ("1", "2", "3", "4", "5"), ("review",))
    template = dataset_template("instruction", dataset.form)
    assert template.render(("nice",), ()).text == "Which label fits, 1, 2, 3, 4 or 5? nice Answer:"
    assert template.target(dataset.train[3].label) == "4"
    assert (len(dataset.train), dataset.test) == (20, ())


def test_rows_of_own_data_without_text_or_label_are_left_out_and_counted(tmp_path):
    rows = [*texts_and_labels(4), {"text": " ", "label": 7}, {"text": None, "label": 0}, {"text": "x", "label": None}]
    test = [{"text": "other", "label": 1}, {"text": "more", "label": ""}, {"text": "", "label": ""}]
    path = write_rows(tmp_path / "my.jsonl", rows)
    write_rows(tmp_path / "test.jsonl", test)
    for dataset in (read_user_data(path), read_user_data(tmp_path)):
        assert (len(dataset.train), len(dataset.test), dataset.form.labels) == (4, 1, ("0", "1"))
        assert dataset.left_out == LeftOut(blank=3, unlabeled=2)
    with pytest.raises(
        InputError, match=r"no rows to learn from \(2 rows without text, 1 row without a label\): check"
    ):
        read_user_data(write_rows(tmp_path / "none.jsonl", rows[4:]))


def test_a_number_that_a_table_lacks_is_a_missing_label_and_spaces_around_a_label_do_not_count(tmp_path):
    rows = [{"text": "a", "label": 1.0}, {"text": "b", "label": float("nan")}, {"text": "c", "label": 2.0}]
    dataset = read_user_data(write_rows(tmp_path / "my.parquet", rows))
    assert (dataset.form.labels, dataset.left_out.unlabeled) == (("1", "2"), 1)
    (tmp_path / "my.csv").write_text("text,label\na, good\nb,bad\nc,good \n")
    assert read_user_data(tmp_path / "my.csv").form.labels == ("bad", "good")


def test_own_data_takes_a_template_and_words(tmp_path):
    (tmp_path / "my.csv").write_text("title,body,ok\nA,b,no\nC,d,yes\n")
    dataset = read_user_data(
        tmp_path / "my.csv", (), "ok", "{title}: {body} All in all <X>.", {"yes": "great", "no": "terrible"}
    )
    template = dataset_template("sentinel", dataset.form)
    assert template.render(dataset.train[0].texts, ()).text == "A: b All in all <extra_id_0>."
    assert [template.target(example.label) for example in dataset.train] == [
        "<extra_id_0> terrible",
        "<extra_id_0> great",
    ]


def test_own_data_in_a_folder_has_its_test_set(tmp_path):
    write_rows(tmp_path / "train.jsonl", texts_and_labels(6))
    write_rows(tmp_path / "sub" / "test.jsonl", texts_and_labels(4, word="other"))
    write_rows(tmp_path / ".hidden" / "train.jsonl", texts_and_labels(9, word="hidden"))
    (tmp_path / "labels.json").write_text('["bad", "good"]')
    dataset = read_user_data(tmp_path)
    assert (len(dataset.train), len(dataset.test), dataset.form.labels) == (6, 4, ("bad", "good"))
    assert dataset.test[0].example_id == "sub/test.jsonl:1"


def test_own_data_may_lie_at_a_relative_path(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    write_rows(Path("mine/train.jsonl"), texts_and_labels(4))
    write_rows(Path("mine/test.jsonl"), texts_and_labels(3, word="other"))
    assert len(read_user_data(Path("mine")).test) == 3
    assert len(read_user_data(Path("mine/train.jsonl")).train) == 4


def test_labels_json_and_test_files_beside_a_file_are_used_and_named(tmp_path):
    path = write_rows(tmp_path / "my.jsonl", [*texts_and_labels(6), texts_and_labels(6)[0]])
    write_rows(tmp_path / "test.jsonl", texts_and_labels(4, word="other"))
    (tmp_path / "labels.json").write_text('["bad", "good"]')
    dataset = read_user_data(path)
    assert (len(dataset.train), len(dataset.test), dataset.form.labels) == (6, 4, ("bad", "good"))
    assert [note.split(" is ")[0].split(" gives ")[0] for note in dataset.notes] == [
        str(tmp_path / "labels.json"),
        str(tmp_path / "test.jsonl"),
    ]
    assert dataset.left_out.duplicates == 1


def test_files_beside_a_file_that_do_not_fit_it_are_not_used_and_the_reason_is_told(tmp_path):
    path = write_rows(tmp_path / "my.jsonl", texts_and_labels(6))
    write_rows(tmp_path / "test.jsonl", [{"text": "other", "label": "neither"}])
    (tmp_path / "labels.json").write_text('["only one"]')
    dataset = read_user_data(path)
    assert (len(dataset.train), dataset.test, dataset.form.labels) == (6, (), ("0", "1"))
    assert all(" is not used (" in note for note in dataset.notes)
    assert len(dataset.notes) == 2


def test_any_header_of_a_csv_file_can_be_a_field(tmp_path):
    header = "Kommentar: Text (EN) [v1.0]"
    (tmp_path / "my.csv").write_text(f"{header},Urteil\nnice,a\nbad,b\n")
    dataset = read_user_data(tmp_path / "my.csv", [header], "Urteil")
    assert dataset_template("sentinel", dataset.form).render(("nice",), ()).text.startswith("nice. Label:")
    with pytest.raises(InputError, match=r"did you mean 'Urteil'\?"):
        read_user_data(tmp_path / "my.csv", [header], "urteil")


def test_a_label_that_labels_json_names_may_be_in_the_test_file_alone(tmp_path):
    write_rows(tmp_path / "train.jsonl", texts_and_labels(4))
    write_rows(tmp_path / "test.jsonl", [{"text": "other", "label": "best"}, {"text": "more", "label": "bad"}])
    (tmp_path / "labels.json").write_text('["bad", "good", "best"]')
    with pytest.raises(
        InputError, match=r"labels 0, 1, bad, best, but labels.json has 3: bad, best, good: correct either"
    ):
        read_user_data(tmp_path)
    write_rows(tmp_path / "test.jsonl", [{"text": "other", "label": 2}])
    dataset = read_user_data(tmp_path)
    assert shown(dataset, dataset.test) == [("other", "best")]


def test_what_is_not_drawn_tests_a_single_file(tmp_path):
    dataset = read_user_data(write_rows(tmp_path / "my_test.jsonl", texts_and_labels(30)))
    split = labeled_data.few_shot_split(dataset, 4, 10)
    rest = labeled_data.left_over_examples(dataset, split, None, 0)
    assert len(rest) == 30 - 16
    assert not {*rest} & {*split.train, *split.validation}


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        ({"verbalizer": {"0": "bad"}}, "verbalizer: no word for 1: give a word for each of 0, 1"),
        (
            {"verbalizer": {"0": "bad", "1": "good", "2": "best"}},
            "verbalizer: no label '2' in the data: give a word for each of 0, 1",
        ),
        ({"verbalizer": {"0": "bad", "1": "bad"}}, "each label needs a word of its own"),
        ({"template": "{text} or {other}", "text_fields": ["text"]}, "no field other, there is text"),
        (
            {"text_fields": ["review"]},
            "row 1: needs the fields review, label (found: label, text): name the columns with --text and --label",
        ),
        ({"label_field": "stars"}, "row 1: needs the fields text, stars or"),
    ],
)
def test_what_a_user_says_wrongly_is_told(tmp_path, arguments, told):
    path = write_rows(tmp_path / "my.jsonl", texts_and_labels(4))
    with pytest.raises(InputError) as error:
        read_user_data(path, **arguments)
    assert told in str(error.value)


def test_own_data_that_is_not_there_is_told(tmp_path):
    with pytest.raises(InputError, match=r"gone.jsonl: not there: check the path"):
        read_user_data(tmp_path / "gone.jsonl")
    with pytest.raises(InputError, match="no rows to learn from"):
        read_user_data(tmp_path)
