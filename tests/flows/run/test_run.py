"""`supmer run` and its relatives, in real workspaces, beside the real `dvc`."""

import re
import shutil
import subprocess
import time
from dataclasses import replace

import pytest

from storage.lockfile import cache_folder, directory_object, object_path, read_pipeline
from support.dying import outputs
from support.workspaces import BIN, write_corpus


@pytest.fixture
def workspace(workspace, prefect_api):
    return replace(workspace, api=prefect_api)


def up_to_date(workspace):
    return "up to date" in workspace.run("status", program="dvc")


def share_bytes(one, other):
    """Whether two paths are one file, or reflinks to the same blocks, as far as the file system lets one see."""
    if one.samefile(other):
        return True
    if shutil.which("filefrag") is None:
        pytest.skip("no hard link, and no filefrag to tell a reflink from a copy")
    maps = [
        subprocess.run(["filefrag", "-v", path], capture_output=True, text=True, check=True) for path in (one, other)
    ]
    return all("shared" in found.stdout for found in maps)


def test_a_second_run_finds_everything_cached_and_dvc_agrees(workspace):
    output = workspace.run("run")
    assert output.count("cached") == 2
    assert "as dvc.lock has them" in output
    assert up_to_date(workspace)
    assert {stage["action"] for stage in workspace.status().values()} == {"fresh"}


def test_a_changed_parameter_runs_its_stage_alone_and_is_named_as_the_reason(workspace):
    output = workspace.run("run", "-S", "sample.min_words=60")
    assert "params.yaml: sample.min_words: 50 → 60" in output
    assert "acquire  cached" in output
    assert "sample   ran       parameter sample.min_words changed: 50 → 60" in output
    assert up_to_date(workspace)

    # Back to the old value: the old result is in DVC's cache, and is not computed again.
    output = workspace.run("run", "-S", "sample.min_words=50")
    assert "sample   restored  parameter sample.min_words changed: 60 → 50" in output
    assert up_to_date(workspace)


def test_deleted_outputs_are_restored_not_recomputed_as_the_status_says_before(workspace):
    shutil.rmtree(workspace.root / "data/corpus/sentences")
    assert [stage["action"] for stage in workspace.status().values()] == ["fresh", "restore"]
    shutil.rmtree(workspace.root / "data")
    assert [stage["action"] for stage in workspace.status().values()] == ["restore", "restore"]
    changed = workspace.run("status", "-S", "sample.min_words=60", expect=1)
    assert "sample   run      parameter sample.min_words changed: 50 → 60" in changed
    output = workspace.run("run")
    assert "acquire  restored  output data/sources/backbone is missing" in output
    assert "sample   restored  output data/corpus/documents is missing" in output
    assert list((workspace.root / "data/corpus/sentences").glob("*.parquet"))
    assert up_to_date(workspace)


def test_a_damaged_output_is_restored(workspace):
    path = next((workspace.root / "data/corpus/sentences").glob("*.parquet"))
    whole = path.read_bytes()
    path.unlink()  # a new file: the old one is linked to DVC's cache
    path.write_bytes(whole[: len(whole) // 2])
    assert workspace.run("status", expect=1).count("output data/corpus/sentences changed: 1 of") == 1
    assert "sample   restored" in workspace.run("run")
    assert path.read_bytes() == whole
    workspace.run("status", expect=0)


def test_dvc_repro_runs_the_same_function_to_the_same_bytes_and_supmer_calls_it_fresh(workspace):
    lock = (workspace.root / "dvc.lock").read_bytes()
    output = workspace.run("repro", "--force", "--single-item", "sample", program="dvc")
    assert "Running stage 'sample'" in output
    assert (workspace.root / "dvc.lock").read_bytes() == lock
    workspace.run("status", expect=0)


def test_dvc_knows_metrics_plots_and_the_dag(workspace):
    assert "sentences" in workspace.run("metrics", "show", program="dvc")
    assert "sample" in workspace.run("dag", program="dvc")
    assert "index.html" in workspace.run("plots", "show", program="dvc")


@pytest.mark.parametrize("committed", [".", "dvc.lock"])
def test_an_experiment_of_dvc_is_fresh_for_supmer_with_inputs_committed_or_not(workspace, committed):
    workspace.git("add", committed)
    workspace.git("commit", "--quiet", "-m", "A run")
    workspace.run("exp", "run", "-S", "sample.min_words=55", program="dvc")
    assert "min_words: 55" in (workspace.root / "params.yaml").read_text()
    assert {stage["action"] for stage in workspace.status().values()} == {"fresh"}


def test_an_added_file_is_noticed_and_only_its_shards_are_computed(workspace):
    before = {path: path.stat().st_mtime_ns for path in workspace.finished_shards("index")}
    write_corpus(workspace.root / "texts" / "third.jsonl", 3, 10)
    assert workspace.status()["acquire"]["action"] == "run"
    changed = f"acquire.corpus.own ({workspace.root}/texts) changed: 1 of 3 files (third.jsonl)"
    assert changed in workspace.run("why", "acquire")
    output = workspace.run("run")
    assert f"local@corpus-own  ran       {changed}" in output
    assert re.search(r"acquire  ran       input inputs changed: 1 of \d+ files \(corpus-own.json\)", output)
    assert "sample   ran       input data/sources/corpus changed: 1 of 1 file (source.json)" in output
    after = {path: path.stat().st_mtime_ns for path in workspace.finished_shards("index")}
    assert before.items() <= after.items()
    assert len(after) > len(before)


def test_a_forced_stage_recomputes_its_shards_and_comes_to_the_same_bytes(workspace):
    before = {path: path.stat().st_mtime_ns for path in workspace.finished_shards()}
    lock = (workspace.root / "dvc.lock").read_bytes()
    assert "sample   ran       it was forced" in workspace.run("run", "--force", "sample")
    after = {path: path.stat().st_mtime_ns for path in workspace.finished_shards()}
    assert after.keys() == before.keys()
    assert not before.items() & after.items()
    assert (workspace.root / "dvc.lock").read_bytes() == lock


def test_a_dry_run_changes_nothing(workspace):
    files = {path: path.stat().st_mtime_ns for path in workspace.root.glob("*.*")}
    output = workspace.run("run", "--dry-run", "-S", "sample.min_words=60")
    assert "sample   run      parameter sample.min_words changed: 50 → 60" in output
    assert {path: path.stat().st_mtime_ns for path in workspace.root.glob("*.*")} == files
    output = workspace.run("run", "--dry-run", "--force", "acquire")
    assert "sample   run      acquire would run before it, and may change its input" in output


def test_a_dry_run_names_a_lost_output_after_a_stage_that_would_run(workspace):
    shutil.rmtree(workspace.root / "data/corpus/excluded")
    output = workspace.run("run", "--dry-run", "--force", "acquire")
    assert "sample   run      acquire would run before it, and may change its input" in output
    assert "output data/corpus/excluded is missing" in output


def test_a_question_about_other_sources_leaves_the_workspace_alone(workspace):
    write_corpus(workspace.root / "others" / "one.jsonl", 5, 5)
    output = workspace.run("status", "-S", "acquire.corpus.own=path:others", expect=1)
    assert "parameter acquire.corpus.own changed: path:texts → path:others" in output
    assert up_to_date(workspace)
    assert "acquire.corpus.own: path:texts → path:others" not in workspace.run("params", "diff", "quickstart")
    output = workspace.run("run", "--dry-run", "-S", "acquire.corpus.own=path:nowhere", expect=2)
    assert "nowhere: no such file or folder" in output
    assert up_to_date(workspace)


def test_every_command_takes_settings_and_refuses_wrong_ones(workspace):
    for command in (["dag"], ["sql"], ["verify"], ["params", "list"], ["gc", "--dry-run"]):
        workspace.run(*command, "-S", "sample.min_words=60")
        assert "did you mean sample.min_words?" in workspace.run(*command, "-S", "sample.min_word=60", expect=2)


def test_a_key_left_to_its_default_is_refused_for_dvc_would_not_see_it_change(workspace):
    path = workspace.root / "params.yaml"
    path.write_text(path.read_text().replace("  min_words: 50\n", ""))
    expected = "supmer: params.yaml: sample.min_words: is missing: add it (its default is 50)\n"
    assert workspace.run("status", expect=2) == expected


def corpus_outputs(root):
    return {path: files for path, files in outputs(root).items() if path.startswith("data/corpus")}


def test_parameters_changed_during_a_run_are_not_recorded_as_those_of_its_result(workspace):
    write_corpus(workspace.root / "texts" / "third.jsonl", 9, 10)
    before = len(workspace.finished_shards("index"))
    corpus = corpus_outputs(workspace.root)
    path = workspace.root / "params.yaml"
    with workspace.start("run") as process:
        while len(workspace.finished_shards("index")) <= before:
            assert process.poll() is None
            time.sleep(0.02)
        path.write_text(path.read_text().replace("min_words: 50", "min_words: 51"))
        output, _ = process.communicate(timeout=120)
    assert process.returncode == 2
    assert "changed while it ran: its result is not recorded" in output
    assert corpus_outputs(workspace.root) == corpus  # nor put in the place of the one that is
    assert workspace.status()["sample"]["action"] == "run"


def test_only_what_was_asked_for_runs(workspace):
    output = workspace.run("run", "--until", "acquire")
    assert "acquire  cached" in output
    assert "sample" not in output
    output = workspace.run("run", "--from", "sample")
    assert "sample  cached" in output
    assert "acquire" not in output


def test_a_stage_that_is_not_there_is_refused_with_the_nearest(workspace):
    refused = workspace.run("run", "smaple", "-S", "sample.min_words=60", expect=2)
    assert refused == "supmer: no stage smaple in dvc.yaml: did you mean sample?\n"
    assert "min_words: 50" in (workspace.root / "params.yaml").read_text()  # what is refused changes nothing
    assert "no stage x in dvc.yaml: the stages are: acquire, sample" in workspace.run("why", "x", expect=2)


def test_versions_share_their_bytes_and_gc_frees_those_nobody_needs(workspace):
    root = workspace.root
    listing = directory_object(cache_folder(root), read_pipeline(root).locked_output("data/corpus/sentences").md5)
    assert listing
    for name, md5 in listing.items():
        assert share_bytes(root / "data/corpus/sentences" / name, object_path(cache_folder(root), md5))
    workspace.git("add", ".")
    workspace.git("commit", "--quiet", "-m", "Kept")
    workspace.run("run", "-S", "sample.max_sentence_words=12")
    workspace.run("run", "-S", "sample.max_sentence_words=13")
    objects = set((root / ".dvc/cache/files/md5").glob("*/*"))
    said = workspace.run("gc", "--dry-run")
    assert "would free" in said
    assert set((root / ".dvc/cache/files/md5").glob("*/*")) == objects
    freed = workspace.run("gc")
    assert freed.startswith("freed ")
    assert freed != "freed 0.0 MB\n"
    assert set((root / ".dvc/cache/files/md5").glob("*/*")) < objects
    # What the commit needs and what the workspace needs is still there.
    assert {stage["action"] for stage in workspace.status().values()} == {"fresh"}
    workspace.git("checkout", "--quiet", "params.yaml", "dvc.lock")
    assert "restored" in workspace.run("run")


def test_an_unpacked_archive_works_and_says_so_even_where_there_is_no_git_program(workspace, tmp_path):
    shutil.rmtree(workspace.root / ".git")
    assert "no git here: DVC versions outputs without it" in workspace.run("status")
    for name in ("sh", "env", "uname"):
        (tmp_path / name).symlink_to(shutil.which(name))
    done = subprocess.run(
        [BIN / "supmer", "run", "-S", "sample.min_words=60"],
        cwd=workspace.root,
        env=workspace.environment | {"PATH": f"{BIN}:{tmp_path}"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert "sample   ran" in done.stdout, done.stdout + done.stderr
    assert "no git here" not in done.stdout + done.stderr
    assert up_to_date(workspace)


def test_the_dag_is_drawn_as_text_and_as_mermaid(workspace):
    assert "sample  ← acquire" in workspace.run("dag")
    assert "acquire --> sample" in workspace.run("dag", "--format", "mermaid")


def test_outside_a_workspace_one_line_says_so(workspace, tmp_path):
    output = replace(workspace, root=tmp_path).run("status", expect=2)
    assert "not inside a supmer workspace" in output
    assert output.count("\n") == 1
