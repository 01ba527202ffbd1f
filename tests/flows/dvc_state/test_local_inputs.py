"""inputs.yaml: the local sources of params.yaml, for dvc.yaml."""

import threading

import pytest
from ruamel.yaml import YAML

from flows.dvc_state.local_inputs import in_columns, sync
from storage.errors import InputError
from support.wanted_sources import Wanted


@pytest.fixture
def root(tmp_path):
    (tmp_path / "work/data/tasks").mkdir(parents=True)
    (tmp_path / "work/data/tasks/a.parquet").write_text("")
    (tmp_path / "work/model").mkdir()
    (tmp_path / "work/model/a.txt").write_text("")
    (tmp_path / "work/dvc.yaml").write_text("stages: {materialize: {cmd: x, outs: [data/tasks]}}\n")
    return tmp_path / "work"


@pytest.fixture
def texts(tmp_path):
    (tmp_path / "texts").mkdir()
    for name in ("a.txt", "b.txt"):
        (tmp_path / "texts" / name).write_text(name)
    return tmp_path / "texts"


def mapping(root):
    return YAML(typ="safe").load((root / "inputs.yaml").read_text())["local"]


def corpus(root, **specs):
    sync(root, Wanted(corpus=specs))
    return mapping(root)


def test_there_is_an_entry_for_each_local_source_and_none_for_others(root, texts):
    sync(root, Wanted({"b": f"path:{texts}", "a": "hf:org/name"}, {"set": f"path:{texts}/b.txt"}, f"path:{texts}"))
    assert mapping(root) == {"backbone": str(texts), "corpus-b": str(texts), "datasets-set": f"{texts}/b.txt"}
    assert corpus(root) == {}


def test_as_many_sources_as_one_likes(root, texts):
    assert len(corpus(root, **{f"n{number}": f"path:{texts}" for number in range(100)})) == 100


@pytest.mark.parametrize(
    "name", ["two words", "${a}", "it's", "a: b # c", "größe 数", "no", "{x", "[x]", "*x", "&x", "1"]
)
def test_names_that_yaml_or_dvc_could_take_for_something_else(root, name):
    (root / name).mkdir()
    (root / name / "a.txt").write_text("a")
    assert corpus(root, news=f"path:{name}") == {"corpus-news": name}


def test_a_relative_path_stays_relative_and_a_tilde_is_the_home_folder(root, texts, monkeypatch):
    monkeypatch.setenv("HOME", str(texts))
    (root / "own").mkdir()
    (root / "own/a.txt").write_text("a")
    assert corpus(root, a="path:own//.", b="path:../texts/b.txt", c="path:~/b.txt") == {
        "corpus-a": "own",
        "corpus-b": "../texts/b.txt",
        "corpus-c": f"{texts}/b.txt",
    }


def test_the_second_time_nothing_is_touched(root, texts):
    assert sync(root, Wanted({"news": f"path:{texts}"})) is True
    before = (root / "inputs.yaml").stat()
    assert sync(root, Wanted({"news": f"path:{texts}"})) is False
    assert (root / "inputs.yaml").stat().st_mtime_ns == before.st_mtime_ns


@pytest.mark.parametrize("content", ["local: [", "local: 3", "[]", "other: {}", ""])
def test_a_file_that_was_spoilt_by_hand_is_written_anew(root, texts, content):
    (root / "inputs.yaml").write_text(content)
    (root / "dvc.yaml").write_text("vars: [inputs.yaml]\n" + (root / "dvc.yaml").read_text())
    assert corpus(root, news=f"path:{texts}") == {"corpus-news": str(texts)}


def test_the_listing_of_a_source_that_is_gone_is_removed_and_nothing_else(root, texts):
    corpus(root, news=f"path:{texts}", old=f"path:{texts}")
    for name in ("corpus-news.json", "corpus-old.json", "README.md"):
        (root / "inputs" / name).write_text("{}")
    corpus(root, news=f"path:{texts}")
    assert sorted(path.name for path in (root / "inputs").iterdir()) == ["README.md", "corpus-news.json"]


def test_a_source_that_is_refused_leaves_all_as_it_was(root, texts):
    corpus(root, news=f"path:{texts}")
    with pytest.raises(InputError, match="no such file or folder"):
        corpus(root, a=f"path:{texts}/a.txt", news="path:/no/such/place")
    assert mapping(root) == {"corpus-news": str(texts)}


@pytest.mark.parametrize(
    ("spec", "said"),
    [
        ("path:data/tasks", "overlaps with data/tasks, which materialize writes: copy the files elsewhere"),
        ("path:data", "overlaps with data/tasks, which materialize writes: copy the files elsewhere"),
        ("path:data/tasks/a.parquet", "overlaps with data/tasks, which materialize writes: copy the files elsewhere"),
        ("path:model", "lies among the program's code: keep the files elsewhere"),
    ],
)
def test_a_source_among_outputs_or_code_is_refused(root, spec, said):
    with pytest.raises(InputError) as refused:
        corpus(root, news=spec)
    assert str(refused.value).startswith("acquire.corpus.news: ")
    assert str(refused.value).endswith(said)


def test_the_links_of_version_0_1_are_removed_with_a_line_and_what_they_led_to_stays(root, texts, capsys):
    slots = root / "inputs"
    slots.mkdir()
    (slots / "unused").write_text("A slot that links here stands for no source.\n")
    (slots / "01").symlink_to(texts)
    (slots / "02").symlink_to("unused")
    (slots / "03").write_text("unused")  # by an archive that knows no links
    (slots / "04").mkdir()
    (slots / "05").write_text("mine")
    corpus(root, news=f"path:{texts}")
    assert sorted(path.name for path in slots.iterdir()) == ["04", "05"]
    assert len(list(texts.iterdir())) == 2
    said = capsys.readouterr().err
    assert said.startswith("inputs/: numbered links of version 0.1 (4) are removed")
    assert said.count("\n") == 1
    corpus(root, news=f"path:{texts}")
    assert capsys.readouterr().err == ""


def test_commands_at_once_never_leave_a_file_cut_short(root, texts):
    specs = [{"a": f"path:{texts}/a.txt"}, {"a": f"path:{texts}/b.txt"}]
    corpus(root, **specs[0])
    stop, failures = threading.Event(), []

    def renew(mine):
        while not stop.is_set():
            try:
                sync(root, Wanted(corpus=mine))
            except Exception as error:  # noqa: BLE001 - whatever it is
                failures.append(error)

    threads = [threading.Thread(target=renew, args=(mine,)) for mine in specs]
    for thread in threads:
        thread.start()
    read = {mapping(root)["corpus-a"] for _ in range(50)}
    stop.set()
    for thread in threads:
        thread.join()
    assert not failures
    assert read <= {f"{texts}/a.txt", f"{texts}/b.txt"}


def test_the_column_of_stages_is_as_wide_as_the_longest_that_lists_no_source():
    assert in_columns(["local@datasets-editorials", "acquire", "sample"]) == 7
    assert in_columns(["local@x"]) == 7
    assert in_columns([]) == 0
