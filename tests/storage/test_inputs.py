"""Links to local sources: exactly those wanted, quick when nothing changed."""

import os
import time
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from storage.errors import InputError
from storage.inputs import local_files, sync_links
from storage.sources import NamedSource, parse_spec


@dataclass
class Wanted:
    corpus: dict = field(default_factory=dict)
    datasets: dict = field(default_factory=dict)
    backbone: str = "hf:google-t5/t5-small"
    embedder: str = "hf:org/embedder"


@pytest.fixture
def root(tmp_path):
    (tmp_path / "work/inputs").mkdir(parents=True)
    (tmp_path / "work/inputs/README.md").write_text("about")
    return tmp_path / "work"


@pytest.fixture
def texts(tmp_path):
    folder = tmp_path / "texts"
    (folder / "deep/er").mkdir(parents=True)
    for name in ("b.txt", "a.txt", "deep/er/c.jsonl"):
        (folder / name).write_text(name)
    return folder


def links(root):
    """{link: target} under inputs, in order."""
    found = sorted(path for path in (root / "inputs").rglob("*") if path.is_symlink())
    return {str(path.relative_to(root)): str(path.readlink()) for path in found}


def corpus(root, **specs):
    sync_links(root, Wanted(corpus=specs))
    return links(root)


def test_a_folder_becomes_one_absolute_link_a_file(root, texts):
    assert corpus(root, news=f"path:{texts}") == {
        "inputs/corpus/news/a.txt": f"{texts}/a.txt",
        "inputs/corpus/news/b.txt": f"{texts}/b.txt",
        "inputs/corpus/news/deep/er/c.jsonl": f"{texts}/deep/er/c.jsonl",
    }
    assert (root / "inputs/corpus/news/a.txt").read_text() == "a.txt"


def test_a_single_file_becomes_one_link(root, texts):
    assert corpus(root, news=f"path:{texts}/a.txt") == {"inputs/corpus/news/a.txt": f"{texts}/a.txt"}


def test_a_relative_path_starts_at_the_workspace(root, texts, monkeypatch):
    monkeypatch.chdir("/")
    assert corpus(root, news="path:../texts/b.txt") == {"inputs/corpus/news/b.txt": f"{texts}/b.txt"}


def test_a_tilde_is_the_home_folder(root, texts, monkeypatch):
    monkeypatch.setenv("HOME", str(texts))
    assert corpus(root, news="path:~/b.txt") == {"inputs/corpus/news/b.txt": f"{texts}/b.txt"}


def test_a_pattern_chooses_files(root, texts):
    assert list(corpus(root, news=f"path:{texts}#path=**/*.jsonl")) == ["inputs/corpus/news/deep/er/c.jsonl"]


def test_sources_of_other_kinds_get_no_links(root):
    assert corpus(root, news="hf:org/name") == {}


def test_every_role_may_be_local(root, texts):
    sync_links(root, Wanted({"news": f"path:{texts}/a.txt"}, {"set": f"path:{texts}/b.txt"}, f"path:{texts}/deep"))
    assert list(links(root)) == [
        "inputs/backbone/backbone/er/c.jsonl",
        "inputs/corpus/news/a.txt",
        "inputs/datasets/set/b.txt",
    ]


def test_hidden_files_and_folders_do_not_count(root, texts):
    (texts / ".hidden").write_text("")
    (texts / ".git").mkdir()
    (texts / ".git/config").write_text("")
    assert len(corpus(root, news=f"path:{texts}")) == 3


def test_links_that_are_not_wanted_any_more_go_with_their_folders(root, texts):
    corpus(root, news=f"path:{texts}", old=f"path:{texts}")
    (texts / "deep/er/c.jsonl").unlink()
    assert list(corpus(root, news=f"path:{texts}")) == ["inputs/corpus/news/a.txt", "inputs/corpus/news/b.txt"]
    assert not (root / "inputs/corpus/old").exists()
    assert not (root / "inputs/corpus/news/deep").exists()
    assert corpus(root) == {}
    assert [path.name for path in (root / "inputs").iterdir()] == ["README.md"]


def test_a_folder_that_became_a_file_is_followed(root, texts):
    corpus(root, news=f"path:{texts}")
    (texts / "deep/er/c.jsonl").unlink()
    (texts / "deep/er").rmdir()
    (texts / "deep").rmdir()
    (texts / "deep").write_text("now a file")
    assert "inputs/corpus/news/deep" in corpus(root, news=f"path:{texts}")


def test_a_link_to_another_place_is_turned(root, texts, tmp_path):
    corpus(root, news=f"path:{texts}/a.txt")
    (tmp_path / "other").mkdir()
    (tmp_path / "other/a.txt").write_text("other")
    assert corpus(root, news=f"path:{tmp_path}/other") == {"inputs/corpus/news/a.txt": f"{tmp_path}/other/a.txt"}


def test_the_second_time_nothing_is_touched(root, texts):
    corpus(root, news=f"path:{texts}")
    before = {name: os.lstat(root / name).st_ino for name in links(root)}
    corpus(root, news=f"path:{texts}")
    assert {name: os.lstat(root / name).st_ino for name in links(root)} == before


def test_ten_thousand_files_cost_little_when_nothing_changed(root, tmp_path):
    many = tmp_path / "many"
    for number in range(10_000):
        path = many / f"{number % 100:02}" / f"{number}.txt"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()
    sync_links(root, Wanted({"news": f"path:{many}"}))
    times = []
    for _ in range(3):
        start = time.process_time()
        sync_links(root, Wanted({"news": f"path:{many}"}))
        times.append(time.process_time() - start)
    assert min(times) < 0.3


def test_a_missing_path_names_parameter_path_and_remedy(root):
    with pytest.raises(InputError) as caught:
        corpus(root, news="path:/no/such/place")
    assert str(caught.value) == (
        "acquire.corpus.news: /no/such/place: no such file or folder: give one that is there, "
        "-S acquire.corpus.news=path:/folder/or/file"
    )


def test_an_empty_folder_is_refused(root, tmp_path):
    (tmp_path / "empty").mkdir()
    with pytest.raises(InputError, match=r"acquire\.corpus\.news: .*/empty: holds no files"):
        corpus(root, news=f"path:{tmp_path}/empty")


def test_a_pattern_without_a_match_lists_the_files(root, texts):
    with pytest.raises(
        InputError, match=r"nothing in it matches path=\*\.csv; it holds a\.txt, b\.txt, deep/er/c\.jsonl"
    ):
        corpus(root, news=f"path:{texts}#path=*.csv")


def test_a_pattern_on_a_single_file_is_refused(root, texts):
    with pytest.raises(InputError, match=r"a\.txt: is a file: path= chooses from a folder"):
        corpus(root, news=f"path:{texts}/a.txt#path=*")


@pytest.mark.parametrize("inside", [".", "inputs", "inputs/corpus"])
def test_a_source_that_holds_its_own_links_is_refused(root, inside):
    (root / "inputs/corpus").mkdir()
    with pytest.raises(InputError, match=r"overlaps with .*inputs: keep the files in a folder of their own"):
        corpus(root, news=f"path:{root / inside}")


def test_a_file_in_the_way_of_a_link_is_named(root, texts):
    (root / "inputs/corpus/news").mkdir(parents=True)
    (root / "inputs/corpus/news/a.txt").write_text("mine")
    with pytest.raises(InputError, match=r"inputs/corpus/news/a\.txt: in the way of a link"):
        corpus(root, news=f"path:{texts}")
    assert (root / "inputs/corpus/news/a.txt").read_text() == "mine"


def test_links_within_a_source_are_followed(root, texts, tmp_path):
    (tmp_path / "blob").write_text("blob")
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere/x.txt").write_text("x")
    (texts / "linked.txt").symlink_to(tmp_path / "blob")
    (texts / "folder").symlink_to(tmp_path / "elsewhere")
    found = corpus(root, news=f"path:{texts}")
    assert {"inputs/corpus/news/linked.txt", "inputs/corpus/news/folder/x.txt"} <= found.keys()


def test_a_link_to_a_folder_above_itself_is_refused(root, texts):
    (texts / "deep/er/loop").symlink_to(texts / "deep")
    with pytest.raises(InputError, match="loop: links to a folder above itself"):
        corpus(root, news=f"path:{texts}")


def test_a_link_to_the_source_itself_is_refused(root, texts):
    (texts / "loop").symlink_to(texts)
    with pytest.raises(InputError, match="loop: links to a folder above itself"):
        corpus(root, news=f"path:{texts}")


def test_a_link_that_leads_nowhere_is_refused(root, texts):
    (texts / "gone").symlink_to(texts / "nowhere")
    with pytest.raises(InputError, match=r"acquire\.corpus\.news: .*/gone: a link that leads nowhere"):
        corpus(root, news=f"path:{texts}")


def test_a_file_that_may_not_be_read_is_named(root, texts, monkeypatch):
    # Permissions do not bind the superuser, under whom tests may run.
    monkeypatch.setattr(os, "access", lambda path, _: not path.endswith("b.txt"))
    with pytest.raises(InputError, match=r"acquire\.corpus\.news: .*/b\.txt: may not be read"):
        corpus(root, news=f"path:{texts}")


def test_a_folder_that_may_not_be_read_is_named(root, texts, monkeypatch):
    def refuse(path):
        raise PermissionError(13, "Permission denied", str(path))

    monkeypatch.setattr(os, "scandir", refuse)
    with pytest.raises(InputError, match=r"acquire\.corpus\.news: .*/texts: may not be read"):
        local_files(root, NamedSource("corpus", "news", parse_spec(f"path:{texts}")))


def test_files_come_in_order(root, texts):
    source = NamedSource("corpus", "news", parse_spec(f"path:{texts}"))
    assert list(local_files(root, source)) == ["a.txt", "b.txt", "deep/er/c.jsonl"]
    assert all(Path(path).is_absolute() for path in local_files(root, source).values())


def test_a_name_that_is_not_utf8_is_refused_and_others_are_fine(root, texts):
    (texts / "größe 数.txt").write_text("fine")
    assert "inputs/corpus/news/größe 数.txt" in corpus(root, news=f"path:{texts}")
    (texts / os.fsdecode(b"bad\xff.txt")).write_text("")
    with pytest.raises(InputError, match=r"acquire\.corpus\.news: 'bad.*: its name is not UTF-8: rename it"):
        corpus(root, news=f"path:{texts}")
