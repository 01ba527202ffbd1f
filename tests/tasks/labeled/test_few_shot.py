"""Few shots: balanced, disjoint, the same for the same texts in any order, and never from the test set."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from model.text.datasets import own_form
from storage.errors import InputError
from support.labeled_folders import acquired, texts_and_labels, write_rows
from tasks.labeled import dataset as labeled_data
from tasks.labeled.dataset import LabeledDataset, LabeledExample, few_shot_split, read_dataset


def dataset_of(counts, tests=0):
    """A set with so many training examples of each label."""
    labels = tuple(f"label {number}" for number in range(len(counts)))
    train = [(f"{label} {n}", label) for label, count in enumerate(counts) for n in range(count)]
    examples = tuple(LabeledExample(f"train.jsonl:{row}", (text,), label) for row, (text, label) in enumerate(train, 1))
    test = tuple(
        LabeledExample(f"test.jsonl:{row}", (f"test {row}",), row % len(counts)) for row in range(1, tests + 1)
    )
    return LabeledDataset("mine", own_form("mine", ("text",), labels), examples, test, "")


splits = given(
    counts=st.lists(st.integers(8, 40), min_size=2, max_size=5), shots=st.integers(1, 8), seed=st.integers(0, 2**31)
)


@settings(deadline=None)
@splits
def test_a_split_is_balanced_disjoint_and_of_the_training_rows(counts, shots, seed):
    dataset = dataset_of(counts, tests=5)
    split = few_shot_split(dataset, shots, seed)
    for part in (split.train, split.validation):
        labels = [example.label for example in part]
        assert [labels.count(label) for label in range(len(counts))] == [min(shots, count // 2) for count in counts]
        assert {*part} <= {*dataset.train}
    assert not {*split.train} & {*split.validation}
    assert not {*split.train, *split.validation} & {*dataset.test}


@settings(deadline=None)
@splits
def test_a_split_depends_on_texts_shots_and_seed_alone(counts, shots, seed):
    dataset = dataset_of(counts)
    turned = LabeledDataset(
        "other",
        dataset.form,
        tuple(
            LabeledExample(f"b.csv:{row}", example.texts, example.label)
            for row, example in enumerate(reversed(dataset.train))
        ),
        dataset.test,
        "",
    )
    one, other = few_shot_split(dataset, shots, seed), few_shot_split(turned, shots, seed)
    assert [example.texts for example in one.train] == [example.texts for example in other.train]
    assert [example.texts for example in one.validation] == [example.texts for example in other.validation]


def test_seeds_draw_differently_and_fewer_shots_are_among_more():
    dataset = dataset_of([200, 200])
    drawn = [{*few_shot_split(dataset, 16, seed).train} for seed in (10, 20, 30)]
    assert all(len(one & other) < 10 for one in drawn for other in drawn if one is not other)
    assert {*few_shot_split(dataset, 4, 10).train} < drawn[0]


def test_every_example_has_the_same_chance():
    dataset = dataset_of([20, 20])
    times = dict.fromkeys(dataset.train, 0)
    for seed in range(400):
        for example in few_shot_split(dataset, 5, seed).train:
            times[example] += 1
    assert all(55 < count < 150 for count in times.values())  # 100 on average, deviation 9


def test_a_scarce_label_gives_half_to_each_as_the_rarest_of_cb_must():
    split = few_shot_split(dataset_of([115, 119, 16]), 16, 10)
    for part in (split.train, split.validation):
        assert [[example.label for example in part].count(label) for label in range(3)] == [16, 16, 8]


@pytest.mark.parametrize(("counts", "shots", "needed"), [([40, 15], 16, 16), ([40, 0], 4, 4), ([40, 1], 1, 2)])
def test_fewer_examples_than_shots_are_refused(counts, shots, needed):
    told = rf"mine: label 'label 1' has {counts[1]} examples? to learn from, {needed} are needed: add some, or lower"
    with pytest.raises(InputError, match=told):
        few_shot_split(dataset_of(counts), shots, 10)


@settings(deadline=None)
@given(tests=st.integers(1, 60), limit=st.integers(1, 80), seed=st.integers(0, 1000))
def test_the_test_draw_is_a_part_of_the_test_set_in_its_order(tests, limit, seed):
    dataset = dataset_of([4, 4], tests=tests)
    drawn = labeled_data.test_examples(dataset, limit, seed)
    assert len(drawn) == min(tests, limit)
    assert [*drawn] == [example for example in dataset.test if example in {*drawn}]
    assert drawn == labeled_data.test_examples(dataset, limit, seed)
    assert labeled_data.test_examples(dataset, None, seed) == dataset.test


def test_a_domain_is_tested_on_both_halves():
    dataset = dataset_of([6, 6], tests=4)
    assert labeled_data.domain_examples(dataset, None, 0) == (*dataset.train, *dataset.test)
    drawn = labeled_data.domain_examples(dataset, 8, 0)
    assert len(drawn) == len({*drawn}) == 8


@settings(max_examples=25, deadline=None)
@given(order=st.permutations(range(60)), cut=st.integers(0, 60))
def test_a_set_without_test_files_is_halved_by_its_texts_in_whatever_files(tmp_path_factory, order, cut):
    rows = texts_and_labels(60)
    whole, parts = tmp_path_factory.mktemp("whole"), tmp_path_factory.mktemp("parts")
    write_rows(whole / "a.jsonl", rows)
    write_rows(parts / "a.jsonl", [rows[number] for number in order[:cut]])
    write_rows(parts / "b.parquet", [rows[number] for number in order[cut:]] or rows[:1])
    one, other = (read_dataset(acquired("mr", folder), folder) for folder in (whole, parts))
    for half in ("train", "test"):
        assert {example.texts for example in getattr(one, half)} == {example.texts for example in getattr(other, half)}
    assert {example.texts for example in one.train} | {example.texts for example in one.test} == {
        (row["text"],) for row in rows
    }
    split, turned = few_shot_split(one, 4, 10), few_shot_split(other, 4, 10)
    assert [example.texts for example in split.train] == [example.texts for example in turned.train]


def test_the_data_hash_follows_the_examples(tmp_path):
    write_rows(tmp_path / "train.jsonl", texts_and_labels(6))
    write_rows(tmp_path / "test.jsonl", texts_and_labels(2, word="test"))

    def data_hash():
        return read_dataset(acquired("mr", tmp_path), tmp_path).data_hash

    first = data_hash()
    assert data_hash() == first
    write_rows(tmp_path / "test.jsonl", texts_and_labels(3, word="test"))
    assert data_hash() != first
