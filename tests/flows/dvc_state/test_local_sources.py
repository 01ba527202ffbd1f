"""Folders of the user's own: `dvc` and `supmer` agree on what is fresh, whichever is asked first."""

import shutil
import subprocess
from dataclasses import replace

import orjson
import pytest
from ruamel.yaml import YAML

from storage.sources.source import read_manifest
from support.workspaces import write_corpus


@pytest.fixture
def workspace(workspace, prefect_api):
    return replace(workspace, api=prefect_api)


def fresh_for_dvc(workspace):
    return "up to date" in workspace.run("status", "--with-deps", "acquire", program="dvc")


def reasons(workspace):
    """Why acquire is stale, empty if it is fresh; dvc is asked first, before a supmer command can prepare anything."""
    fresh = fresh_for_dvc(workspace)
    acquire = workspace.status()["acquire"]
    assert fresh == (acquire["action"] == "fresh")
    return [] if fresh else acquire["why"]


def edit(workspace, *changes):
    """Change params.yaml by hand, without any supmer command."""
    path = workspace.root / "params.yaml"
    text = path.read_text()
    for old, new in changes:
        assert text.count(old) == 1
        text = text.replace(old, new)
    path.write_text(text)


def test_both_notice_added_changed_renamed_and_removed_files_and_their_return(workspace):
    folder, kept = workspace.root / "texts", workspace.root / "kept"
    shutil.copytree(folder, kept)
    own = f"acquire.corpus.own ({folder}) changed:"
    write_corpus(folder / "third.jsonl", 3, 5)
    assert reasons(workspace) == [f"{own} 1 of 3 files (third.jsonl)"]
    (folder / "second.jsonl").write_text('{"text": "x"}\n')
    assert reasons(workspace) == [f"{own} 2 of 3 files (second.jsonl, third.jsonl)"]
    (folder / "second.jsonl").rename(folder / "later.jsonl")
    assert reasons(workspace) == [f"{own} 3 of 4 files (later.jsonl, second.jsonl, third.jsonl)"]
    (folder / "first.jsonl").unlink()
    assert reasons(workspace) == [f"{own} 4 of 4 files (first.jsonl, later.jsonl, second.jsonl, …)"]
    shutil.rmtree(folder)
    kept.rename(folder)
    assert reasons(workspace) == []


def test_what_one_brings_up_to_date_is_fresh_for_the_other(workspace):
    write_corpus(workspace.root / "texts/third.jsonl", 3, 5)
    workspace.run("repro", "acquire", program="dvc")
    assert reasons(workspace) == []
    (workspace.root / "texts/first.jsonl").rename(workspace.root / "texts/renamed.jsonl")
    changed = f"acquire.corpus.own ({workspace.root}/texts) changed: 2 of 4 files (first.jsonl, renamed.jsonl)"
    assert reasons(workspace) == [changed]
    workspace.run("run", "acquire")
    assert reasons(workspace) == []
    [own] = read_manifest(workspace.root / "data/sources/corpus")
    assert [file.path for file in own.files] == ["texts/renamed.jsonl", "texts/second.jsonl", "texts/third.jsonl"]


def test_sources_that_swap_places_or_go_are_followed_by_both(workspace):
    root = workspace.root
    (root / "others.csv").write_text("text,label\nodd,1\neven,0\n")
    edit(workspace, ("    tweets: path:labels.csv\n", "    tweets: path:others.csv\n"))
    assert not fresh_for_dvc(workspace)
    workspace.run("repro", "acquire", program="dvc")
    assert reasons(workspace) == []

    swapped = [("    tweets: path:others.csv\n", "    tweets: path:labels.csv\n")]
    swapped.append(("    movies: path:labels.csv\n", "    movies: path:others.csv\n"))
    edit(workspace, *swapped)
    assert [reason.partition(":")[0] for reason in reasons(workspace)] == [
        "parameter acquire.datasets.movies changed",
        "parameter acquire.datasets.tweets changed",
    ]
    edit(workspace, ("    sms: path:labels.csv\n", ""))
    assert "parameter acquire.datasets.sms changed: path:labels.csv → nothing" in reasons(workspace)
    workspace.run("run", "acquire")
    assert reasons(workspace) == []
    found = {source.name: source.files[0].path for source in read_manifest(root / "data/sources/datasets")}
    assert found["movies"] == "others.csv"
    assert found["tweets"] == "labels.csv"
    assert "sms" not in found


def test_a_folder_that_is_gone_is_named_by_both_and_fresh_when_it_is_back(workspace):
    folder = workspace.root / "texts"
    folder.rename(workspace.root / "elsewhere")
    assert "deleted:            texts" in workspace.run("status", program="dvc")
    told = f"acquire.corpus.own: {folder}: no such file or folder"
    assert workspace.run("status", expect=2).startswith(f"supmer: {told}")
    assert workspace.run("status", "-S", "sample.min_words=60", expect=2).startswith(f"supmer: {told}")
    (workspace.root / "elsewhere").rename(folder)
    assert reasons(workspace) == []


def test_people_are_told_of_sources(workspace):
    told = workspace.run("why", "local@corpus-own")
    assert "List the files of a local source" in told
    assert "reads: texts, " in told
    assert "local@corpus-own" in workspace.run("why", "acquire")
    lineage = workspace.run("lineage", "data/sources/corpus")
    assert "inputs/corpus-own.json" in lineage
    assert "acquire.corpus.own=path:texts" in lineage
    lines = (workspace.root / "lineage/events.jsonl").read_bytes().splitlines()
    inputs = [one["name"] for event in map(orjson.loads, lines) for one in event["inputs"]]
    assert "texts" in inputs
    dag = workspace.run("dag")
    assert "local@corpus-own\n" in dag
    assert "    reads   texts\n    writes  inputs/corpus-own.json\n" in dag
    assert "tasks/" not in dag


def test_a_file_that_no_pattern_takes_costs_a_listing_and_no_more(workspace):
    workspace.run("run", "acquire", "-S", "acquire.corpus.own=path:texts#path=first.jsonl")
    assert reasons(workspace) == []
    (workspace.root / "texts/second.jsonl").write_text('{"text": "x"}\n')
    workspace.run("repro", "acquire", program="dvc")
    [own] = read_manifest(workspace.root / "data/sources/corpus")
    assert [file.name for file in own.files] == ["first.jsonl"]
    assert reasons(workspace) == []


def test_a_listing_that_was_deleted_is_restored(workspace):
    (workspace.root / "inputs/corpus-own.json").unlink()
    output = workspace.run("run", "acquire")
    assert "local@corpus-own  restored" in output
    assert "acquire  cached" in output
    assert reasons(workspace) == []


def test_files_as_they_were_at_an_earlier_run_are_a_change_too(workspace):
    third = workspace.root / "texts/third.jsonl"
    write_corpus(third, 3, 5)
    workspace.run("run", "acquire")
    third.unlink()  # DVC's cache has the listing without it
    assert reasons(workspace) == [f"acquire.corpus.own ({third.parent}) changed: 1 of 3 files (third.jsonl)"]
    assert "acquire  restored" in workspace.run("run", "acquire")
    assert reasons(workspace) == []


def test_dvc_refuses_to_list_for_a_source_that_params_yaml_has_elsewhere_by_now(workspace):
    root = workspace.root
    write_corpus(root / "others/one.jsonl", 5, 5)
    write_corpus(root / "texts/third.jsonl", 3, 5)
    edit(workspace, ("    own: path:texts\n", "    own: path:others\n"))
    refused = workspace.run("repro", "acquire", program="dvc", expect=255)
    assert (
        "params.yaml and inputs.yaml named different local sources; inputs.yaml is rewritten now: try again" in refused
    )
    workspace.run("repro", "acquire", program="dvc")
    assert reasons(workspace) == []
    [own] = read_manifest(root / "data/sources/corpus")
    assert [file.path for file in own.files] == ["others/one.jsonl"]


def test_a_workspace_of_version_0_1_goes_on_with_a_line_and_its_results_can_be_accepted(workspace):
    root = workspace.root
    lock = YAML(typ="safe").load((root / "dvc.lock").read_text())
    lock["stages"] = {name: stage for name, stage in lock["stages"].items() if "@" not in name}
    for stage in lock["stages"].values():
        stage["deps"] = [dep for dep in stage["deps"] if dep["path"].startswith("data/") or dep["path"].endswith(".py")]
    slot = {"path": "inputs/01", "hash": "md5", "md5": "0" * 32, "size": 1}
    lock["stages"]["acquire"]["deps"].insert(0, slot)
    yaml = YAML(typ="safe")
    yaml.default_flow_style = False
    with (root / "dvc.lock").open("w") as file:
        yaml.dump(lock, file)
    shutil.rmtree(root / ".dvc/cache/runs")  # which has the runs of this version
    shutil.rmtree(root / "inputs")
    (root / "inputs").mkdir()
    (root / "inputs/01").symlink_to(root / "texts")
    (root / "inputs.yaml").write_text("local: {}\n")
    outputs = read_manifest(root / "data/sources/corpus")

    status = workspace.run("status", expect=1)
    assert status.startswith("inputs/: numbered links of version 0.1 (1) are removed")
    assert "sample   run      dvc.lock was written by version 0.1" in status
    assert "code tasks/sample is new" not in status
    accepted = workspace.run("accept", "sample", "--why", "the same code, recorded by folder")
    assert accepted.startswith("sample: accepted as it is: dvc.lock was written by version 0.1")
    output = workspace.run("run")
    assert "sample   cached" in output
    assert read_manifest(root / "data/sources/corpus") == outputs
    assert reasons(workspace) == []
    assert "up to date" in workspace.run("status", program="dvc")


def test_a_clone_without_local_sources_stays_clean_and_has_every_dependency(workspace, tmp_path):
    root = workspace.root
    workspace.git("checkout", "--", "inputs.yaml")
    shutil.copyfile(root / "profiles/quickstart.yaml", root / "params.yaml")
    workspace.git("add", "params.yaml")
    workspace.git("commit", "--quiet", "-m", "The quickstart's sources")
    clone = replace(workspace, root=tmp_path / "clone")
    subprocess.run(["git", "clone", "--quiet", root, clone.root], check=True)
    assert "Running stage 'acquire'" in clone.run("repro", "--dry", "acquire", program="dvc")
    assert clone.status()["acquire"]["action"] == "run"
    changed = subprocess.run(["git", "status", "--porcelain"], cwd=clone.root, capture_output=True, check=True)
    assert changed.stdout == b""
