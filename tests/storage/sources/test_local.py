"""Slots: links to local sources that DVC can hash, and what is refused because it cannot."""

import os
import threading
import time
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from storage.errors import InputError
from storage.sources.local import (
    SLOTS,
    UNUSED_TEXT,
    inputs_in_words,
    local_files,
    local_slots,
    missing_sources,
    slots_of,
    sync_links,
    written_folder,
)
from storage.sources.source import NamedSource, parse_spec


@dataclass
class Wanted:
    corpus: dict = field(default_factory=dict)
    datasets: dict = field(default_factory=dict)
    backbone: str = "hf:google-t5/t5-small"
    embedder: str = "hf:org/embedder"


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


def links(root):
    """{slot: target} of the slots in use."""
    found = {slot: str((root / slot).readlink()) for slot in SLOTS if (root / slot).is_symlink()}
    return {slot: target for slot, target in found.items() if target != "unused"}


def corpus(root, **specs):
    sync_links(root, Wanted(corpus=specs))
    return links(root)


def source(spec):
    return NamedSource("corpus", "news", parse_spec(spec))


class TestSlots:
    def test_a_folder_is_one_link_and_its_files_are_seen_through_it(self, root, texts):
        assert corpus(root, news=f"path:{texts}") == {"inputs/01": str(texts)}
        assert (root / "inputs/01/deep/er/c.jsonl").read_text() == "deep/er/c.jsonl"

    def test_a_single_file_is_one_link(self, root, texts):
        assert corpus(root, news=f"path:{texts}/a.txt") == {"inputs/01": f"{texts}/a.txt"}

    def test_a_relative_path_starts_at_the_workspace_and_stays_relative(self, root, monkeypatch, tmp_path):
        monkeypatch.chdir("/")
        (root / "own").mkdir()
        (root / "own/a.txt").write_text("a")
        assert corpus(root, news="path:own//.") == {"inputs/01": "../own"}
        root.rename(tmp_path / "moved")
        assert (tmp_path / "moved/inputs/01/a.txt").read_text() == "a"

    def test_a_path_that_leaves_the_workspace_is_followed(self, root, texts):
        assert corpus(root, news="path:../texts/b.txt") == {"inputs/01": "../../texts/b.txt"}
        assert (root / "inputs/01").samefile(texts / "b.txt")

    def test_a_tilde_is_the_home_folder(self, root, texts, monkeypatch):
        monkeypatch.setenv("HOME", str(texts))
        assert corpus(root, news="path:~/b.txt") == {"inputs/01": f"{texts}/b.txt"}

    def test_slots_follow_the_order_of_the_parameters(self, root, texts):
        wanted = Wanted(
            {"b": f"path:{texts}/a.txt", "a": "hf:org/name", "c": f"path:{texts}"},
            {"set": f"path:{texts}/b.txt"},
            f"path:{texts}/deep",
        )
        sync_links(root, wanted)
        assert links(root) == {
            "inputs/01": f"{texts}/deep",
            "inputs/02": f"{texts}/a.txt",
            "inputs/03": str(texts),
            "inputs/04": f"{texts}/b.txt",
        }
        assert [one.parameter for one in local_slots(wanted).values()] == [
            "acquire.backbone",
            "acquire.corpus.b",
            "acquire.corpus.c",
            "acquire.datasets.set",
        ]

    def test_every_slot_is_always_there_and_says_when_it_is_not_in_use(self, root, texts):
        corpus(root, news=f"path:{texts}", old=f"path:{texts}")
        assert corpus(root) == {}
        names = [path.name for path in sorted((root / "inputs").iterdir())]
        assert names == [*(slot[-2:] for slot in SLOTS), "unused"]
        assert {(root / slot).read_text() for slot in SLOTS} == {UNUSED_TEXT}

    def test_slots_that_an_archive_turned_into_files_become_links_again(self, root, texts):
        for slot in SLOTS:
            (root / slot).write_text("unused")
        assert corpus(root, news=f"path:{texts}") == {"inputs/01": str(texts)}
        assert all((root / slot).is_symlink() for slot in SLOTS)

    def test_a_source_that_changes_its_place_turns_its_link(self, root, texts):
        corpus(root, a=f"path:{texts}/a.txt", b=f"path:{texts}/b.txt")
        assert corpus(root, a=f"path:{texts}/b.txt", b=f"path:{texts}/a.txt") == {
            "inputs/01": f"{texts}/b.txt",
            "inputs/02": f"{texts}/a.txt",
        }

    def test_the_second_time_nothing_is_touched(self, root, texts):
        corpus(root, news=f"path:{texts}")
        before = {slot: os.lstat(root / slot).st_ino for slot in SLOTS}
        corpus(root, news=f"path:{texts}")
        assert {slot: os.lstat(root / slot).st_ino for slot in SLOTS} == before

    def test_more_sources_than_slots_are_refused(self, root, texts):
        with pytest.raises(InputError, match=r"^params\.yaml: acquire: 33 local sources, and dvc\.yaml has 32 slots"):
            corpus(root, **{f"n{number}": f"path:{texts}" for number in range(33)})
        assert links(root) == {}
        assert len(corpus(root, **{f"n{number}": f"path:{texts}" for number in range(32)})) == 32

    def test_a_source_that_is_refused_leaves_all_links_as_they_were(self, root, texts):
        corpus(root, news=f"path:{texts}")
        with pytest.raises(InputError, match="no such file or folder"):
            corpus(root, a=f"path:{texts}/a.txt", news="path:/no/such/place")
        assert links(root) == {"inputs/01": str(texts)}

    @pytest.mark.parametrize("kind", ["file", "folder"])
    def test_what_is_in_the_way_of_a_link_is_named_and_left_alone(self, root, texts, kind):
        if kind == "file":
            (root / "inputs/01").write_text("mine")
        else:
            (root / "inputs/01").mkdir()
        with pytest.raises(InputError, match=r"inputs/01: in the way of a link to .*: move it"):
            corpus(root, news=f"path:{texts}")
        assert (root / "inputs/01").exists()
        assert not (root / "inputs/01").is_symlink()

    def test_commands_at_once_never_leave_a_slot_without_its_source(self, root, texts):
        specs = [{"a": f"path:{texts}/a.txt"}, {"a": f"path:{texts}/b.txt"}]
        corpus(root, **specs[0])
        stop, failures = threading.Event(), []

        def renew(mine):
            while not stop.is_set():
                try:
                    corpus(root, **mine)
                except Exception as error:  # noqa: BLE001 - whatever it is
                    failures.append(error)

        threads = [threading.Thread(target=renew, args=(mine,)) for mine in specs]
        for thread in threads:
            thread.start()
        contents = {(root / "inputs/01").read_text() for _ in range(500)}
        stop.set()
        for thread in threads:
            thread.join()
        assert not failures
        assert contents <= {"a.txt", "b.txt"}
        assert len(list((root / "inputs").iterdir())) == len(SLOTS) + 1

    def test_sources_are_named_in_place_of_slots(self, root, texts):
        used = local_slots(Wanted({"news": f"path:{texts}"}))
        shown = inputs_in_words(["inputs/01", "inputs/02", "model/x.py"], root, used)
        assert shown == [f"acquire.corpus.news ({texts})", "model/x.py"]

    def test_a_section_of_another_version_gives_no_slots(self):
        assert slots_of(None) == {}
        assert slots_of({"corpus": {"news": "path:/x"}}) == {}
        assert slots_of({"corpus": {"news": "nonsense"}, "datasets": {}, "backbone": "hf:x", "embedder": "hf:x"}) == {}

    def test_missing_sources_are_listed(self, root, texts):
        wanted = Wanted({"here": f"path:{texts}", "gone": "path:gone"})
        assert [one.parameter for one in missing_sources(root, wanted)] == ["acquire.corpus.gone"]


class TestFiles:
    def test_files_come_in_order(self, root, texts):
        found = local_files(root, source(f"path:{texts}"))
        assert list(found) == ["a.txt", "b.txt", "deep/er/c.jsonl"]
        assert all(Path(path).is_absolute() for path in found.values())

    def test_a_pattern_chooses_files(self, root, texts):
        assert list(local_files(root, source(f"path:{texts}#path=**/*.jsonl"))) == ["deep/er/c.jsonl"]

    def test_hidden_files_and_folders_do_not_count(self, root, texts):
        (texts / ".hidden").write_text("")
        (texts / ".git").mkdir()
        (texts / ".git/config").symlink_to("nowhere")
        assert len(local_files(root, source(f"path:{texts}"))) == 3

    def test_what_dvcignore_names_does_not_count_because_dvc_does_not_see_it(self, root, texts):
        (root / ".dvcignore").write_text("# a comment\n*.partial-*\ndeep/\n")
        (texts / "x.partial-1").write_text("")
        assert list(local_files(root, source(f"path:{texts}"))) == ["a.txt", "b.txt"]

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
            sync_links(root, Wanted({"news": f"path:{many}"}))
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
            corpus(root, news=spec)
        return str(caught.value)

    def test_a_missing_path_names_parameter_path_and_remedy(self, root):
        assert self.refusal(root, "path:/no/such/place") == (
            "acquire.corpus.news: /no/such/place: no such file or folder: give one that is there, "
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
    def test_a_source_that_holds_its_own_links(self, root, inside):
        (root / "inputs/corpus").mkdir()
        said = self.refusal(root, f"path:{root / inside}")
        assert said.endswith("inputs: keep the files in a folder of their own")

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
        assert f"{texts}/{name}: a link that leads nowhere: mend or remove it" in self.refusal(root, f"path:{texts}")

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
