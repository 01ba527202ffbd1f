"""Every invariant of the tasks holds of what the stage writes, and each is caught when a shard is tampered with."""

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from storage import paths
from storage.checks.invariants import INVARIANTS, broken_invariants
from storage.checks.task_invariants import CLAIMS
from support.anchor_corpus import run_stage, tasks_table, write_corpus

VIEWS = {
    "assignments": paths.ASSIGNMENTS,
    "documents": paths.DOCUMENTS,
    "sentences": paths.SENTENCES,
    "tasks": paths.TASKS,
}


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    root = write_corpus(tmp_path_factory.mktemp("made"))
    run_stage(root)
    return root


def found(root, tasks=None):
    """Lines of the invariants of tasks that are broken, with another table of tasks if one is given."""
    with duckdb.connect() as connection:
        for name, path in VIEWS.items():
            connection.execute(f"CREATE VIEW {name} AS FROM read_parquet('{root / path}/*.parquet')")
        if tasks is not None:
            pq.write_table(tasks, root / "tampered.parquet")
            connection.execute(f"CREATE OR REPLACE VIEW tasks AS FROM read_parquet('{root}/tampered.parquet')")
        return [line for line, _ in broken_invariants(connection)]


def rows_of(root, kind=None, **wanted):
    rows = tasks_table(root).to_pylist()
    chosen = [row for row in rows if kind in {None, row["kind"]}]
    return rows, [row for row in chosen if all(row[key] == value for key, value in wanted.items())]


def tampered(root, rows):
    return found(root, pa.Table.from_pylist(rows, schema=tasks_table(root).schema))


def lines(root, rows, broken):
    return [line for line in tampered(root, rows) if broken in line]


def test_all_hold_of_what_the_stage_writes(made):
    assert found(made) == []


def test_every_claim_has_its_own_words():
    assert len({claim.broken for claim in CLAIMS}) == len(CLAIMS)


def test_the_stage_to_run_again_is_named(made):
    with duckdb.connect() as connection:
        connection.execute("CREATE VIEW tasks AS SELECT 'a' AS example_id FROM range(2)")
        connection.execute("CREATE VIEW documents AS SELECT 'b' AS document_id FROM range(2)")
        chosen = [one for one in INVARIANTS if one.views == ("documents",)]
        chosen += [one for one, claim in zip(INVARIANTS[-len(CLAIMS) :], CLAIMS, strict=True) if "unique" in claim.name]
        assert [stage for _, stage in broken_invariants(connection, chosen)] == ["sample", "materialize"]


def test_a_missing_part_is_caught(made):
    rows, (first, *_) = rows_of(made, "mc-next")
    first["texts"], first["sentence_ids"], first["clusters"] = (
        first[k][:4] for k in ("texts", "sentence_ids", "clusters")
    )
    assert first["example_id"] in lines(made, rows, "the parts of their kind")[0]


def test_an_example_written_twice_is_caught(made):
    rows, (first, *_) = rows_of(made)
    assert first["example_id"] in lines(made, [*rows, first], "example ids occur more than once")[0]


def test_a_task_that_lost_an_example_is_caught(made):
    rows, _ = rows_of(made)
    assert rows[-1]["task_id"] in lines(made, rows[:-1], "tasks lack examples")[0]


def test_a_task_of_two_clusters_is_caught(made):
    rows, (first, *_) = rows_of(made, "sp-next")
    first["anchor_cluster"] += 1
    assert first["task_id"] in lines(made, rows, "tasks lack examples, or are of more than one")[0]


@pytest.mark.parametrize("kind", ["sp-next", "sp-cluster", "mc-next", "mc-cluster", "ss"])
def test_unbalanced_labels_are_caught(made, kind):
    rows, (first, *_) = rows_of(made, kind)
    for row in rows:
        if row["task_id"] == first["task_id"] and row["role"] == "query":
            row["label"] = 0
    assert first["task_id"] in lines(made, rows, "labels are not balanced")[0]


def test_an_example_in_support_and_query_is_caught(made):
    rows, (first, *_) = rows_of(made, "ss", role="support")
    other = next(row for row in rows if row["task_id"] == first["task_id"] and row["role"] == "query")
    for key in ("texts", "sentence_ids", "clusters", "label", "choices"):
        other[key] = first[key]
    assert first["task_id"] in lines(made, rows, "the same sentence more than once")[0]


@pytest.mark.parametrize("kind", ["sp-cluster", "mc-cluster"])
def test_a_sentence_against_itself_is_caught(made, kind):
    rows, (first, *_) = rows_of(made, kind)
    for key in ("texts", "sentence_ids", "clusters"):
        first[key][1] = first[key][0]
    assert first["example_id"] in lines(made, rows, "a sentence with itself")[0]


def test_a_text_against_itself_under_another_id_is_caught(made):
    rows, (first, *_) = rows_of(made, "sp-next")
    first["texts"][1] = first["texts"][0]
    assert first["example_id"] in lines(made, rows, "a sentence with itself")[0]


def test_a_choice_offered_twice_is_caught(made):
    rows, (first, *_) = rows_of(made, "mc-next")
    for key in ("texts", "sentence_ids", "clusters"):
        first[key][4] = first[key][3]
    assert first["example_id"] in lines(made, rows, "a choice twice")[0]


def test_a_centroid_offered_twice_is_caught(made):
    rows, (first, *_) = rows_of(made, "ss", label=0)
    first["choices"][2] = first["choices"][3]
    assert first["example_id"] in lines(made, rows, "a choice twice")[0]


def test_a_text_that_is_not_in_the_corpus_is_caught(made):
    rows, (first, *_) = rows_of(made)
    first["texts"][0] += " Changed."
    assert first["example_id"] in lines(made, rows, "is not the corpus's")[0]


def test_an_id_that_is_not_in_the_corpus_is_caught(made):
    rows, (first, *_) = rows_of(made, "ss")
    first["sentence_ids"][0] = first["sentence_ids"][0].split(":")[0] + ":999"
    assert first["example_id"] in lines(made, rows, "is not the corpus's")[0]


@pytest.mark.parametrize("label", [0, 1, 2])
@pytest.mark.parametrize("claimed", [1, 2])
def test_a_wrong_claim_about_the_next_sentence_is_caught(made, label, claimed):
    rows, (first, *_) = rows_of(made, "sp-next", label=label)
    first["label"] = (label + claimed) % 3
    assert first["example_id"] in lines(made, rows, "wrong about what follows")[0]


def test_another_choice_called_the_next_sentence_is_caught(made):
    rows, (first, *_) = rows_of(made, "mc-next", label=0)
    first["label"] = 2
    assert first["example_id"] in lines(made, rows, "wrong about what follows")[0]


def test_a_neighbour_among_the_wrong_choices_is_caught(made):
    rows, (first, *_) = rows_of(made, "mc-next", label=0)
    document, index = first["sentence_ids"][0].split(":")
    first["sentence_ids"][4] = f"{document}:{int(index) - 1}"
    assert first["example_id"] in lines(made, rows, "wrong about what follows")[0]


def test_a_cluster_that_was_not_assigned_is_caught(made):
    rows, (first, *_) = rows_of(made, "sp-next")
    first["clusters"][1] = 77
    assert first["example_id"] in lines(made, rows, "the sentence is not in")[0]


@pytest.mark.parametrize("kind", ["sp-cluster", "mc-cluster", "ss"])
def test_a_wrong_claim_about_clusters_is_caught(made, kind):
    rows, (first, *_) = rows_of(made, kind, label=0)
    first["label"] = 1
    assert first["example_id"] in lines(made, rows, "wrong about clusters")[0]


def test_a_second_right_choice_is_caught(made):
    rows, (first, *_) = rows_of(made, "mc-cluster", label=0)
    first["clusters"][3] = first["clusters"][0]
    assert first["example_id"] in lines(made, rows, "wrong about clusters")[0]


def test_an_anchor_outside_the_tasks_cluster_is_caught(made):
    rows, (first, *_) = rows_of(made, "mc-next")
    first["clusters"][0] += 1
    assert first["example_id"] in lines(made, rows, "wrong about clusters")[0]


@pytest.mark.parametrize("malformed", ["", "no-colon", "abc:def"])
def test_a_malformed_sentence_id_is_a_finding_and_no_error(made, malformed):
    rows, (first, *_) = rows_of(made, "sp-next")
    first["sentence_ids"][1] = malformed
    assert first["example_id"] in lines(made, rows, "wrong about what follows")[0]
    assert first["example_id"] in lines(made, rows, "is not the corpus's")[0]


def test_more_sentences_of_one_cluster_in_a_set_of_ss_are_caught(made):
    rows, (first, *_) = rows_of(made, "ss", role="query")
    for row in rows:
        if row["task_id"] == first["task_id"] and row["role"] == "query":
            row["clusters"] = first["clusters"]
    assert first["task_id"] in lines(made, rows, "a set of ss with more sentences of one cluster")[0]


@pytest.mark.parametrize("kind", ["sp-cluster", "mc-cluster"])
def test_a_partner_that_the_other_set_asks_about_is_caught(made, kind):
    rows, (first, *_) = rows_of(made, kind, label=0, role="support")
    other = next(row for row in rows if row["task_id"] == first["task_id"] and row["role"] == "query")
    for key in ("texts", "sentence_ids", "clusters"):
        first[key][1] = other[key][0]
    assert first["example_id"] in lines(made, rows, "one that the other set asks about")[0]


@pytest.mark.parametrize("kind", ["sp-cluster", "mc-cluster"])
def test_a_mirrored_pair_is_caught(made, kind):
    rows, (first, *_) = rows_of(made, kind, label=0, role="support")
    same = [row for row in rows if row["task_id"] == first["task_id"] and row["role"] == "support"]
    other = next(row for row in same if row is not first and (kind == "mc-cluster" or row["label"] == 0))
    for key in ("texts", "sentence_ids", "clusters"):
        first[key][1], other[key][other["label"] + 1] = other[key][0], first[key][0]
    assert first["example_id"] in lines(made, rows, "its own mirror image")[0]


def test_a_validation_text_in_a_training_task_is_caught_under_any_id(made):
    rows, (first, *_) = rows_of(made, split="train")
    held = next(row for row in rows if row["split"] == "validation")
    first["texts"][0] = held["texts"][0]
    assert first["example_id"] in lines(made, rows, "a text that validation documents have")[0]


def test_a_task_of_five_centroids_is_caught(made):
    rows, (first, *_) = rows_of(made, "ss", label=0)
    first["choices"][3] = 99
    assert first["task_id"] in lines(made, rows, "wrong about clusters")[0]


@pytest.mark.parametrize("split", ["train", "validation"])
def test_a_document_of_the_other_split_is_caught(made, split):
    rows, (first, *_) = rows_of(made, split=split)
    other = next(row for row in rows if row["split"] != split and row["format"] == first["format"])
    for key in ("texts", "sentence_ids", "clusters"):
        first[key][-1] = other[key][-1]
    assert first["example_id"] in lines(made, rows, "a document of the other split")[0]


def test_a_labeled_example_in_both_splits_is_caught(made):
    rows, _ = rows_of(made)
    labeled = [
        {**rows[0], "format": "labeled", "kind": "labeled-own", "split": split, "sentence_ids": ["own:3"]}
        for split in ("train", "validation")
    ]
    assert "own:3" in lines(made, [*rows, *labeled], "labeled examples are in training and in validation")[0]
