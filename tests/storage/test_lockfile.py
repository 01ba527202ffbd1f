import json
import os
import subprocess
import sys

import pytest

from storage.errors import InputError
from storage.lockfile import (
    cache_folder,
    directory_md5,
    directory_object,
    file_md5,
    files_below,
    flat,
    object_path,
    read_pipeline,
)

PIPELINE = """\
stages:
  write:
    desc: Writes a folder
    cmd: mkdir -p data/folder/sub && printf hi > data/folder/b.txt && printf ho > data/folder/sub/ü.txt
      && printf x > 'data/folder/sub-a.txt' && printf '{}' > data/metrics.json
    outs: [data/folder]
    metrics:
      - data/metrics.json: {cache: false}
  copy:
    cmd: cp data/folder/b.txt data/b.txt
    params: [seed, copy]
    deps: [data/folder]
    outs:
      - data/b.txt: {persist: true}
  later:
    cmd: "true"
    deps: [data/b.txt]
    outs: [data/later/]
"""


def dvc(root, *arguments):
    environment = os.environ | {"DVC_NO_ANALYTICS": "1"}
    subprocess.run([sys.executable, "-m", "dvc", *arguments, "-q"], cwd=root, env=environment, check=True)


@pytest.fixture(scope="module")
def repository(tmp_path_factory):
    root = tmp_path_factory.mktemp("dvc")
    dvc(root, "init", "--no-scm")
    (root / "dvc.yaml").write_text(PIPELINE)
    (root / "params.yaml").write_text("seed: 3\ncopy:\n  deep: {key: [1, 2]}\n")
    dvc(root, "repro", "copy")
    return root


def test_stages_are_read_as_declared_and_as_locked(repository):
    pipeline = read_pipeline(repository)

    assert list(pipeline.declared) == ["write", "copy", "later"]
    assert pipeline.declared["write"].description == "Writes a folder"
    assert pipeline.declared["write"].reports == ("data/metrics.json",)
    assert pipeline.outputs() == {"data/folder": "write", "data/b.txt": "copy", "data/later": "later"}
    assert pipeline.artifacts()["data/metrics.json"] == "write"
    assert set(pipeline.locked) == {"write", "copy"}
    assert flat(pipeline.locked["copy"].parameters) == {"seed": 3, "copy.deep.key": [1, 2]}
    folder = pipeline.locked_output("data/folder")
    assert folder is not None
    assert folder.is_directory
    assert folder.files == 3
    assert pipeline.locked_output("data/later") is None


def test_directory_hash_equals_the_one_dvc_wrote(repository):
    folder = read_pipeline(repository).locked_output("data/folder")
    assert folder is not None

    files = {name: file_md5(path) for name, path in files_below(repository, repository / "data/folder").items()}

    assert directory_md5(files) == folder.md5


def test_directory_object_lists_the_files(repository):
    folder = read_pipeline(repository).locked_output("data/folder")
    assert folder is not None

    listing = directory_object(cache_folder(repository), folder.md5)

    assert listing is not None
    assert set(listing) == {"b.txt", "sub-a.txt", "sub/ü.txt"}
    assert object_path(cache_folder(repository), listing["b.txt"]).read_text() == "hi"


def test_a_damaged_directory_object_is_refused_and_an_absent_one_is_none(tmp_path):
    content = json.dumps([{"md5": "0" * 32, "relpath": "a"}])
    path = object_path(tmp_path, "1" * 32 + ".dir")
    path.parent.mkdir(parents=True)
    path.write_text(content)

    with pytest.raises(ValueError, match="does not match its name"):
        directory_object(tmp_path, "1" * 32 + ".dir")
    assert directory_object(tmp_path, "2" * 32 + ".dir") is None


def test_configured_cache_folder_is_found(tmp_path, repository):
    assert cache_folder(repository) == repository / ".dvc/cache/files/md5"
    dvc(tmp_path, "init", "--no-scm")
    dvc(tmp_path, "cache", "dir", str(tmp_path / "shared cache"))
    assert cache_folder(tmp_path) == tmp_path / "shared cache/files/md5"


def test_files_that_dvc_ignores_are_left_out(tmp_path):
    (tmp_path / ".dvcignore").write_text("# comment\n*.partial-*\n")
    (tmp_path / "out").mkdir()
    (tmp_path / "out/a").touch()
    (tmp_path / "out/a.partial-1").touch()

    assert list(files_below(tmp_path, tmp_path / "out")) == ["a"]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("stages: [\n", "dvc.lock:2: not valid YAML"),
        ("- a\n", "a mapping is expected"),
        ("stages: {a: 1}", "must map"),
        ("stages: {a: {params: {params.yaml: }}}", "its entry of a is damaged"),
        ("stages: {a: {params: [seed]}}", "its entry of a is damaged"),
        ("stages: {a: {deps: 3}}", "its entry of a is damaged"),
    ],
)
def test_damaged_lock_is_one_line(tmp_path, content, message):
    (tmp_path / "dvc.yaml").write_text("stages: {}\n")
    (tmp_path / "dvc.lock").write_text(content)

    with pytest.raises(InputError, match=message):
        read_pipeline(tmp_path)


def test_entries_of_dvc_2_have_no_comparable_hash(tmp_path):
    (tmp_path / "dvc.yaml").write_text("stages: {a: {cmd: x, outs: [o]}}\n")
    (tmp_path / "dvc.lock").write_text("stages: {a: {outs: [{path: o, md5: abc, size: 1}]}}\n")

    locked = read_pipeline(tmp_path).locked_output("o")

    assert locked is not None
    assert locked.md5 is None


def test_expanded_stages_belong_to_their_template(tmp_path):
    (tmp_path / "dvc.yaml").write_text("stages: {tune: {foreach: [a], do: {cmd: x, outs: ['out/${item}']}}}\n")
    (tmp_path / "dvc.lock").write_text(
        "stages: {tune@a: {outs: [{path: out/a, hash: md5, md5: abc, size: 1}]}, gone: {outs: [{path: z, md5: q}]}}\n"
    )

    assert read_pipeline(tmp_path).outputs() == {"out/a": "tune@a"}


def test_a_foreach_over_a_file_of_vars_gives_a_stage_for_each_key_that_is_there_now(tmp_path):
    (tmp_path / "dvc.yaml").write_text(
        "vars: [inputs.yaml]\nstages: {local: {foreach: '${local}', do: {cmd: x, outs: ['inputs/${key}.json']}}}\n"
    )
    (tmp_path / "inputs.yaml").write_text("local: {a: /x, b: /y}\n")
    entry = "{outs: [{path: inputs/%s.json, hash: md5, md5: abc, size: 1}]}"
    (tmp_path / "dvc.lock").write_text(f"stages: {{local@a: {entry % 'a'}, local@gone: {entry % 'gone'}}}\n")

    pipeline = read_pipeline(tmp_path)

    assert pipeline.outputs() == {"inputs/a.json": "local@a", "inputs/b.json": "local@b"}
    assert [stage.name for stage in pipeline.current()] == ["local@a"]
    (tmp_path / "inputs.yaml").write_text("local: {}\n")
    assert read_pipeline(tmp_path).outputs() == {}
