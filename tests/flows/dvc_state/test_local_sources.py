"""Folders of the user's own: `dvc` and `supmer` agree on what is fresh, whichever is asked first."""

import shutil
import subprocess
from dataclasses import replace

import orjson
import pytest

from conftest import write_corpus
from storage.sources.source import read_manifest


@pytest.fixture
def workspace(workspace, prefect_api):
    return replace(workspace, api=prefect_api)


def fresh_for_dvc(workspace):
    return "up to date" in workspace.run("status", "acquire", program="dvc")


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
    assert "No such file or directory" in workspace.run("status", program="dvc", expect=255)
    told = f"acquire.corpus.own: {folder}: no such file or folder"
    assert workspace.run("status", expect=2).startswith(f"supmer: {told}")
    # A question that renews no links meets the one that leads nowhere.
    supposed = workspace.run("status", "-S", "sample.min_words=60", expect=1)
    assert f"acquire.corpus.own ({folder}) is missing" in supposed
    (workspace.root / "elsewhere").rename(folder)
    assert reasons(workspace) == []


def test_people_are_told_of_sources_not_of_slots(workspace):
    told = workspace.run("why", "acquire")
    assert "reads: acquire.backbone (" in told
    assert f"acquire.corpus.own ({workspace.root}/texts)" in told
    lineage = workspace.run("lineage", "data/sources/corpus")
    assert "acquire.corpus.own=path:texts" in lineage
    lines = (workspace.root / "lineage/events.jsonl").read_bytes().splitlines()
    inputs = [one["name"] for event in map(orjson.loads, lines) for one in event["inputs"]]
    assert "texts" in inputs
    assert "inputs/" not in told + lineage + " ".join(inputs)
    assert "inputs/01 … inputs/32 (local sources)" in workspace.run("dag")


def test_a_clone_without_local_sources_stays_clean_and_has_every_dependency(workspace, tmp_path):
    root = workspace.root
    workspace.git("checkout", "--", "inputs")
    shutil.copyfile(root / "profiles/quickstart.yaml", root / "params.yaml")
    workspace.git("add", "params.yaml")
    workspace.git("commit", "--quiet", "-m", "The quickstart's sources")
    clone = replace(workspace, root=tmp_path / "clone")
    subprocess.run(["git", "clone", "--quiet", root, clone.root], check=True)
    assert "Running stage 'acquire'" in clone.run("repro", "--dry", "acquire", program="dvc")
    assert clone.status()["acquire"]["action"] == "run"
    changed = subprocess.run(["git", "status", "--porcelain"], cwd=clone.root, capture_output=True, check=True)
    assert changed.stdout == b""
