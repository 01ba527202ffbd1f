"""Datasets as tasks: grouped, balanced, held apart, alone or beside the unlabeled ones."""

from collections import Counter
from pathlib import Path

import duckdb
import numpy as np
import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from storage import paths
from storage.checks.invariants import broken_invariants
from storage.checks.verification import verify_invariants
from storage.errors import InputError
from storage.records.labeled_sets import is_tested
from storage.sources.source import read_manifest, write_manifest
from support.anchor_corpus import by_task, digest, run_stage, source_of, tasks_table, write_corpus
from tasks.labeled.dataset import read_dataset
from tasks.materialize import labeled_tasks
from tasks.materialize.labeled_tasks import grouped
from tasks.params.schema import MaterializeParams, Params

MODELS = {"backbone": paths.BACKBONE, "embedder": paths.EMBEDDER}
ALONE = {"sp": 0, "mc": 0, "ss": 0}
TESTED = {"test.jsonl": b'{"text": "for testing", "label": 0}\n'}  # with it, tune tests on nothing else


def write_sets(root, **sets):
    """Put folders of files in place as acquired datasets."""
    sources = []
    for name, files in sets.items():
        folder = root / "inputs" / name
        folder.mkdir(parents=True, exist_ok=True)
        for file, content in files.items():
            (folder / file).write_bytes(content)
        sources.append(source_of(name, folder))
    write_manifest(root / paths.DATASETS, "datasets", sources)
    for role, path in MODELS.items():
        folder = root / "models" / role
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "model").write_bytes(role.encode())
        write_manifest(root / path, role, [source_of(role, folder)])


def reviews(count, labels=3, topics=2):
    """JSON lines of {text, label}: the topic is the first word."""
    rows = [
        {"text": f"topic{number % topics} review {number}", "label": number // topics % labels}
        for number in range(count)
    ]
    return b"".join(orjson.dumps(row) + b"\n" for row in rows)


def pairs(count):
    rows = [
        {"sentence1": f"topic{number % 2} premise {number}", "sentence2": f"claim {number}", "label": number // 2 % 2}
        for number in range(count)
    ]
    return b"".join(orjson.dumps(row) + b"\n" for row in rows)


@pytest.fixture
def topics(monkeypatch):
    """In place of a model: vectors that tell topics apart."""

    def vectors(_encoder, texts):
        return np.array([[10.0 * (text.split()[0] == "topic0"), len(text) / 100] for text in texts], np.float32)

    monkeypatch.setattr(labeled_tasks, "load_encoder", lambda *_: None)
    monkeypatch.setattr(labeled_tasks, "encode", vectors)


@pytest.fixture
def root(tmp_path, topics):
    write_sets(tmp_path, yelp={"train.jsonl": reviews(400)} | TESTED, rte={"train.jsonl": pairs(400)} | TESTED)
    return tmp_path


def run_alone(root, datasets=("yelp", "rte"), groups=2, **changed):
    return run_stage(root, format_mix=ALONE, labeled={"datasets": list(datasets), "groups": groups}, **changed)


def test_examples_that_are_not_those_of_their_files_are_found(root):
    run_alone(root)
    (root / "dvc.yaml").write_text("stages: {materialize: {cmd: x, outs: [data/tasks]}}")
    assert list(verify_invariants(root, 256)) == []
    file = root / "inputs" / "yelp" / "train.jsonl"
    rows = file.read_bytes()
    for changed in (rows.replace(b"review", b"revue"), reviews(400, labels=2)):
        file.write_bytes(changed)
        [finding] = verify_invariants(root, 256)
        assert "labeled examples are not those of their files" in finding.detail
    file.unlink()
    assert list(verify_invariants(root, 256)) == []  # a file that is gone is told by its hash


def test_what_was_read_and_left_out_is_recorded_and_said(tmp_path, topics):
    again = reviews(6) + orjson.dumps({"text": "topic0 review 0", "label": 2}) + b"\n"
    write_sets(tmp_path, yelp={"train.jsonl": reviews(400), "train-2.jsonl": again} | TESTED)
    said = []
    record = run_alone(tmp_path, ["yelp"], say=said.append)
    found = record["kinds"]["labeled-yelp"]
    assert (found["files"], found["duplicates"], found["conflicts"]) == (["train-2.jsonl", "train.jsonl"], 7, 1)
    assert found["tested"] == 0
    assert "materialize: yelp: 400 examples of train-2.jsonl, train.jsonl" in said


def senses(count):
    """WiC: tune's texts are the word and both sentences, those of tasks the sentences alone."""
    rows = [{"word": f"word{number}"} | orjson.loads(pair) for number, pair in enumerate(pairs(count).splitlines())]
    return b"".join(orjson.dumps(row) + b"\n" for row in rows)


@pytest.mark.parametrize(
    ("name", "files"),
    [
        ("yelp", {"reviews.jsonl": reviews(900)}),
        ("yelp", {"train.jsonl": reviews(900)}),
        ("yelp", {"a.jsonl": reviews(900), "b.jsonl": reviews(100)}),
        ("yelp", {"train.jsonl": reviews(900), "test.jsonl": b'{"text": "unlabeled", "label": -1}\n'}),
        ("yelp", {"train.jsonl": reviews(900)} | TESTED),
        ("mr", {"train.jsonl": reviews(900, 2), "dev.jsonl": b'{"text": "tested", "label_text": "negative"}\n'}),
        ("wic", {"train.jsonl": senses(900)}),
    ],
    ids=["no split", "train alone", "two files", "test without labels", "test", "names of labels", "word"],
)
def test_tasks_have_every_row_to_learn_from_and_none_that_is_tested(tmp_path, topics, name, files):
    write_sets(tmp_path, **{name: files})
    found = run_alone(tmp_path, [name], train_tasks=200)["kinds"][f"labeled-{name}"]
    [source] = read_manifest(tmp_path / paths.DATASETS)
    dataset = read_dataset(source, tmp_path)
    tested = {example.texts[-2:] for example in dataset.test}
    learned = {example.texts[-2:] for example in dataset.train}
    used = {tuple(row["texts"]) for row in tasks_table(tmp_path).to_pylist()}
    assert used
    assert not used & tested
    assert used <= learned
    assert found["train"]["examples"] + found["validation"]["examples"] == len(learned)
    repeats = sum(example.texts in tested for example in dataset.repeated)
    assert found["tested"] == (0 if len(tested) == 1 else len(tested) + repeats)


def test_rows_left_out_for_testing_are_said(tmp_path, topics):
    write_sets(tmp_path, yelp={"reviews.jsonl": reviews(900)})
    said = []
    tested = run_alone(tmp_path, ["yelp"], say=said.append)["kinds"]["labeled-yelp"]["tested"]
    assert 400 < tested < 500
    wanted = f"materialize: yelp: {900 - tested} examples of reviews.jsonl, without {tested} rows that tune tests on"
    assert wanted in said


def test_a_set_whose_rows_are_all_tested_is_refused(tmp_path, topics):
    rows = [row for row in reviews(40).splitlines(keepends=True) if is_tested([orjson.loads(row)["text"]])]
    write_sets(tmp_path, yelp={"train.jsonl": b"".join(rows)})
    with pytest.raises(InputError, match=rf"datasets.yelp: its {len(rows)} rows are all for testing: add rows, or"):
        run_alone(tmp_path, ["yelp"])


def test_a_set_that_only_tune_can_read_is_refused_with_what_is_needed(tmp_path, topics):
    write_sets(tmp_path, movies={"movies.txt": b"id\tsentiment\ttext\n1\t2.5\tgood\n2\t-2\tbad\n"})
    wanted = (
        r"acquire.datasets.movies: labeled tasks need the fields text, label or sentence1, sentence2, label "
        r"\(found: id, sentiment, text\); the fields that tune knows for a set are not used here: acquire a copy"
    )
    with pytest.raises(InputError, match=wanted):
        run_alone(tmp_path, ["movies"])


def test_tasks_are_of_one_group_and_balanced_over_labels(root):
    record = run_alone(root)
    assert record["by_format"] == {"train": {"labeled": 30}, "validation": {"labeled": 12}}
    tasks = by_task(root)
    for task, rows in tasks.items():
        assert rows[0]["kind"] in {"labeled-yelp", "labeled-rte"}
        assert task.startswith(f"labeled-{rows[0]['split']}-")
        assert len({row["texts"][0].split()[0] for row in rows}) == 1
        assert {*map(tuple, (row["clusters"] for row in rows))} == {
            (rows[0]["anchor_cluster"],) * len(rows[0]["texts"])
        }
        assert {row["labels"] for row in rows} == {3 if rows[0]["kind"] == "labeled-yelp" else 2}
        for role in ("support", "query"):
            labels = [row["label"] for row in rows if row["role"] == role]
            counts = [labels.count(label) for label in range(rows[0]["labels"])]
            assert max(counts) - min(counts) <= 1
    assert Counter(rows[0]["kind"] for rows in tasks.values()) == {"labeled-yelp": 21, "labeled-rte": 21}


def test_labels_and_texts_are_those_of_the_files(root):
    run_alone(root)
    known = {"yelp": orjson.loads(b"[" + b",".join(reviews(400).splitlines()) + b"]")}
    known["rte"] = orjson.loads(b"[" + b",".join(pairs(400).splitlines()) + b"]")
    for row in tasks_table(root).to_pylist():
        name, number = row["sentence_ids"][0].split(":")
        found = known[name][int(number) - 1]
        assert row["label"] == found["label"]
        assert row["texts"] == [value for key, value in found.items() if key != "label"]
        assert len({*row["sentence_ids"]}) == 1


def test_no_example_is_twice_in_a_task_or_in_both_splits(root):
    run_alone(root, train_tasks=60)
    splits: dict[str, set[str]] = {}
    for rows in by_task(root).values():
        assert len({tuple(row["texts"]) for row in rows}) == len(rows)
        for row in rows:
            splits.setdefault(row["sentence_ids"][0], set()).add(row["split"])
    assert all(len(found) == 1 for found in splits.values())


def test_labeled_tasks_are_added_and_leave_the_others_as_they_were(root):
    write_corpus(root)
    run_stage(root)
    before = digest(root)
    record = run_stage(root, labeled={"datasets": ["yelp"], "groups": 2})
    assert record["by_format"]["train"] == {"sp": 10, "mc": 10, "ss": 10, "labeled": 15}
    assert record["by_format"]["validation"]["labeled"] == 6
    after = digest(root)
    assert {name: after[name] for name in before} == before
    assert after.keys() - before.keys() == {"labeled-train-00000.parquet", "labeled-validation-00000.parquet"}
    with duckdb.connect() as connection:
        for path in (paths.ASSIGNMENTS, paths.DOCUMENTS, paths.SENTENCES, paths.TASKS):
            connection.execute(f"CREATE VIEW {Path(path).name} AS FROM read_parquet('{root / path}/*.parquet')")
        assert list(broken_invariants(connection)) == []


def test_the_same_seed_gives_the_same_bytes(root):
    run_alone(root)
    first = digest(root)
    run_alone(root, code="1")
    assert digest(root) == first
    run_alone(root, seed=7)
    assert digest(root) != first


def test_a_real_model_groups_a_set(tmp_path, tiny_models):
    write_sets(tmp_path, yelp={"train.jsonl": reviews(300)} | TESTED)
    for role, path in MODELS.items():
        write_manifest(tmp_path / path, role, [source_of(role, tiny_models / role)])
    for model in ("backbone", "embedder"):
        chosen = {"datasets": ["yelp"], "groups": 1, "model": model}
        record = run_stage(tmp_path, format_mix=ALONE, labeled=chosen)
        assert record["kinds"]["labeled-yelp"]["train"]["examples"] == 270


def test_small_groups_are_skipped_and_recorded(tmp_path, topics):
    few = b"".join(orjson.dumps({"text": f"topic9 rare {n}", "label": n % 3}) + b"\n" for n in range(4))
    write_sets(tmp_path, yelp={"train.jsonl": reviews(400, topics=1) + few} | TESTED)
    record = run_alone(tmp_path, ["yelp"])
    assert len(record["kinds"]["labeled-yelp"]["train"]["skipped_groups"]) == 1


def test_too_few_examples_are_refused_in_numbers(tmp_path, topics):
    write_sets(tmp_path, yelp={"train.jsonl": reviews(40)} | TESTED)
    wanted = (
        r"materialize.labeled.groups: 2: no group of yelp has 4 validation examples of each of 3 labels "
        r"\(the best has \d\): lower it or support_size and query_size, raise materialize.labeled.validation_share"
    )
    with pytest.raises(InputError, match=wanted):
        run_alone(tmp_path, ["yelp"])
    with pytest.raises(InputError, match="groups: 99 is above the 40 different examples of yelp"):
        run_alone(tmp_path, ["yelp"], groups=99)


def test_repeated_examples_count_once(tmp_path, topics):
    write_sets(tmp_path, yelp={"train.jsonl": reviews(300) * 3} | TESTED)
    assert run_alone(tmp_path, ["yelp"])["kinds"]["labeled-yelp"]["train"]["examples"] == 270


@given(st.integers(1, 6), st.lists(st.integers(1, 40), min_size=1, max_size=4), st.integers(0, 99))
def test_grouping_does_not_depend_on_the_parts(groups, lengths, seed):
    vectors = np.random.default_rng(seed).normal(size=(sum(lengths) + 6, 3)).astype(np.float32)
    parts = np.split(vectors, np.cumsum(lengths))
    whole = grouped([vectors], groups, seed, "set")
    assert grouped(parts, groups, seed, "set").tolist() == whole.tolist()
    assert set(whole.tolist()) <= set(range(groups))


def test_a_set_of_one_label_is_refused(tmp_path, topics):
    write_sets(tmp_path, yelp={"train.jsonl": reviews(30, labels=1)})
    with pytest.raises(InputError, match=r"acquire.datasets.yelp: 1 label in 1 file, two are needed"):
        run_alone(tmp_path, ["yelp"])


def test_single_texts_and_pairs_in_one_set_are_refused(tmp_path, topics):
    write_sets(tmp_path, yelp={"train.jsonl": reviews(30) + pairs(30)})
    with pytest.raises(InputError, match="some rows have one text, some two"):
        run_alone(tmp_path, ["yelp"])


def test_variants_that_learn_from_unlabeled_tasks_need_some():
    sources = {"backbone": "path:a", "embedder": "path:b", "corpus": {"c": "path:c"}, "datasets": {"yelp": "path:d"}}
    tasks = {"format_mix": ALONE, "labeled": {"datasets": ["yelp"]}}

    def parameters(*variants):
        return Params(
            acquire=sources, materialize=tasks, metatrain={"variants": list(variants)}, tune={"methods": ["pt"]}
        )

    assert parameters("metapt", "supmer-labeled").materialize.format_mix.mc == 0
    with pytest.raises(ValueError, match="names supmer-mixed, which learns from unlabeled tasks, but"):
        parameters("metapt", "supmer-mixed")


def test_no_unlabeled_task_is_allowed_where_labeled_sets_are_given():
    with pytest.raises(ValueError, match="no task could be made"):
        MaterializeParams(format_mix=ALONE)
    assert MaterializeParams(format_mix=ALONE, labeled={"datasets": ["yelp"]}).format_mix.sp == 0
