"""Purge: earlier versions that hold a document go from DVC's cache, and what lies elsewhere is named."""

import json
import subprocess

import duckdb
import pytest

from flows.dvc_state.dag import Pipeline
from flows.takedown.git_history import commits_that_name, commits_with_passage, lock_files
from flows.takedown.purging import purge, remote_copies
from storage.hashing import document_id
from storage.lineage.document_copies import find_copies
from storage.lineage.known_runs import known_runs, run_cache_entries
from storage.lockfile import cache_folder, directory_object, read_pipeline
from support.audited import FIRST, SECOND, TEXTS, dvc

pytestmark = pytest.mark.filterwarnings("ignore:_NoneStep.value:DeprecationWarning")  # DVC uses pygtrie
TEXT_FIELD = dict.fromkeys(["news"], "text").__getitem__  # of each corpus
OTHER = "Quite another text. It is kept. So it is."


@pytest.fixture
def forgotten(audited):
    """A workspace in which the first document was replaced, after a push of all versions to a remote."""
    dvc(audited, "remote", "add", "backup", str(audited.parent / "remote"))
    dvc(audited, "push", "--remote", "backup")
    code = (audited / "make.py").read_text()
    (audited / "make.py").write_text(code.replace(repr(TEXTS[0]), repr(OTHER)))
    dvc(audited, "repro", "materialize")
    return audited


def naming(root, document):
    """Return the Parquet objects of the cache that name a document anywhere."""
    files = [path for path in cache_folder(root).glob("??/*") if path.read_bytes()[:4] == b"PAR1"]
    return [path for path in files if document in str(duckdb.read_parquet(str(path)).fetchall())]


def test_what_held_or_was_made_from_a_document_goes_and_the_current_outputs_stay(forgotten):
    pipeline = Pipeline(forgotten)
    before = {output.path: output.md5 for stage in read_pipeline(forgotten).current() for output in stage.outputs}
    assert naming(forgotten, FIRST)
    copies = find_copies(forgotten, [FIRST], known_runs(forgotten), TEXT_FIELD)
    purged = purge(pipeline, copies)
    assert purged.objects == len(copies.objects) > 0
    assert naming(forgotten, FIRST) == []
    assert naming(forgotten, SECOND)
    for path, md5 in before.items():
        listing = directory_object(cache_folder(forgotten), md5) if md5.endswith(".dir") else {path: md5}
        assert all((cache_folder(forgotten) / file[:2] / file[2:]).is_file() for file in listing.values()), path
    runs = run_cache_entries(forgotten).values()
    assert all(copies.versions.isdisjoint(run.outputs.values()) for run in runs)
    assert runs
    assert find_copies(forgotten, [FIRST], known_runs(forgotten), TEXT_FIELD).objects == frozenset()
    assert [copy.objects for copy in remote_copies(pipeline, copies.objects)] == [len(copies.objects)]


def test_a_document_of_the_current_outputs_has_no_copies_to_purge(forgotten):
    assert find_copies(forgotten, [SECOND], [], TEXT_FIELD).versions.isdisjoint(
        output.md5 for stage in read_pipeline(forgotten).current() for output in stage.outputs
    )


def test_an_earlier_corpus_with_the_text_is_a_copy(audited):
    folder = audited / "data/sources/corpus/news"
    (folder / "rows.jsonl").write_text(json.dumps({"text": f" {OTHER}\r\n"}) + "\n")
    dvc(audited, "commit", "--force", "acquire")
    held = read_pipeline(audited).locked_output("data/sources/corpus").md5
    (folder / "rows.jsonl").unlink()
    runs = known_runs(audited, [(audited / "dvc.lock").read_bytes()])
    dvc(audited, "commit", "--force", "acquire")
    assert find_copies(audited, ["e" * 32], runs, TEXT_FIELD).versions == frozenset()
    assert find_copies(audited, [document_id(OTHER)], runs, TEXT_FIELD).versions == {held}


def test_commits_that_name_a_version_or_hold_a_passage_are_found(tmp_path):
    def git(*arguments):
        subprocess.run(["git", *arguments], cwd=tmp_path, check=True, capture_output=True)

    git("init", "--quiet")
    git("config", "user.email", "tests@example.org")
    git("config", "user.name", "Tests")
    for version in ("a" * 32, "b" * 32):
        (tmp_path / "dvc.lock").write_text(f"md5: {version}\n")
        (tmp_path / "texts.txt").write_text(f"{TEXTS[0]} {version}\n")
        git("add", ".")
        git("commit", "--quiet", "-m", version)
    later, first = lock_files(tmp_path)
    assert commits_that_name(lock_files(tmp_path), ["a" * 32]) == [first]
    assert commits_that_name(lock_files(tmp_path), ["c" * 32]) == []
    assert commits_with_passage(tmp_path, TEXTS[0]) == [first]
    assert commits_with_passage(tmp_path, "never seen anywhere in this history") == []
    assert later != first


def test_a_folder_without_git_has_no_history(tmp_path, monkeypatch):
    monkeypatch.setenv("GIT_CEILING_DIRECTORIES", str(tmp_path.parent))
    assert lock_files(tmp_path) == {}
