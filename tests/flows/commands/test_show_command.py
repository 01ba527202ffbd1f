"""`supmer show` and `supmer trace` over tasks and clusters as the stages write them."""

import hashlib
import json
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from storage.parquet import write_shard
from storage.prompts.prompt_artifact import KIND
from storage.tables.cluster_tables import ASSIGNMENTS
from storage.tables.task_table import TASKS
from support import tiny_tokenizers
from support.task_tables import task_rows, write_tasks

REPOSITORY = Path(__file__).parents[3]
OUTS = (
    "data/sources/backbone, data/sources/corpus, data/sources/datasets, data/corpus/documents, data/corpus/sentences, "
    "data/clusters/assignments, data/clusters/centroids, data/clusters/nearest, data/tasks"
)
TEXT = "First of the kept. Second of the kept. Third one."
DOCUMENT = hashlib.sha256(TEXT.encode()).hexdigest()[:32]
COUNTS = {"sp-next": 3, "sp-cluster": 3, "mc-next": 3, "mc-cluster": 3, "ss": 3, "labeled-stars": 2}
KINDS = ["labeled-stars", "mc-cluster", "mc-next", "sp-cluster", "sp-next", "ss"]


def save(path, rows, schema=None):
    table = pa.Table.from_pylist(rows, schema=schema)
    write_shard(path, table.schema, [table], {})


def lay_out(root):
    """What acquire, sample, cluster and materialize leave behind, in small."""
    (root / "dvc.yaml").write_text(f"stages:\n  all:\n    cmd: 'false'\n    outs: [{OUTS}]\n")
    (root / "params.yaml").write_text((REPOSITORY / "params.yaml").read_text())
    (root / ".git").mkdir()
    (root / ".dvc").mkdir()
    for role, source in (("backbone", "inputs/backbone"), ("corpus", "news"), ("datasets", "stars")):
        file = {
            "name": "train.txt",
            "path": f"data/sources/{role}/{source}/train.txt",
            "bytes": 49,
            "sha256": "ab" * 32,
        }
        named = {"name": source, "spec": f"path:{source}", "licence": "MIT", "folder": source, "files": [file]}
        folder = root / "data/sources" / role
        folder.mkdir(parents=True)
        (folder / "source.json").write_text(json.dumps({"role": role, "sources": [named]}))
    place = {"source": "news", "file": "train.txt", "row": 1, "offset": 10, "bytes": 49, "words": 10, "sentences": 3}
    save(root / "data/corpus/documents/a.parquet", [{"document_id": DOCUMENT, **place, "split": "train", "shard": 0}])
    sentences = [
        {
            "document_id": DOCUMENT,
            "index": index,
            "start": index * 19,
            "end": index * 19 + len(text),
            "words": 4,
            "text": text,
        }
        for index, text in enumerate(TEXT.split(". "))
    ]
    save(root / "data/corpus/sentences/a.parquet", sentences)
    assigned = [{"document_id": DOCUMENT, "index": i, "sp": 3, "mc": None, "ss": 7 + i} for i in range(3)]
    save(root / "data/clusters/assignments/a.parquet", assigned, ASSIGNMENTS)
    lay_out_clusters(root / "data/clusters")
    lay_out_tasks(root / "data/tasks")


def lay_out_clusters(folder):
    clusters = [
        {"format": form, "cluster": cluster, "size": 100 + 10 * cluster, "merged": [40] if cluster == 19 else []}
        for form in ("sp", "ss")
        for cluster in range(20)
    ]
    save(folder / "centroids/centroids.parquet", clusters)
    near = [
        {
            "format": form,
            "cluster": cluster,
            "rank": rank,
            "document_id": DOCUMENT,
            "index": rank,
            "distance": 0.5 + rank,
        }
        | {"text": f"Topic {cluster} of {form}, number {rank}."}
        for form in ("sp", "ss")
        for cluster in range(20)
        for rank in range(5)
    ]
    save(folder / "nearest/nearest.parquet", near)


def lay_out_tasks(folder):
    write_tasks(folder, COUNTS, words=30)
    rows = task_rows("sp-next", 0, "validation")
    for row in rows:
        row["sentence_ids"] = [f"{DOCUMENT}:0", f"{DOCUMENT}:1"]
    save(folder / "sp-validation-00000.parquet", rows, TASKS)


@pytest.fixture(scope="module")
def tokenizer():
    return tiny_tokenizers.unigram()


@pytest.fixture
def workspace(tmp_path, monkeypatch):
    lay_out(tmp_path)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "200")
    return tmp_path


class TestTasks:
    def test_examples_are_in_the_words_of_the_template_with_the_target(self, supmer):
        code, out, err = supmer("show", "tasks", "--kind", "sp-cluster", "-n", "1")
        heading, text, target = out.splitlines()
        assert code == 0
        assert heading.startswith("sp-cluster  sp-train-")
        assert "Are these two sentences about the same topic? Answer yes or no. Sentence 1: " in text
        assert target.removeprefix("  target  ") in {"yes", "no"}
        assert "not cut: no fast tokenizer" in err

    def test_kinds_come_in_turn(self, supmer):
        _, out, _ = supmer("show", "tasks", "-n", "6", "--json")
        assert [one["kind"] for one in json.loads(out)] == KINDS

    def test_centroids_are_marked_with_their_nearest_sentence(self, supmer):
        _, out, _ = supmer("show", "tasks", "--kind", "ss", "--json", "-n", "2")
        for one in json.loads(out):
            assert len(one["choices"]) == 4
            for letter, cluster in zip("ABCD", one["choices"], strict=True):
                assert f"{letter}. ⟨μ {cluster}: Topic {cluster} of ss, number 0.⟩" in one["text"]

    def test_the_seed_chooses_and_repeats(self, supmer):
        first, again, other = (supmer("show", "tasks", "--seed", seed)[1] for seed in ("1", "1", "2"))
        assert first == again != other

    def test_with_the_backbones_tokenizer_texts_are_cut_as_for_the_model(self, supmer, workspace, tokenizer):
        tokenizer.save_pretrained(workspace / "inputs/backbone")
        path = workspace / "params.yaml"
        path.write_text(path.read_text().replace("max_length: 96", "max_length: 128"))
        _, out, err = supmer("show", "tasks", "--kind", "mc-next", "--json", "-n", "4")
        shown = json.loads(out)
        assert not err
        assert {one["tokens"] for one in shown} == {128}
        assert all(one["full_tokens"] > 128 and "…" in one["text"] for one in shown)
        assert all("Answer with A, B, C or D:" in one["text"] for one in shown)
        _, out, _ = supmer("show", "tasks", "--kind", "mc-next", "-n", "1")
        assert "  tokens  128, cut from " in out

    def test_the_sentinel_form_is_shown_where_params_say_so(self, supmer, workspace):
        path = workspace / "params.yaml"
        path.write_text(path.read_text().replace("template: instruction", "template: sentinel"))
        _, out, _ = supmer("show", "tasks", "--kind", "sp-next", "-n", "1")
        assert " <extra_id_0>. " in out
        assert "  target  <extra_id_0> " in out

    def test_an_unknown_kind_is_one_line_with_those_there_are(self, supmer):
        code, _, err = supmer("show", "tasks", "--kind", "sp-nxt")
        assert code == 2
        assert err == f"supmer: data/tasks: no task of kind sp-nxt in split train, there is {', '.join(KINDS)}\n"

    def test_tasks_not_made_yet_name_the_stage(self, supmer, workspace):
        for path in (workspace / "data/tasks").iterdir():
            path.unlink()
        code, _, err = supmer("show", "tasks")
        assert code == 2
        assert err == "supmer: data/tasks: no tasks in split train: `supmer run materialize` makes them\n"

    def test_a_damaged_shard_is_one_line(self, supmer, workspace):
        (workspace / "data/tasks/ss-train-00000.parquet").write_bytes(b"PAR1 nothing")
        code, _, err = supmer("show", "tasks")
        assert code == 2
        assert err.count("\n") == 1
        assert "ss-train-00000.parquet: damaged or gone" in err

    def test_it_is_quick_torch_and_transformers_stay_out(self, workspace, tokenizer):
        tokenizer.save_pretrained(workspace / "inputs/backbone")
        program = "import sys; sys.argv = ['supmer', 'show', 'tasks']; from flows.cli import main\n"
        program += "try: main()\nexcept SystemExit: print({'torch', 'transformers', 'prefect'} & set(sys.modules))"
        done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
        assert done.stdout.splitlines()[-1] == "set()"


class TestClusters:
    def test_the_largest_come_first_with_their_nearest_sentences(self, supmer):
        code, out, _ = supmer("show", "clusters", "--format", "sp", "-n", "2", "--sentences", "2")
        assert code == 0
        assert out.splitlines() == [
            "sp: 20 clusters of 3,900 sentences",
            "  cluster 19: 290 sentences, including the former 40",
            "      0.500  Topic 19 of sp, number 0.",
            "      1.500  Topic 19 of sp, number 1.",
            "  cluster 18: 280 sentences",
            "      0.500  Topic 18 of sp, number 0.",
            "      1.500  Topic 18 of sp, number 1.",
        ]

    def test_every_format_is_listed_by_default(self, supmer):
        found = json.loads(supmer("show", "clusters", "--json")[1])
        assert [one["format"] for one in found] == ["sp", "ss"]
        assert [len(one["largest"]) for one in found] == [10, 10]
        assert found[0]["largest"][0]["nearest"][0]["sentence_id"] == f"{DOCUMENT}:0"

    def test_an_unknown_format_is_refused_with_those_there_are(self, supmer):
        code, _, err = supmer("show", "clusters", "--format", "zz")
        assert code == 2
        assert "'zz' is not one of 'sp', 'mc', 'ss'" in err

    def test_clusters_not_made_yet_name_the_stage(self, supmer, workspace):
        (workspace / "data/clusters/centroids/centroids.parquet").unlink()
        code, _, err = supmer("show", "clusters")
        assert code == 2
        assert err == "supmer: data/clusters/centroids: not made yet: `supmer run cluster` makes it\n"


def test_show_alone_says_in_a_line_what_is_missing(supmer):
    code, _, err = supmer("show")
    assert code == 2
    assert err.startswith("supmer: show: one of clusters, tasks is missing (see `")
    assert err.count("\n") == 1


class TestTrace:
    def test_an_example_is_followed_to_sentences_clusters_document_file_and_offset(self, supmer):
        code, out, _ = supmer("trace", "sp-validation-000000/q01")
        lines = out.splitlines()
        assert code == 0
        assert lines[0] == f"example sp-validation-000000/q01 of tasks: sentences {DOCUMENT}:0, {DOCUMENT}:1"
        assert lines[1] == (
            "  task_id sp-validation-000000, format sp, kind sp-next, split validation, role query, position 1, "
            "label 1, labels 3, clusters [0, 0], anchor_cluster 0"
        )
        assert "  clusters  sp 3, mc dropped, ss 7" in lines
        assert f"  document  {DOCUMENT}, split train, 10 words, 3 sentences, 49 bytes" in lines
        assert lines.count("  file      data/sources/corpus/news/train.txt, row 1, byte 10") == 2

    def test_as_json_with_what_the_row_says(self, supmer):
        found = json.loads(supmer("trace", "sp-validation-000000/s00", "--json")[1])
        assert found["facts"]["tasks"]["kind"] == "sp-next"
        assert [trace["clusters"]["ss"] for trace in found["traces"]] == [7, 8]

    def test_a_labeled_example_is_followed_to_its_set(self, supmer):
        code, out, _ = supmer("trace", "labeled-train-000000/s03")
        assert code == 0
        assert "dataset stars, row 3 of its training files" in out.splitlines()
        assert "  source    path:stars, licence MIT" in out.splitlines()

    def test_a_labeled_example_is_followed_to_the_row_of_its_file(self, supmer, workspace):
        record = workspace / "data/sources/datasets/source.json"
        record.write_bytes(record.read_bytes().replace(b"train.txt", b"train.csv"))
        file = workspace / "data/sources/datasets/stars/train.csv"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text("text,label\n" + "".join(f"row {number},0\n" for number in range(1, 5)))
        _, out, _ = supmer("trace", "labeled-train-000000/s03")
        assert "  file      data/sources/datasets/stars/train.csv, row 3" in out.splitlines()
        file.write_text("text,label\nrow 1,0\n")
        _, out, _ = supmer("trace", "labeled-train-000000/s03")
        assert "  file      not found: its training files have fewer rows" in out.splitlines()

    @pytest.mark.parametrize(
        ("given", "told"),
        [
            ("sp-train-000000/q99", "no such example in the task of 8: name one, such as sp-train-000000/s00"),
            ("sp-train-999999/q00", "no such task: `supmer show tasks` prints some with their ids"),
            ("xx-train-1", "no such task"),
        ],
    )
    def test_an_unknown_task_or_example_is_told_as_such(self, supmer, given, told):
        code, _, err = supmer("trace", given)
        assert code == 2
        assert err.startswith(f"supmer: {given}: {told}")

    def test_a_task_is_followed_to_its_examples(self, supmer):
        code, out, _ = supmer("trace", "sp-validation-000000")
        assert code == 0
        assert out.startswith("example sp-validation-000000/s00: role support, kind sp-next, label ")
        assert f"example sp-validation-000000/q01: role query, kind sp-next, label 1, sentences {DOCUMENT}:0" in out

    def test_uses_names_the_prompts_whose_training_tasks_hold_a_document(self, supmer, workspace):
        for name, formats in (("seen", ["sp", "mc", "ss"]), ("unseen", ["labeled"])):
            folder = workspace / "artifacts/prompt" / name
            folder.mkdir(parents=True)
            (folder / "config.json").write_text(json.dumps({"kind": KIND, "training": {"formats": formats}}))
        (only,) = json.loads(supmer("uses", DOCUMENT, "--json")[1])["direct"]["prompts"]
        assert (only["path"], only["training"]) == ("artifacts/prompt/seen", 0)  # only held-out tasks name it
        held = pq.read_table(workspace / "data/tasks/sp-validation-00000.parquet")
        place = held.schema.get_field_index("split")
        trained = held.set_column(place, "split", pa.array(["train"] * len(held)))
        pq.write_table(trained, workspace / "data/tasks/sp-train-00099.parquet")
        found = json.loads(supmer("uses", DOCUMENT, "--json")[1])
        (seen,) = found["direct"]["prompts"]
        assert seen["training"] > 0
        assert "sp" in seen["formats"]
        assert found["indirect"]["prompts"] == []
        assert f"  artifacts/prompt/seen: {seen['training']} training and" in supmer("uses", DOCUMENT)[1]

    def test_uses_finds_the_tasks_that_saw_a_document(self, supmer):
        found = json.loads(supmer("uses", DOCUMENT, "--json")[1])
        rows = {use["view"]: use["rows"] for use in found["uses"]}
        assert rows["tasks"] == 8
        assert rows["assignments"] == 3
