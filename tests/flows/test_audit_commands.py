"""`supmer lineage`, `trace`, `uses` and `verify` on a real DVC repository with real Parquet files."""

import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
import uuid
from datetime import UTC, datetime

import pytest

from flows.cli import main
from storage.lineage import Artifact, StageEvent, emit
from storage.lockfile import cache_folder, object_path, read_pipeline

PIPELINE = """\
stages:
  acquire:
    cmd: {python} make.py acquire
    deps: [make.py]
    params: [acquire]
    outs: [data/sources/corpus]
  sample:
    cmd: {python} make.py sample
    deps: [data/sources/corpus, make.py]
    params: [seed]
    outs: [data/corpus/documents, data/corpus/excluded, data/corpus/sentences]
    metrics: [data/metrics.json]
  materialize:
    cmd: {python} make.py materialize
    deps: [data/corpus/sentences]
    outs: [data/examples]
  metatrain:
    cmd: "false"
    deps: [data/examples]
    outs: [data/prompt]
"""

TEXTS = ("First of the kept. Second of the kept. Third one.", "Another kept text. It ends.", "bad")

MAKE = """
import hashlib, json, sys
from pathlib import Path
import pyarrow as pa, pyarrow.parquet as pq

TEXTS = {texts!r}
IDS = [hashlib.sha256(text.encode()).hexdigest()[:32] for text in TEXTS]

def save(folder, name, table):
    Path(folder).mkdir(parents=True, exist_ok=True)
    pq.write_table(table, Path(folder, name))

def acquire():
    folder = Path("data/sources/corpus/news")
    folder.mkdir(parents=True)
    (folder / "news.txt").write_text("\\n".join(TEXTS))
    content = (folder / "news.txt").read_bytes()
    sha256 = hashlib.sha256(content).hexdigest()
    file = dict(name="news.txt", path=str(folder / "news.txt"), bytes=len(content), sha256=sha256)
    source = dict(name="news", spec="wheel:news==1.0", licence="MIT", folder=str(folder), files=[file])
    Path("data/sources/corpus/source.json").write_text(json.dumps(dict(role="corpus", sources=[source])))

def sample():
    rows = [dict(document_id=i, source="news", file="news.txt", row=n, offset=n * 10, bytes=len(t),
                 words=len(t.split()), sentences=t.count("."), split="train", shard=0)
            for n, (i, t) in enumerate(zip(IDS, TEXTS))]
    save("data/corpus/documents", "0.parquet", pa.Table.from_pylist(rows[:1]))
    save("data/corpus/documents", "1.parquet", pa.Table.from_pylist(rows[1:2]))
    excluded = [dict(document_id=IDS[2], source="news", file="news.txt", row=2, offset=None, reason="too_short",
                     detail="1 word", duplicate_of=None, text=TEXTS[2]),
                dict(document_id=IDS[0], source="news", file="news.txt", row=3, offset=None, reason="exact_duplicate",
                     detail=None, duplicate_of=IDS[0], text=TEXTS[0])]
    save("data/corpus/excluded", "0.parquet", pa.Table.from_pylist(excluded))
    sentences = []
    for i, text in zip(IDS[:2], TEXTS):
        start = 0
        for index, part in enumerate(text.split(". ")):
            end, words = start + len(part), len(part.split())
            sentences.append(dict(document_id=i, index=index, start=start, end=end, words=words, text=part))
            start += len(part) + 2
    save("data/corpus/sentences", "0.parquet", pa.Table.from_pylist(sentences))
    Path("data/metrics.json").write_text("{{}}")

def materialize():
    first, second = IDS[:2]
    choices = [first + ":1", second + ":0"]
    rows = [dict(example_id="sp-next-0", anchor_sentence_id=first + ":0", choice_sentence_ids=choices),
            dict(example_id="sp-next-1", anchor_sentence_id=first + ":1", choice_sentence_ids=[first + ":2"])]
    save("data/examples/train", "0.parquet", pa.Table.from_pylist(rows))

globals()[sys.argv[1]]()
"""

FIRST, SECOND, BAD = (hashlib.sha256(text.encode()).hexdigest()[:32] for text in TEXTS)


def dvc(root, *arguments):
    environment = os.environ | {"DVC_NO_ANALYTICS": "1"}
    subprocess.run([sys.executable, "-m", "dvc", *arguments, "-q"], cwd=root, env=environment, check=True)


def announce(root, stage):
    locked = read_pipeline(root).locked[stage]
    artifact = {
        kind: tuple(Artifact(item.path, item.md5 or "", item.bytes or 0, rows) for item in items)
        for kind, items, rows in (("inputs", locked.inputs, None), ("outputs", locked.outputs, 77))
    }
    emit(
        root,
        StageEvent(
            stage=stage,
            state="COMPLETE",
            run_id=str(uuid.uuid4()),
            time=datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC),
            **artifact,
            git_commit="abcdef0123456789+",
            prefect_run_id="prefect-9",
            record={"seconds": 2.25},
        ),
    )


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    root = tmp_path_factory.mktemp("made") / "workspace"
    root.mkdir()
    dvc(root, "init", "--no-scm")
    dvc(root, "config", "cache.type", "copy")
    (root / ".dvc/config.local").write_text("[core]\nno_scm = true\n")
    (root / "dvc.yaml").write_text(PIPELINE.format(python=sys.executable))
    (root / "make.py").write_text(MAKE.format(texts=TEXTS))
    (root / "params.yaml").write_text("seed: 3\nacquire: {corpus: 'wheel:news==1.0'}\n")
    dvc(root, "repro", "materialize")
    announce(root, "acquire")
    return root


@pytest.fixture
def workspace(made, tmp_path, monkeypatch):
    root = tmp_path / "workspace"
    shutil.copytree(made, root)
    monkeypatch.chdir(root)
    monkeypatch.setenv("COLUMNS", "200")
    return root


@pytest.fixture
def supmer(workspace, monkeypatch, capsys):
    def call(*arguments):
        monkeypatch.setattr(sys, "argv", ["supmer", *arguments])
        try:
            main()
            code = 0
        except SystemExit as stop:
            code = stop.code
        out, err = capsys.readouterr()
        assert "\x1b" not in out
        return code, out, err

    return call


def overwrite(path, content):
    path.chmod(0o644)
    path.write_bytes(content)


class TestLineage:
    def test_the_tree_ends_in_sources_with_hash_and_licence(self, supmer, workspace):
        code, out, _ = supmer("lineage", "data/examples")
        lines = out.splitlines()
        sha256 = hashlib.sha256((workspace / "data/sources/corpus/news/news.txt").read_bytes()).hexdigest()
        assert code == 0
        assert lines[0].startswith("data/examples  ")
        assert "2 rows, md5 " in lines[0]
        assert (
            lines[1]
            == "└─ materialize: no lineage event for this version (it was made without supmer, or the log is gone)"
        )
        assert lines[2].startswith("   └─ data/corpus/sentences")
        assert "sample: " in lines[3]
        assert "parameters: seed=3" in lines[4]
        assert "code: make.py" in lines[5]
        assert "source news: wheel:news==1.0, licence MIT" in out
        assert f"sha256 {sha256}" in out
        assert (
            "ran 2026-01-02 03:04:05 UTC, 2.2 s, git abcdef012345 with uncommitted changes, Prefect run prefect-9"
            in out
        )

    def test_a_stage_name_gives_all_its_outputs_and_repeats_no_subtree(self, supmer):
        _, out, _ = supmer("lineage", "sample")
        tops = [line for line in out.splitlines() if line.startswith("data/")]
        assert [line.split()[0] for line in tops] == [
            "data/corpus/documents",
            "data/corpus/excluded",
            "data/corpus/sentences",
            "data/metrics.json",
        ]
        assert out.count("sample (above)") == 3

    def test_a_file_inside_an_artifact_is_found_from_a_subfolder(self, supmer, workspace, monkeypatch):
        monkeypatch.chdir(workspace / "data/corpus")
        _, out, _ = supmer("lineage", "documents/0.parquet")
        md5 = hashlib.md5((workspace / "data/corpus/documents/0.parquet").read_bytes(), usedforsecurity=False)
        assert out.startswith(
            f"data/corpus/documents/0.parquet is a file of data/corpus/documents, md5 {md5.hexdigest()}"
        )

    def test_json_nests_stages_and_inputs(self, supmer):
        (tree,) = json.loads(supmer("lineage", "sentences", "--json")[1])
        assert tree["stage"]["parameters"] == {"seed": 3}
        (corpus,) = tree["stage"]["inputs"]
        assert corpus["sources"][0]["licence"] == "MIT"
        assert corpus["stage"]["prefect_run_id"] == "prefect-9"
        assert corpus["rows"] == 77

    def test_an_input_that_was_remade_since_is_pointed_out(self, supmer, workspace):
        md5 = read_pipeline(workspace).locked["materialize"].inputs[0].md5
        before, materialize, after = (workspace / "dvc.lock").read_text().partition("  materialize:")
        (workspace / "dvc.lock").write_text(before + materialize + after.replace(md5, "0" * 32 + ".dir", 1))
        _, out, _ = supmer("lineage", "examples")
        assert re.search(rf"data/corpus/sentences  \S+ kB, md5 {'0' * 32}.dir", out)
        assert f"an earlier version was used; the workspace has md5 {md5}" in out

    def test_without_argument_artifacts_are_listed(self, supmer):
        _, out, _ = supmer("lineage")
        assert re.search(r"^data/corpus/documents +sample +\S+ kB +[0-9a-f]{32}\.dir$", out, re.MULTILINE)
        assert re.search(r"^data/prompt +metatrain +NULL +not made yet$", out, re.MULTILINE)

    @pytest.mark.parametrize(
        ("artifact", "message"),
        [
            ("data/prompt", "supmer: data/prompt: not made yet: `supmer run metatrain` makes it\n"),
            ("data/corpus/documnts", "did you mean data/corpus/documents"),
            ("zzz", "neither an output of dvc.yaml nor a stage: `supmer lineage` lists them"),
        ],
    )
    def test_what_is_not_there_is_one_line(self, supmer, artifact, message):
        code, _, err = supmer("lineage", artifact)
        assert code == 2
        assert message in err
        assert err.count("\n") == 1


class TestTrace:
    def test_a_sentence_is_followed_to_its_file(self, supmer, workspace):
        code, out, _ = supmer("trace", f"{FIRST}:1")
        sha256 = hashlib.sha256((workspace / "data/sources/corpus/news/news.txt").read_bytes()).hexdigest()
        assert code == 0
        assert out.splitlines() == [
            f"sentence {FIRST}:1",
            "      0  First of the kept",
            ">     1  Second of the kept",
            "         characters 19–37 of the document, 4 words",
            "      2  Third one.",
            f"  document  {FIRST}, split train, 10 words, 3 sentences, 49 bytes",
            "  a copy in news.txt row 3 was excluded: exact_duplicate",
            "  source    news: wheel:news==1.0, licence MIT",
            "  file      data/sources/corpus/news/news.txt, row 0, byte 0",
            f"            81 B, sha256 {sha256}",
        ]

    def test_neighbours_of_a_sentence_are_the_nearest_kept(self, supmer, workspace):
        import pyarrow as pa
        import pyarrow.parquet as pq

        path = workspace / "data/corpus/sentences/0.parquet"
        rows = [row for row in pq.read_table(path).to_pylist() if (row["document_id"], row["index"]) != (FIRST, 1)]
        overwrite(path, b"")
        pq.write_table(pa.Table.from_pylist(rows), path)
        (trace,) = json.loads(supmer("trace", f"{FIRST}:2", "--json")[1])["traces"]
        assert [row["index"] for row in trace["sentences"]] == [0, 2]

    def test_a_prefix_of_six_digits_is_enough(self, supmer):
        assert json.loads(supmer("trace", SECOND[:6].upper(), "--json")[1])["traces"][0]["document_id"] == SECOND

    def test_an_excluded_document_is_traced_with_its_reason(self, supmer):
        _, out, _ = supmer("trace", BAD)
        assert "  excluded: too_short (1 word)" in out.splitlines()
        assert "  file      data/sources/corpus/news/news.txt, row 2" in out.splitlines()

    def test_a_training_example_is_followed_to_all_its_sentences(self, supmer):
        _, out, _ = supmer("trace", "sp-next-0")
        assert out.startswith(f"example sp-next-0 of examples: sentences {FIRST}:0, {FIRST}:1, {SECOND}:0\n")
        assert out.count("\nsentence ") == 3

    @pytest.mark.parametrize(
        ("given", "message"),
        [
            ("0" * 32, "no such document, neither kept nor excluded"),
            ("abc", "at least 6 hex digits are needed"),
            ("not an id", "at least 6 hex digits are needed"),
            (f"{FIRST}:99", "no such sentence is kept: the document was cut into 3"),
            (f"{BAD}:0", "the document was excluded"),
            (f"{FIRST}:x", "the index of a sentence"),
        ],
    )
    def test_what_cannot_be_traced_is_one_line(self, supmer, given, message):
        code, _, err = supmer("trace", given)
        assert code == 2
        assert message in err
        assert err.count("\n") == 1

    @pytest.mark.parametrize("verb", ["trace", "uses"])
    @pytest.mark.parametrize("shard", ["0.parquet", "1.parquet"])
    def test_a_damaged_shard_is_named(self, supmer, workspace, verb, shard):
        path = workspace / "data/corpus/documents" / shard
        overwrite(path, path.read_bytes()[:-9])
        code, _, err = supmer(verb, FIRST)
        assert code == 2
        assert err.startswith(f"supmer: data/corpus/documents/{shard}: damaged")

    def test_an_ambiguous_prefix_lists_the_candidates(self, supmer, workspace):
        import pyarrow as pa
        import pyarrow.parquet as pq

        path = workspace / "data/corpus/documents/1.parquet"
        row = pq.read_table(path).to_pylist()[0] | {"document_id": FIRST[:8] + "0" * 24}
        overwrite(path, b"")
        pq.write_table(pa.Table.from_pylist([row]), path)
        code, _, err = supmer("trace", FIRST[:7])
        assert code == 2
        assert f"begins several ids, give more of it: {', '.join(sorted([FIRST, FIRST[:8] + '0' * 24]))}" in err


class TestUses:
    def test_every_dataset_that_saw_a_document_is_listed(self, supmer):
        listed = json.loads(supmer("uses", FIRST, "--json")[1])
        uses = {use["view"]: use for use in listed["uses"]}
        assert {view: use["rows"] for view, use in uses.items()} == {
            "documents": 1,
            "excluded": 1,
            "sentences": 3,
            "examples": 2,
        }
        assert uses["examples"]["first"] == ["sp-next-0", "sp-next-1"]
        assert uses["examples"]["columns"] == ["anchor_sentence_id", "choice_sentence_ids"]
        assert uses["examples"]["stage"] == "materialize"
        assert uses["sentences"]["first"] == [f"{FIRST}:0", f"{FIRST}:1", f"{FIRST}:2"]

    def test_lists_of_sentence_ids_count_too(self, supmer):
        _, out, _ = supmer("uses", SECOND)
        assert re.search(r"^  examples +1 +materialize +sp-next-0$", out, re.MULTILINE)

    def test_an_excluded_document_says_why_nothing_uses_it(self, supmer):
        _, out, _ = supmer("uses", BAD[:10])
        assert re.search(r"^  examples +0 +materialize", out, re.MULTILINE)
        assert "  excluded: too_short (1 word)" in out

    def test_an_unknown_document_is_exit_code_2(self, supmer):
        assert supmer("uses", "0123456789")[0] == 2


class TestVerify:
    def findings(self, supmer, *options):
        code, out, _ = supmer("verify", "--json", *options)
        found = {(one["kind"], one["path"]) for one in json.loads(out)["findings"]}
        assert code == (1 if found else 0)
        return found

    def test_a_whole_workspace_is_verified(self, supmer):
        code, out, _ = supmer("verify")
        assert code == 0
        assert out == "verified: 6 outputs of 3 stages are whole; not made yet: metatrain\n"

    def test_a_missing_folder_and_a_missing_file_are_named(self, supmer, workspace):
        shutil.rmtree(workspace / "data/corpus/excluded")
        (workspace / "data/corpus/documents/1.parquet").unlink()
        assert self.findings(supmer) == {
            ("missing", "data/corpus/excluded"),
            ("missing", "data/corpus/documents/1.parquet"),
            ("invariant", "data"),  # sentences without their document
        }

    def test_a_line_says_what_is_wrong_and_what_to_do(self, supmer, workspace):
        (workspace / "data/metrics.json").unlink()
        code, out, err = supmer("verify")
        assert code == 1
        assert out == "missing    data/metrics.json: output of sample is gone: `supmer run` restores or recomputes it\n"
        assert err == "1 wrong\n"

    def test_an_edited_file_is_changed_and_a_shorter_one_truncated(self, supmer, workspace):
        overwrite(workspace / "data/metrics.json", b"[]")
        path = workspace / "data/examples/train/0.parquet"
        overwrite(path, path.read_bytes()[:-8])
        assert self.findings(supmer) == {
            ("changed", "data/metrics.json"),
            ("truncated", "data/examples/train/0.parquet"),
        }

    def test_a_flipped_byte_is_found(self, supmer, workspace):
        path = workspace / "data/examples/train/0.parquet"
        content = bytearray(path.read_bytes())
        content[20] ^= 1
        overwrite(path, bytes(content))
        assert self.findings(supmer) == {("changed", "data/examples/train/0.parquet")}

    def test_an_extra_file_is_named(self, supmer, workspace):
        (workspace / "data/examples/train/left over.parquet").touch()
        assert ("extra", "data/examples/train/left over.parquet") in self.findings(supmer)

    def test_a_flipped_byte_in_the_cache_is_found_though_the_workspace_is_whole(self, supmer, workspace):
        md5 = read_pipeline(workspace).locked_output("data/metrics.json").md5
        cached = object_path(cache_folder(workspace), md5)
        overwrite(cached, b"{]")
        assert self.findings(supmer) == {("cache", str(cached.relative_to(workspace)))}

    def test_a_damaged_listing_in_the_cache_is_found_and_the_folder_still_compared(self, supmer, workspace):
        md5 = read_pipeline(workspace).locked_output("data/examples").md5
        listing = object_path(cache_folder(workspace), md5)
        overwrite(listing, listing.read_bytes()[:-3])
        assert self.findings(supmer) == {("cache", str(listing.relative_to(workspace)))}
        (workspace / "data/examples/train/more").touch()
        assert ("changed", "data/examples") in self.findings(supmer)

    def test_an_empty_cache_is_no_fault_but_changes_are_still_found(self, supmer, workspace):
        shutil.rmtree(workspace / ".dvc/cache")
        assert self.findings(supmer) == set()
        path = workspace / "data/examples/train/0.parquet"
        overwrite(path, path.read_bytes()[:-8])
        assert self.findings(supmer) == {("truncated", "data/examples/train/0.parquet")}

    def test_an_edit_through_a_hard_link_damages_the_cache_too(self, supmer, workspace):
        md5 = read_pipeline(workspace).locked_output("data/metrics.json").md5
        cached = object_path(cache_folder(workspace), md5)
        (workspace / "data/metrics.json").unlink()
        (workspace / "data/metrics.json").hardlink_to(cached)
        assert self.findings(supmer) == set()
        overwrite(workspace / "data/metrics.json", b"[]")
        assert self.findings(supmer) == {
            ("changed", "data/metrics.json"),
            ("cache", str(cached.relative_to(workspace))),
        }

    def test_objects_of_earlier_versions_are_checked_on_demand(self, supmer, workspace):
        stray = object_path(cache_folder(workspace), "ab" + "0" * 30)
        stray.parent.mkdir(parents=True, exist_ok=True)
        stray.write_text("not that")
        assert self.findings(supmer) == set()
        assert self.findings(supmer, "--cache") == {("cache", str(stray.relative_to(workspace)))}

    def test_a_changed_source_file_is_found_by_its_sha256(self, supmer, workspace):
        path = "data/sources/corpus/news/news.txt"
        overwrite(workspace / path, (workspace / path).read_bytes().replace(b"kept", b"kapt"))
        assert self.findings(supmer) == {("changed", path), ("source", path)}

    def test_rows_that_break_an_invariant_are_found(self, supmer, workspace):
        import pyarrow as pa
        import pyarrow.parquet as pq

        path = workspace / "data/corpus/sentences/0.parquet"
        rows = pq.read_table(path).to_pylist()
        rows[0]["end"] = 10_000
        rows[1]["document_id"] = "f" * 32
        rows[3] = rows[4]
        overwrite(path, b"")
        pq.write_table(pa.Table.from_pylist(rows), path)
        documents = workspace / "data/corpus/documents"
        overwrite(documents / "1.parquet", (documents / "0.parquet").read_bytes())
        _, out, _ = supmer("verify")
        broken = [line for line in out.splitlines() if line.startswith("invariant")]
        assert len(broken) == 4
        assert f"1 document ids stand more than once in documents: {FIRST}" in out
        assert f"1 sentences have a span outside their document: {FIRST}:0" in out
        assert f"1 sentence ids stand more than once in sentences: {SECOND}:1" in out
        assert re.search(rf"2 documents have sentences but are not in documents: .*{'f' * 32}", out)

    def test_progress_is_told_where_it_takes_long(self, supmer, monkeypatch):
        monkeypatch.setattr("flows.commands.verify.PROGRESS_SECONDS", 0.0)
        _, _, err = supmer("verify")
        assert re.search(r"^  outputs: \S+ kB of \S+ kB hashed$", err, re.MULTILINE)
