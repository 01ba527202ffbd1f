import gzip
import hashlib
import random
import shutil
from itertools import pairwise
from pathlib import Path

import orjson
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from storage import paths
from storage.errors import InputError
from storage.hashing import document_id
from storage.sources.source import AcquiredSource, SourceFile
from tasks.params.schema import NearDuplicateParams, Params, SampleParams
from tasks.sample import reading_units
from tasks.sample import stage as sample
from tasks.sample.reading_units import cut_corpus, shard_name
from tasks.stage.contract import MARKER, InlineFanOut, SilentReporter, Stage

OUTPUTS = [
    paths.DOCUMENTS,
    paths.EXCLUDED,
    paths.SENTENCES,
    paths.SAMPLE_METRICS,
    paths.EXCLUDED_PLOT,
    paths.SENTENCE_WORDS_PLOT,
]
NOUNS = (
    "river",
    "garden",
    "engine",
    "letter",
    "captain",
    "window",
    "market",
    "soldier",
    "bridge",
    "village",
    "mountain",
)
VERBS = (
    "crossed",
    "painted",
    "repaired",
    "carried",
    "watched",
    "followed",
    "measured",
    "described",
    "opened",
    "counted",
)


class BackwardFanOut:
    """The last job first: results must not depend on the order of work."""

    def run(self, _step, jobs, finished):
        for job in reversed(jobs):
            finished(job, job.execute())


def story(seed: int, sentences: int = 12) -> str:
    source = random.Random(seed)
    return " ".join(
        f"The {source.choice(NOUNS)} of the {source.choice(NOUNS)} {source.choice(VERBS)} the {source.choice(NOUNS)} "
        f"with {source.choice(NOUNS)} number {source.randrange(10**6)} in it."
        for _ in range(sentences)
    )


def lines(texts) -> bytes:
    return b"".join(orjson.dumps({"text": text}) + b"\n" for text in texts)


class Workspace:
    """A folder with a corpus and a way to run the stage on it."""

    def __init__(self, root: Path):
        self.root = root
        self.files: dict[tuple[str, str], Path] = {}

    def add(self, name: str, content: bytes, source: str = "own") -> None:
        path = self.root / "inputs" / source / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
        self.files[source, name] = path

    def manifest(self, backward: bool = False) -> None:
        sources: dict[str, list] = {}
        for (source, name), path in sorted(self.files.items(), reverse=backward):
            content = path.read_bytes()
            sha256 = hashlib.sha256(content).hexdigest()
            file = {"name": name, "path": str(path.relative_to(self.root)), "bytes": len(content), "sha256": sha256}
            sources.setdefault(source, []).append(file)
        listed = [
            {"name": name, "spec": "path:x", "licence": "", "folder": f"inputs/{name}", "files": files}
            for name, files in sources.items()
        ]
        folder = self.root / paths.CORPUS
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "source.json").write_bytes(orjson.dumps({"role": "corpus", "sources": listed}))

    def run(self, seed=1, fan_out=None, backward=False, **changes):
        self.manifest(backward)
        near = NearDuplicateParams(**changes.pop("near", {}))
        params = SampleParams(**{"min_words": 10, "near_duplicates": near} | changes)
        stage = Stage(
            name="sample",
            root=self.root,
            params=Params.model_construct(seed=seed, sample=params),
            inputs=[paths.CORPUS],
            outputs=OUTPUTS,
            fingerprint="f" * 64,
            code="c" * 64,
            fan_out=fan_out or InlineFanOut(),
            reporter=SilentReporter(),
        )
        stage.start()
        record = sample.run(stage)
        stage.publish()
        stage.settle()
        return record

    def rows(self, output: str) -> list[dict]:
        return [row for path in sorted((self.root / output).iterdir()) for row in pq.read_table(path).to_pylist()]

    def contents(self, *outputs: str) -> dict[str, bytes]:
        files = [path for output in outputs or OUTPUTS for path in self._files(self.root / output)]
        return {str(path.relative_to(self.root)): path.read_bytes() for path in files}

    def markers(self, step: str) -> dict[str, int]:
        store = self.root / ".supmer" / "shards" / "sample" / step
        return {path.parent.name: path.stat().st_mtime_ns for path in store.glob(f"*/{MARKER}")}

    @staticmethod
    def _files(path: Path) -> list[Path]:
        return sorted(path.iterdir()) if path.is_dir() else [path]


@pytest.fixture
def workspace(tmp_path):
    return Workspace(tmp_path)


@pytest.fixture
def mixed(workspace):
    """Every form of file, with duplicates, near duplicates and documents to be left out."""
    texts = [story(seed) for seed in range(60)]
    workspace.add("a.jsonl", lines([*texts[:20], texts[3], "too short", "", None]))
    workspace.add("b.jsonl.gz", gzip.compress(lines([*texts[20:30], texts[21] + " One more word here."])))
    table = pa.table({"text": texts[30:45]})
    sink = pa.BufferOutputStream()
    pq.write_table(table, sink, row_group_size=4)
    workspace.add("c.parquet", sink.getvalue().to_pybytes(), "other")
    workspace.add("d.csv", ("id,text\n" + "".join(f'1,"{text}"\n' for text in texts[45:50])).encode(), "other")
    for number, text in enumerate(texts[50:]):
        workspace.add(f"texts/{number}.txt", text.encode(), "other")
    workspace.add("README.md", b"about", "other")
    return workspace


def test_documents_sentences_and_exclusions_account_for_every_document(mixed):
    record = mixed.run()
    documents, excluded, sentences = (
        mixed.rows(output) for output in (paths.DOCUMENTS, paths.EXCLUDED, paths.SENTENCES)
    )
    assert len(documents) == record["documents"] == 60
    assert len(sentences) == record["sentences"] == record["rows"] == 60 * 12
    assert record["excluded"] == {"empty": 2, "duplicate": 1, "near_duplicate": 1, "too_short": 1}
    assert sorted(row["reason"] for row in excluded) == ["duplicate", "empty", "empty", "near_duplicate", "too_short"]
    assert {row["document_id"] for row in documents} == {document_id(story(seed)) for seed in range(60)} - {
        row["document_id"] for row in excluded
    } | {row["document_id"] for row in excluded if row["reason"] == "duplicate"} | {
        row["duplicate_of"] for row in excluded if row["duplicate_of"]
    }


def test_every_sentence_is_found_at_its_place_in_its_document(mixed):
    mixed.run()
    texts = {document_id(story(seed)): story(seed) for seed in range(60)}
    texts |= {document_id(text): text for text in [story(21) + " One more word here."]}
    places = {(row["document_id"], row["index"]) for row in mixed.rows(paths.SENTENCES)}
    for row in mixed.rows(paths.SENTENCES):
        assert texts[row["document_id"]][row["start"] : row["end"]] == row["text"]
        assert row["words"] == len(row["text"].split())
        assert row["index"] == 0 or (row["document_id"], row["index"] - 1) in places


def test_locators_lead_back_to_the_text(mixed):
    mixed.run()
    for row in mixed.rows(paths.DOCUMENTS):
        path = mixed.files[row["source"], row["file"]]
        if row["file"].endswith(".jsonl"):
            line = path.read_bytes()[row["offset"] :].split(b"\n")[0]
            assert line == path.read_bytes().split(b"\n")[row["row"] - 1]
            assert document_id(orjson.loads(line)["text"]) == row["document_id"]
        elif row["file"].endswith(".parquet"):
            assert document_id(pq.read_table(path)["text"][row["row"] - 1].as_py()) == row["document_id"]


def test_what_is_left_out_keeps_its_text_where_it_is_found_nowhere_else(mixed):
    mixed.run()
    kept = {row["reason"]: row["text"] is not None for row in mixed.rows(paths.EXCLUDED)}
    assert kept == {"empty": True, "too_short": True, "near_duplicate": True, "duplicate": False}
    near = next(row for row in mixed.rows(paths.EXCLUDED) if row["reason"] == "near_duplicate")
    assert near["duplicate_of"] < near["document_id"]
    assert near["duplicate_of"] in {row["document_id"] for row in mixed.rows(paths.DOCUMENTS)}
    duplicate = next(row for row in mixed.rows(paths.EXCLUDED) if row["reason"] == "duplicate")
    assert (duplicate["row"], duplicate["detail"]) == (21, "own/a.jsonl row 4")


def test_near_duplicates_stay_where_removal_is_off(mixed):
    assert "near_duplicate" not in mixed.run(near={"enabled": False})["excluded"]


def test_a_chain_of_near_duplicates_leads_to_one_that_stays(workspace):
    text = story(5, 60)
    variants = [text.replace("number", f"number{'x' * tail}", tail) for tail in range(12)]
    workspace.add("a.jsonl", lines(variants))
    workspace.run()
    kept = {row["document_id"] for row in workspace.rows(paths.DOCUMENTS)}
    assert len(kept) < 6
    assert {row["duplicate_of"] for row in workspace.rows(paths.EXCLUDED)} <= kept


def test_sentences_of_other_lengths_are_counted_but_not_written(workspace):
    text = f"{story(1, 2)} Stop. {story(2, 2)}"
    workspace.add("a.jsonl", lines([text]))
    workspace.run()
    assert [row["index"] for row in workspace.rows(paths.SENTENCES)] == [0, 1, 3, 4]
    assert workspace.rows(paths.DOCUMENTS)[0]["sentences"] == 5


def test_white_space_inside_a_sentence_becomes_one_space(workspace):
    workspace.add(
        "a.txt", b"\r\n The river  crossed\tthe garden in the long and very early morning light of the\r\nlast day. \n"
    )
    workspace.run()
    row = workspace.rows(paths.SENTENCES)[0]
    assert row["text"] == "The river crossed the garden in the long and very early morning light of the last day."
    assert (row["start"], row["words"]) == (0, 17)


def test_equal_inputs_give_equal_bytes_whatever_the_order_of_work(mixed, tmp_path_factory):
    mixed.run(shard_mb=0.004)
    other = Workspace(tmp_path_factory.mktemp("other"))
    for (source, name), path in reversed(mixed.files.items()):
        other.add(name, path.read_bytes(), source)
    other.run(shard_mb=0.004, fan_out=BackwardFanOut(), backward=True)
    assert len(mixed.contents()) > 20
    assert other.contents() == mixed.contents()


def test_what_ran_before_does_not_show(mixed):
    mixed.run()
    first = mixed.contents()
    mixed.run(budget_mb=0.01, seed=3, min_words=100)
    assert mixed.contents() != first
    mixed.run()
    assert mixed.contents() == first


def test_the_size_of_shards_does_not_change_what_is_kept(mixed):
    def tables():
        by_id = {row["document_id"]: row | {"shard": ""} for row in mixed.rows(paths.DOCUMENTS)}
        return by_id, sorted((row["document_id"], row["index"], row["text"]) for row in mixed.rows(paths.SENTENCES))

    mixed.run()
    whole = tables()
    mixed.run(shard_mb=0.003)
    assert tables() == whole


def test_a_new_file_leaves_the_other_shards_and_their_work_alone(mixed):
    mixed.run()
    sentences, indexed, written = mixed.contents(paths.SENTENCES), mixed.markers("index"), mixed.markers("write")
    mixed.add("new.jsonl", lines(story(seed) for seed in range(100, 110)))
    mixed.run()
    after = mixed.contents(paths.SENTENCES)
    assert {name: after[name] for name in sentences} == sentences
    assert len(after) == len(sentences) + 1
    for before, now in ((indexed, mixed.markers("index")), (written, mixed.markers("write"))):
        assert {name: now[name] for name in before} == before
        assert len(now) == len(before) + 1


def groups_of(root, names, size):
    """The names in each group of text files of ten bytes."""
    for name in names:
        (root / name).write_bytes(b"ten bytes.")
    files = tuple(SourceFile(name, name, 10, "") for name in names)
    units = cut_corpus([AcquiredSource("own", "path:own", "", "", files)], root, size)
    assert [unit.size for unit in units] == [10 * len(unit.parts) for unit in units]
    return [tuple(part.name for part in unit.parts) for unit in units]


def test_a_new_text_file_changes_its_own_group_alone_where_none_is_full(tmp_path, monkeypatch):
    monkeypatch.setattr(reading_units, "_GROUP_FILES", 16)
    names = [f"{number:03d}.txt" for number in range(300)]
    before = groups_of(tmp_path, names, 10_000)
    assert 10 < len(before) < 30
    assert [name for group in before for name in group] == names
    after = groups_of(tmp_path, [*names, "150-new.txt"], 10_000)
    [new] = {*after} - {*before}
    assert {*before} - {*after} == {tuple(name for name in new if name != "150-new.txt")}


def test_a_new_text_file_changes_full_groups_up_to_the_next_name_that_ends_one(tmp_path, monkeypatch):
    monkeypatch.setattr(reading_units, "_GROUP_FILES", 64)
    names = [f"{number:03d}.txt" for number in range(300)]
    ends = {group[-1] for group in groups_of(tmp_path, names, 10_000)}
    before = groups_of(tmp_path, names, 50)
    assert max(map(len, before)) == 5
    after = groups_of(tmp_path, [*names, "150-new.txt"], 50)
    next_end = min(name for name in ends if name > "150-new.txt")
    changed = {name for group in {*before} - {*after} for name in group}
    assert min(changed) > "145.txt"
    assert max(changed) <= next_end
    assert len({*after} - {*before}) > 1  # where full groups end, those behind them move


def test_the_seed_and_the_share_move_only_the_split(mixed):
    mixed.run()
    before, indexed, written = (
        mixed.contents(paths.SENTENCES, paths.EXCLUDED),
        mixed.markers("index"),
        mixed.markers("write"),
    )
    mixed.run(seed=2, validation_share=0.5)
    assert mixed.contents(paths.SENTENCES, paths.EXCLUDED) == before
    assert (mixed.markers("index"), mixed.markers("write")) == (indexed, written)


@pytest.mark.parametrize(("share", "expected"), [(0.001, 1), (0.25, 15), (0.999, 59)])
def test_the_share_of_validation_documents_is_exact(mixed, share, expected):
    record = mixed.run(validation_share=share)
    split = [row["split"] for row in mixed.rows(paths.DOCUMENTS)]
    assert split.count("validation") == record["validation_documents"] == expected
    assert split.count("train") == 60 - expected


def test_shards_say_where_they_come_from(mixed):
    mixed.run()
    for row in mixed.rows(paths.DOCUMENTS):
        assert (mixed.root / paths.SENTENCES / row["shard"]).is_file()
    path = mixed.root / paths.SENTENCES / shard_name("own", "a.jsonl", 0)
    provenance = orjson.loads(pq.ParquetFile(path).schema_arrow.metadata[b"supmer.provenance"])
    assert provenance["source"] == "own"
    sha256 = hashlib.sha256(mixed.files["own", "a.jsonl"].read_bytes()).hexdigest()
    assert [(part["name"], part["sha256"]) for part in provenance["parts"]] == [("a.jsonl", sha256)]


def test_metrics_and_plots_agree_with_the_tables(mixed):
    record = mixed.run()
    metrics = orjson.loads((mixed.root / paths.SAMPLE_METRICS).read_bytes())
    assert metrics == {key: value for key, value in record.items() if key != "rows"}
    lengths = [
        int(line.split(",")[1]) for line in (mixed.root / paths.SENTENCE_WORDS_PLOT).read_text().splitlines()[1:]
    ]
    assert sum(lengths) == sum(row["sentences"] for row in mixed.rows(paths.DOCUMENTS))
    assert (mixed.root / paths.EXCLUDED_PLOT).read_text().splitlines()[:2] == ["documents,reason", "2,empty"]


def test_nothing_is_left_behind(mixed):
    mixed.run()
    assert not list((mixed.root / ".supmer" / "tmp").rglob("*"))


@settings(max_examples=8, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.permutations(range(14)), st.lists(st.integers(1, 13), max_size=3, unique=True), st.integers(1, 14))
def test_the_draw_depends_on_content_alone_and_keeps_to_the_budget(tmp_path, order, cuts, budget):
    root = tmp_path / "draw"
    shutil.rmtree(root, ignore_errors=True)
    workspace = Workspace(root)
    limits = [0, *sorted(cuts), 14]
    for number, (start, stop) in enumerate(pairwise(limits)):
        workspace.add(f"{number}.jsonl", lines(story(seed) for seed in order[start:stop]))
    sizes = {document_id(story(seed)): len(story(seed)) for seed in range(14)}
    limit = budget * 1_000
    workspace.run(budget_mb=limit / 1e6)
    drawn = {row["document_id"] for row in workspace.rows(paths.DOCUMENTS)}
    expected: set[str] = set()
    for name in sorted(sizes):
        if sum(sizes[other] for other in expected) + sizes[name] > limit:
            break
        expected.add(name)
    assert drawn == expected
    assert {row["reason"] for row in workspace.rows(paths.EXCLUDED)} <= {"not_drawn"}


def message(workspace: Workspace, **changes) -> str:
    with pytest.raises(InputError) as error:
        workspace.run(**changes)
    assert "\n" not in str(error.value)
    return str(error.value)


def test_an_empty_corpus_is_said(workspace):
    workspace.add("a.jsonl", b"\n")
    assert message(workspace) == (
        "data/sources/corpus: no document in 1 files: add documents, or check acquire.corpus in params.yaml"
    )


def test_a_corpus_of_which_nothing_is_left_is_said_with_the_reasons(workspace):
    workspace.add("a.jsonl", lines(["short", "brief", ""]))
    assert message(workspace) == (
        "data/sources/corpus: every one of 3 documents is filtered out (too_short 2, empty 1): relax sample.* filters"
    )


def test_a_budget_below_the_first_text_is_said(workspace):
    workspace.add("a.jsonl", lines([story(1)]))
    assert message(workspace, budget_mb=0.0001).startswith("params.yaml: sample.budget_mb: 0.0001: no text fits (the")


def test_an_unknown_language_is_said(workspace):
    workspace.add("a.jsonl", lines([story(1)]))
    assert message(workspace, language="xx").startswith("params.yaml: sample.language: 'xx' is not known: use null or")


def test_a_file_that_changed_since_it_was_acquired_is_said(workspace):
    workspace.add("a.jsonl", lines([story(1)]))
    workspace.manifest()
    manifest = workspace.root / paths.CORPUS / "source.json"
    workspace.manifest = lambda _backward: None
    (workspace.root / "inputs/own/a.jsonl").write_bytes(b"{}\n")
    assert "3 bytes where acquire found" in message(workspace)
    manifest.unlink()
    assert "source.json" in message(workspace)


def test_an_unknown_kind_of_file_is_refused_with_its_source_and_place(workspace):
    workspace.add("sub/a.docx", b"")
    expected = "acquire.corpus.own: inputs/own/sub/a.docx: unknown kind of file; what is read: "
    assert message(workspace).startswith(expected)


def test_a_bad_line_in_a_later_part_is_named_by_its_line_in_the_file(workspace):
    workspace.add("a.jsonl", lines(story(seed) for seed in range(30)) + b"oops\n")
    assert "a.jsonl: line 31: not JSON" in message(workspace, shard_mb=0.004)


def test_names_of_shards_differ_where_names_of_files_do():
    names = [("s", "a b.jsonl"), ("s", "a-b.jsonl"), ("s", "a/b.jsonl"), ("s", "a__b.jsonl"), ("s", "x" * 300)]
    names += [("s", "b--c.jsonl"), ("s--b", "c.jsonl")]
    assert len({shard_name(*name, 0) for name in names}) == len(names)
    assert shard_name("news", "a.csv", 3).startswith("news--a.csv-")
