"""The stage as a whole: balance, disjointness, truth, and the same bytes whoever does the work."""

import os
import subprocess
import sys
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import orjson
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from storage import paths
from storage.errors import InputError
from storage.parquet import provenance
from storage.task_formats import KINDS, LABELS, SPLITS
from support.anchor_corpus import by_task, digest, run_stage, stage_of, tasks_table, write_corpus, write_table
from tasks.materialize import stage as materialize
from tasks.stage import workers
from tasks.stage.contract import MARKER

REPOSITORY = Path(__file__).parents[3]


class BackwardFanOut:
    """The last job first: results must not depend on the order of work."""

    def run(self, _step, jobs, finished):
        for job in reversed(jobs):
            finished(job, job.execute())


class ProcessFanOut:
    """Two worker processes, as a run has them."""

    def run(self, _step, jobs, finished):
        with workers.worker_processes(2), ThreadPoolExecutor(2) as threads:
            for job, record in zip(jobs, threads.map(workers.execute, jobs), strict=True):
                finished(job, record)


@pytest.fixture(scope="module")
def corpus(tmp_path_factory):
    return write_corpus(tmp_path_factory.mktemp("corpus"))


@pytest.fixture(scope="module")
def made(corpus):
    run_stage(corpus, train_tasks=120, validation_tasks=30)
    return corpus


def read(root, path):
    return [row for file in sorted((root / path).glob("*.parquet")) for row in pq.read_table(file).to_pylist()]


def index_of(sentence):
    document, index = sentence.split(":")
    return document, int(index)


def test_tasks_are_contiguous_support_before_query(made):
    for path in (made / paths.TASKS).glob("*.parquet"):
        name, split, _ = path.stem.split("-")
        rows = pq.read_table(path).to_pylist()
        for place, row in enumerate(rows):
            number, position = divmod(place, 11)
            role = "support" if position < 6 else "query"
            position -= 0 if role == "support" else 6
            task = f"{name}-{split}-{number:06d}"
            found = (row["task_id"], row["role"], row["position"], row["example_id"])
            assert found == (task, role, position, f"{task}/{role[0]}{position:02d}")
            assert (row["format"], row["split"]) == (name, split)


def test_kinds_share_their_format_evenly_and_use_every_cluster(made):
    tasks = by_task(made)
    kinds = Counter((rows[0]["kind"], rows[0]["split"]) for rows in tasks.values())
    assert {kinds[kind, "train"] for kind in ("sp-next", "sp-cluster", "mc-next", "mc-cluster")} == {20}
    assert kinds["ss", "train"] == 40
    for kind in ("sp-next", "mc-cluster"):
        used = Counter(rows[0]["anchor_cluster"] for rows in tasks.values() if rows[0]["kind"] == kind)
        assert set(used) == {0, 3, 6, 9, 12}


def test_labels_and_positions_are_balanced_in_every_set(made):
    for rows in by_task(made).values():
        for role in ("support", "query"):
            labels = [row["label"] for row in rows if row["role"] == role]
            counts = [labels.count(label) for label in range(LABELS[rows[0]["kind"]])]
            assert max(counts) - min(counts) <= 1


def test_an_anchor_is_asked_about_once_in_a_task(made):
    for rows in by_task(made).values():
        assert len({row["texts"][0] for row in rows}) == len(rows)


def test_pairs_say_the_truth_about_what_follows(made):
    for row in tasks_table(made).to_pylist():
        if row["kind"] == "sp-next":
            (document, index), (other, place) = map(index_of, row["sentence_ids"])
            truth = 1 if document != other else (0 if place == index + 1 else 2)
            assert truth == row["label"]
            assert truth != 2 or abs(place - index) >= 2


def test_wrong_choices_of_mc_next_are_a_mixture_of_the_same_and_other_documents(corpus, made):
    same = total = 0
    for row in tasks_table(made).to_pylist():
        if row["kind"] == "mc-next":
            document, index = index_of(row["sentence_ids"][0])
            for place, sentence in enumerate(row["sentence_ids"][1:]):
                other, found = index_of(sentence)
                if place == row["label"]:
                    assert (other, found) == (document, index + 1)
                else:
                    assert other != document or abs(found - index) >= 2
                    same, total = same + (other == document), total + 1
    summary = orjson.loads((made / paths.MATERIALIZE_METRICS).read_bytes())
    assert summary["hard_negative_share"] == round(same / total, 4)
    assert abs(same / total - 0.5) < 0.03


@pytest.mark.parametrize("share", [0.0, 1.0])
def test_the_share_of_hard_choices_is_a_parameter(tmp_path, share):
    write_corpus(tmp_path, repeated=0)
    record = run_stage(tmp_path, hard_negative_share=share, format_mix={"sp": 0, "mc": 1, "ss": 0})
    assert record["hard_negative_share"] == share


def test_hard_choices_are_at_every_position_alike(made):
    places = Counter()
    for row in tasks_table(made).to_pylist():
        if row["kind"] == "mc-next":
            document = index_of(row["sentence_ids"][0])[0]
            for place, sentence in enumerate(row["sentence_ids"][1:]):
                places[place] += index_of(sentence)[0] == document and place != row["label"]
    assert min(places.values()) > 0.75 * max(places.values())


def test_clusters_are_told_apart_truly(made):
    for row in tasks_table(made).to_pylist():
        own, *others = row["clusters"]
        if row["kind"] == "sp-cluster":
            assert (own == others[0]) == (row["label"] == 0)
        elif row["kind"] == "mc-cluster":
            assert [cluster == own for cluster in others].index(True) == row["label"]
            assert others.count(own) == 1
        elif row["kind"] == "ss":
            assert row["choices"].index(own) == row["label"]


@pytest.mark.parametrize(("documents", "clusters"), [(60, 5), (14, 2)], ids=["large clusters", "small clusters"])
def test_partners_are_not_asked_about_by_the_other_set_and_no_pair_is_mirrored(tmp_path, documents, clusters):
    write_corpus(tmp_path, documents=documents, clusters=clusters, dropped=0, repeated=0, held=clusters)
    mix = {"sp": 1, "mc": 1, "ss": 0}
    sizes = {"support_size": 13, "query_size": 12} if clusters == 2 else {}
    run_stage(tmp_path, format_mix=mix, train_tasks=60, validation_tasks=2, **sizes)
    inside = 0
    for rows in by_task(tmp_path).values():
        if not rows[0]["kind"].endswith("-cluster"):
            continue
        anchors = {row["sentence_ids"][0]: row["role"] for row in rows}
        pairs = {
            (row["sentence_ids"][0], row["sentence_ids"][row["label"] + 1]): row["role"]
            for row in rows
            if row["kind"] == "mc-cluster" or row["label"] == 0
        }
        assert all(anchors.get(partner, role) == role for (_, partner), role in pairs.items())
        assert not any((partner, anchor) in pairs for anchor, partner in pairs)
        inside += sum(partner in anchors for _, partner in pairs)
    assert (inside > 0) == (clusters == 2)  # only where the cluster has no others


def test_a_text_of_a_validation_document_is_in_no_training_task(made):
    splits = {row["document_id"]: row["split"] for row in read(made, paths.DOCUMENTS)}
    rows = read(made, paths.SENTENCES)
    held, trained = ({row["text"] for row in rows if splits[row["document_id"]] == one} for one in SPLITS[::-1])
    assert held & trained
    used = {text for row in tasks_table(made).to_pylist() if row["split"] == "train" for text in row["texts"]}
    assert not used & held
    left = sum(splits[row["document_id"]] == "train" and row["text"] in held for row in rows)
    assert orjson.loads((made / paths.MATERIALIZE_METRICS).read_bytes())["left_out"] == left


def test_an_ss_task_has_four_clusters_and_as_many_sentences_of_each_in_an_order_of_its_own(made):
    for rows in by_task(made).values():
        if rows[0]["kind"] == "ss":
            assert len({frozenset(row["choices"]) for row in rows}) == 1
            assert len({tuple(row["choices"]) for row in rows}) > 2
            for role in ("support", "query"):
                counts = Counter(row["clusters"][0] for row in rows if row["role"] == role)
                assert len(counts) == 4
                assert max(counts.values()) - min(counts.values()) <= 1


def test_a_shard_says_where_it_came_from(made):
    found = provenance(made / paths.TASKS / "mc-train-00000.parquet")
    assert found["stage"] == "materialize"
    assert found["sizes"] == {"support": 6, "query": 5, "hard": 0.5}


def test_workers_and_their_order_do_not_change_a_byte(tmp_path, monkeypatch):
    monkeypatch.setattr(materialize, "_SHARD_TASKS", 4)
    write_corpus(tmp_path)
    run_stage(tmp_path)
    first = digest(tmp_path)
    assert len(first) > 9
    for code, fan_out in (("1", BackwardFanOut()), ("2", ProcessFanOut())):
        run_stage(tmp_path, code=code, fan_out=fan_out)
        assert digest(tmp_path) == first


def test_a_task_does_not_depend_on_the_shard_it_is_in(tmp_path, monkeypatch):
    write_corpus(tmp_path)
    run_stage(tmp_path)
    whole = tasks_table(tmp_path).sort_by([("example_id", "ascending")])
    monkeypatch.setattr(materialize, "_SHARD_TASKS", 3)
    run_stage(tmp_path, code="1")
    assert tasks_table(tmp_path).sort_by([("example_id", "ascending")]).equals(whole)


def test_more_tasks_leave_the_first_as_they_were(tmp_path):
    write_corpus(tmp_path)
    run_stage(tmp_path, train_tasks=30)
    few = by_task(tmp_path)
    run_stage(tmp_path, train_tasks=60)
    many = by_task(tmp_path)
    assert all(many[task] == rows for task, rows in few.items())
    assert len(many) == len(few) + 30


def test_another_seed_gives_other_tasks(tmp_path):
    write_corpus(tmp_path)
    run_stage(tmp_path)
    first = digest(tmp_path)
    run_stage(tmp_path, seed=43)
    assert not {*first.values()} & {*digest(tmp_path).values()}


def test_another_process_gives_the_same_bytes(tmp_path):
    write_corpus(tmp_path)
    run_stage(tmp_path)
    script = (
        "import sys; from pathlib import Path; from support.anchor_corpus import digest, run_stage;"
        "root = Path(sys.argv[1]); run_stage(root, code='1'); print(sorted(digest(root).items()))"
    )
    path = f"{REPOSITORY}{os.pathsep}{REPOSITORY / 'tests'}"
    environment = os.environ | {"PYTHONPATH": path, "PYTHONHASHSEED": "7"}
    before = str(sorted(digest(tmp_path).items()))
    output = subprocess.run(
        [sys.executable, "-c", script, str(tmp_path)], env=environment, capture_output=True, text=True, check=True
    )
    assert output.stdout.strip() == before


def test_finished_shards_are_not_drawn_again(tmp_path):
    write_corpus(tmp_path)
    run_stage(tmp_path)
    markers = {path: path.stat().st_mtime_ns for path in (tmp_path / ".supmer/shards").rglob(MARKER)}
    assert markers
    run_stage(tmp_path)
    assert {path: path.stat().st_mtime_ns for path in (tmp_path / ".supmer/shards").rglob(MARKER)} == markers


def test_nothing_is_left_of_the_pool(tmp_path):
    write_corpus(tmp_path)
    run_stage(tmp_path)
    assert not list((tmp_path / ".supmer" / "tmp").glob("*"))


def test_small_clusters_are_skipped_and_recorded(tmp_path):
    write_corpus(tmp_path, documents=100)
    record = run_stage(
        tmp_path, support_size=40, query_size=40, validation_tasks=3, format_mix={"sp": 0, "mc": 0, "ss": 1}
    )
    assert record["kinds"]["ss"]["validation"]["skipped_clusters"] == []
    rare = write_rare_cluster(tmp_path)
    record = run_stage(tmp_path, format_mix={"sp": 1, "mc": 0, "ss": 0}, train_tasks=40)
    assert rare in record["kinds"]["sp-cluster"]["train"]["skipped_clusters"]
    assert rare not in {row["anchor_cluster"] for row in tasks_table(tmp_path).to_pylist()}


def write_rare_cluster(root):
    """Put three sentences of a shard into a cluster of their own; returns it."""
    file = min((root / paths.ASSIGNMENTS).glob("*.parquet"))
    rows = pq.read_table(file).to_pylist()
    for row in rows[:3]:
        row["sp"] = 99
    write_table(file, rows)
    return 99


@pytest.mark.parametrize("kind", [kind for kinds in KINDS.values() for kind in kinds])
def test_too_few_sentences_are_refused_in_numbers(tmp_path, kind):
    write_corpus(tmp_path, documents=10)
    mix = {name: int(name == kind.partition("-")[0]) for name in KINDS}
    with pytest.raises(InputError) as error:
        run_stage(tmp_path, support_size=64, query_size=64, format_mix=mix)
    text = str(error.value)
    assert "materialize.support_size: 64 and query_size: 64: no train task of" in text
    assert "\n" not in text
    assert "raise sample.budget_mb" in text


def test_what_the_tasks_are_too_few_for_is_said(tmp_path):
    write_corpus(tmp_path)
    said = []
    run_stage(tmp_path, validation_tasks=3, say=said.append)
    assert "materialize.validation_tasks: 3: too few for a validation task of sp-cluster, mc-cluster" in said
    said.clear()
    run_stage(tmp_path, validation_tasks=6, say=said.append)
    assert not any("too few" in line for line in said)


def test_one_validation_document_is_not_enough_to_ask_what_follows(tmp_path):
    write_corpus(tmp_path, documents=30, sentences=60, held=30, clusters=2)
    mix = {"sp": 1, "mc": 0, "ss": 0}
    with pytest.raises(
        InputError, match=r"no validation task of sp-next.*of 1 document:?.*raise sample.validation_share"
    ):
        run_stage(tmp_path, format_mix=mix, support_size=4, query_size=4)


def test_documents_of_repeated_texts_give_true_tasks_all_the_same(tmp_path):
    write_corpus(tmp_path, documents=80, sentences=30, repeated=0.6, clusters=3)
    run_stage(tmp_path, hard_negative_share=0.9, format_mix={"sp": 1, "mc": 1, "ss": 0}, validation_tasks=4)
    for row in tasks_table(tmp_path).to_pylist():
        assert len({*row["texts"]}) == len(row["texts"])


def test_two_documents_are_enough(tmp_path):
    """Most draws at random hit the anchor's own document: then what is left is listed."""
    write_corpus(tmp_path, documents=10, sentences=400, held=2, clusters=2, repeated=0.0, shards=1)
    for path in (paths.DOCUMENTS, paths.SENTENCES, paths.ASSIGNMENTS):
        (file,) = (tmp_path / path).glob("*.parquet")
        rows = pq.read_table(file).to_pylist()
        kept = list(dict.fromkeys(row["document_id"] for row in rows))
        few = {kept[0]: 10**6, kept[1]: 10**6, kept[2]: 6, kept[3]: 6}
        counted = Counter()
        chosen = []
        for row in rows:
            counted[row["document_id"]] += 1
            if counted[row["document_id"]] <= few.get(row["document_id"], 0):
                chosen.append(row)
        write_table(file, chosen)
    run_stage(
        tmp_path, format_mix={"sp": 0, "mc": 1, "ss": 0}, hard_negative_share=0.0, train_tasks=8, validation_tasks=2
    )
    assert tasks_table(tmp_path).num_rows == 110


def test_a_shard_without_clusters_is_refused(tmp_path):
    write_corpus(tmp_path)
    file = max((tmp_path / paths.ASSIGNMENTS).glob("*.parquet"))
    file.unlink()
    with pytest.raises(InputError, match=rf"{file.name}: not there.*`supmer run cluster`"):
        materialize.run(stage_of(tmp_path))


@settings(max_examples=12, deadline=None)
@given(
    seed=st.integers(0, 10**6),
    support=st.integers(4, 9),
    query=st.integers(4, 9),
    repeated=st.floats(0, 0.4),
    hard=st.floats(0, 1),
)
def test_whatever_the_corpus_every_invariant_holds(tmp_path_factory, seed, support, query, repeated, hard):
    import duckdb

    from storage.checks.invariants import broken_invariants

    root = tmp_path_factory.mktemp("any")
    write_corpus(root, documents=140, seed=seed, repeated=repeated, clusters=4)
    sizes = {"support_size": support, "query_size": query, "hard_negative_share": hard}
    run_stage(root, seed=seed, train_tasks=12, validation_tasks=6, **sizes)
    with duckdb.connect() as connection:
        for path in (paths.ASSIGNMENTS, paths.DOCUMENTS, paths.SENTENCES, paths.TASKS):
            connection.execute(f"CREATE VIEW {Path(path).name} AS FROM read_parquet('{root / path}/*.parquet')")
        assert list(broken_invariants(connection)) == []
