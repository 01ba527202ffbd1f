"""Local sources: their files, their listings, and what is refused because DVC cannot hash it."""

import os
import shutil
import time
from pathlib import Path

import pytest

from storage.errors import InputError
from storage.sources.listing import (
    ListedFile,
    key_of,
    local_sources,
    parameter_of,
    read_listing,
    write_listing,
)
from storage.sources.local import all_files, local_files, missing_sources, written_folder
from storage.sources.source import NamedSource, parse_spec
from support.wanted_sources import Wanted


@pytest.fixture
def root(tmp_path):
    (tmp_path / "work/inputs").mkdir(parents=True)
    return tmp_path / "work"


@pytest.fixture
def texts(tmp_path):
    folder = tmp_path / "texts"
    (folder / "deep/er").mkdir(parents=True)
    for name in ("b.txt", "a.txt", "deep/er/c.jsonl"):
        (folder / name).write_text(name)
    return folder


def source(spec):
    return NamedSource("corpus", "news", parse_spec(spec))


class TestListings:
    def test_keys_follow_the_order_of_the_parameters_and_lead_back_to_them(self, texts):
        wanted = Wanted(
            {"b": f"path:{texts}/a.txt", "a": "hf:org/name", "c-d_e": f"path:{texts}"},
            {"set": f"path:{texts}/b.txt"},
            f"path:{texts}/deep",
        )
        found = local_sources(wanted)
        assert list(found) == ["backbone", "corpus-b", "corpus-c-d_e", "datasets-set"]
        assert [parameter_of(key) for key in found] == [source.parameter for source in found.values()]

    def test_a_listing_is_read_as_it_was_written_and_patterns_choose_from_it(self, root, texts):
        files = [ListedFile("a.txt", 5, "aa"), ListedFile("deep/c.jsonl", 7, "bb")]
        write_listing(root / "inputs/corpus-news.json", files)
        assert read_listing(root, source(f"path:{texts}")) == files
        assert read_listing(root, source(f"path:{texts}#path=**/*.jsonl")) == files[1:]
        with pytest.raises(InputError, match=r"nothing in it matches path=\*\.csv"):
            read_listing(root, source(f"path:{texts}#path=*.csv"))

    def test_a_listing_that_is_gone_or_damaged_is_named(self, root, texts):
        with pytest.raises(InputError, match=r"inputs/corpus-news\.json: not there: run `supmer run acquire`"):
            read_listing(root, source(f"path:{texts}"))
        for content in ("{", "{}", '{"files": [{"name": "x"}]}'):
            (root / "inputs/corpus-news.json").write_text(content)
            with pytest.raises(InputError, match="not a listing of files"):
                read_listing(root, source(f"path:{texts}"))

    def test_a_listing_does_not_know_where_the_source_lies(self, root, texts):
        assert key_of(source(f"path:{texts}")) == "corpus-news"
        write_listing(root / "inputs/corpus-news.json", [ListedFile("a.txt", 5, "aa")])
        assert str(texts) not in (root / "inputs/corpus-news.json").read_text()

    def test_missing_sources_are_listed(self, root, texts):
        wanted = Wanted({"here": f"path:{texts}", "gone": "path:gone"})
        assert [one.parameter for one in missing_sources(root, wanted)] == ["acquire.corpus.gone"]


class TestFiles:
    def test_files_come_in_order(self, root, texts):
        found = local_files(root, source(f"path:{texts}"))
        assert list(found) == ["a.txt", "b.txt", "deep/er/c.jsonl"]
        assert all(Path(path).is_absolute() for path in found.values())

    def test_all_files_are_listed_whatever_a_pattern_chooses(self, root, texts):
        assert len(all_files(root, source(f"path:{texts}#path=**/*.jsonl"))) == 3

    def test_a_pattern_chooses_files(self, root, texts):
        assert list(local_files(root, source(f"path:{texts}#path=**/*.jsonl"))) == ["deep/er/c.jsonl"]

    def test_hidden_files_and_folders_do_not_count(self, root, texts):
        (texts / ".hidden").write_text("")
        (texts / ".git").mkdir()
        (texts / ".git/config").symlink_to("nowhere")
        assert len(local_files(root, source(f"path:{texts}"))) == 3

    def test_what_dvcignore_names_does_not_count_because_dvc_does_not_see_it(self, root, texts):
        (root / ".dvcignore").write_text("# a comment\n*.partial-*\ndeep/\n/own/a.txt\n")
        (texts / "x.partial-1").write_text("")
        assert list(local_files(root, source(f"path:{texts}"))) == ["a.txt", "b.txt"]
        shutil.copytree(texts, root / "own")
        assert list(local_files(root, source("path:own"))) == ["b.txt"]

    def test_what_dvcignore_names_outside_the_workspace_must_still_be_something_dvc_can_hash(self, root, texts):
        (root / ".dvcignore").write_text("deep/\n")
        (texts / "deep/gone").symlink_to("nowhere")
        with pytest.raises(InputError, match="deep/gone: a link whose target does not exist"):
            local_files(root, source(f"path:{texts}"))
        shutil.copytree(texts, root / "own", symlinks=True)
        assert list(local_files(root, source("path:own"))) == ["a.txt", "b.txt"]

    def test_the_folder_is_kept_as_written(self, root, texts, monkeypatch):
        monkeypatch.setenv("HOME", str(texts.parent))
        (root / "one.csv").write_text("")
        folders = [written_folder(root, source(f"path:{path}")) for path in ("~/texts/", "../texts", "one.csv")]
        assert folders == ["~/texts", "../texts", "."]

    def test_ten_thousand_files_cost_little(self, root, tmp_path):
        many = tmp_path / "many"
        for number in range(10_000):
            path = many / f"{number % 100:02}" / f"{number}.txt"
            path.parent.mkdir(parents=True, exist_ok=True)
            path.touch()
        times = []
        for _ in range(3):
            start = time.process_time()
            local_files(root, source(f"path:{many}"))
            times.append(time.process_time() - start)
        assert min(times) < 3  # a tenth of a second here; reading the files would take many

    def test_links_to_files_are_followed(self, root, texts, tmp_path):
        (tmp_path / "blob").write_text("blob")
        (texts / "linked.txt").symlink_to(tmp_path / "blob")
        assert "linked.txt" in local_files(root, source(f"path:{texts}"))

    def test_a_name_beyond_ascii_is_fine(self, root, texts):
        (texts / "größe 数.txt").write_text("fine")
        assert "größe 数.txt" in local_files(root, source(f"path:{texts}"))


class TestRefused:
    def refusal(self, root, spec):
        with pytest.raises(InputError) as caught:
            local_files(root, source(spec))
        return str(caught.value)

    def test_a_missing_path_names_parameter_path_and_remedy(self, root):
        assert self.refusal(root, "path:/no/such/place") == (
            "acquire.corpus.news: /no/such/place: no such file or folder: give one that exists, "
            "-S acquire.corpus.news=path:/folder/or/file"
        )

    def test_a_home_that_nobody_has(self, root):
        assert "/~nobody-at-all/x: no such file or folder" in self.refusal(root, "path:~nobody-at-all/x")

    def test_an_empty_folder(self, root, tmp_path):
        (tmp_path / "empty").mkdir()
        said = self.refusal(root, f"path:{tmp_path}/empty")
        assert said == f"acquire.corpus.news: {tmp_path}/empty: holds no files: give a folder with files in it"

    def test_a_folder_of_which_nothing_counts_says_what_was_left_out(self, root, tmp_path):
        (root / ".dvcignore").write_text("*.bak")
        folder = tmp_path / "hidden"
        (folder / ".cache").mkdir(parents=True)
        for name in (".a", ".b", ".cache/c", "x.bak"):
            (folder / name).touch()
        said = self.refusal(root, f"path:{folder}")
        assert f"{folder}: holds no files that count (3 hidden, 1 named in .dvcignore): give a folder" in said

    def test_a_pattern_without_a_match_lists_the_files(self, root, texts):
        said = self.refusal(root, f"path:{texts}#path=*.csv")
        assert "nothing in it matches path=*.csv; it holds a.txt, b.txt, deep/er/c.jsonl" in said

    def test_a_pattern_on_a_single_file(self, root, texts):
        assert "a.txt: is a file: path= chooses from a folder" in self.refusal(root, f"path:{texts}/a.txt#path=*")

    @pytest.mark.parametrize("inside", [".", "inputs", "inputs/corpus"])
    def test_a_source_that_holds_its_own_listing(self, root, inside):
        (root / "inputs/corpus").mkdir()
        said = self.refusal(root, f"path:{root / inside}")
        assert said.endswith("inputs: keep the files in a folder of their own")

    def test_a_folder_that_dvcignore_hides(self, root):
        (root / ".dvcignore").write_text(".venv\n")
        (root / ".venv/data").mkdir(parents=True)
        (root / ".venv/data/a.txt").write_text("a")
        assert self.refusal(root, "path:.venv/data").endswith(".dvcignore hides it from DVC: keep the files elsewhere")

    @pytest.mark.parametrize("target", ["../elsewhere", ".", "deep"])
    def test_a_link_to_a_folder(self, root, texts, target):
        (texts.parent / "elsewhere").mkdir()
        (texts / "linked").symlink_to(target)
        assert self.refusal(root, f"path:{texts}") == (
            f"acquire.corpus.news: {texts}/linked: a link to a folder, which DVC does not follow: "
            "give that folder as a source of its own"
        )

    @pytest.mark.parametrize("name", ["gone", ".gone", "loop"])
    def test_a_link_that_leads_nowhere_hidden_or_not(self, root, texts, name):
        (texts / name).symlink_to("loop" if name == "loop" else "nowhere")
        assert f"{texts}/{name}: a link whose target does not exist: correct or remove it" in self.refusal(
            root, f"path:{texts}"
        )

    def test_what_is_neither_file_nor_folder(self, root, texts):
        os.mkfifo(texts / "pipe")
        assert f"{texts}/pipe: neither a file nor a folder" in self.refusal(root, f"path:{texts}")

    def test_a_dvcignore_of_its_own(self, root, texts):
        (texts / "deep/.dvcignore").touch()
        assert f"{texts}/deep/.dvcignore: DVC does not allow it in an input" in self.refusal(root, f"path:{texts}")

    def test_a_dvc_workspace(self, root, texts):
        (texts / "deep/.dvc").mkdir()
        assert f"{texts}/deep: a DVC workspace of its own" in self.refusal(root, f"path:{texts}")

    def test_a_file_that_may_not_be_read(self, root, texts, monkeypatch):
        # Permissions do not bind the superuser, under whom tests may run.
        monkeypatch.setattr(os, "access", lambda path, _: not path.endswith("b.txt"))
        assert f"acquire.corpus.news: {texts}/b.txt: may not be read" in self.refusal(root, f"path:{texts}")

    def test_a_folder_that_may_not_be_read(self, root, texts, monkeypatch):
        def refuse(path):
            raise PermissionError(13, "Permission denied", str(path))

        monkeypatch.setattr(os, "scandir", refuse)
        assert f"acquire.corpus.news: {texts}: may not be read" in self.refusal(root, f"path:{texts}")

    def test_a_name_that_is_not_utf8(self, root, texts):
        (texts / os.fsdecode(b"bad\xff.txt")).write_text("")
        assert "its name is not UTF-8: rename it" in self.refusal(root, f"path:{texts}")
